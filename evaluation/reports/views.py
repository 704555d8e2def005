"""Pages of reports, rendered from frozen documents."""

import hashlib
from collections.abc import Callable, Collection
from typing import Any

from django.contrib import messages
from django.core.cache import cache
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_cache_control
from django.utils.safestring import SafeString
from django.views.decorators.http import condition, require_POST

from annotation.judges.labels import SeveralJudges
from annotation.models import Draw
from annotation.rounds.views import visible_round
from evaluation.models import Report
from evaluation.rendering.documents import Document, key_numbers, side_name
from evaluation.rendering.figures.drawing import (
    FIGURE_FORMATS,
    LEAST_WIDTH,
    LIGHT,
    MOST_WIDTH,
    THEMES,
    DrawFigure,
    to_page,
)
from evaluation.rendering.figures.report_figures import BY_RELATION, ReportFigure, figure_named, figures_of
from evaluation.reports.document import finding, report_tables, tables_of, tables_to_read
from evaluation.reports.drawn_tuples import (
    CELL,
    OUTCOMES,
    SORTED_BY,
    BestDraws,
    in_part,
    outcomes_of_part,
    sorted_draws,
    with_evidence,
    with_verdict,
)
from evaluation.reports.files import FILES, file_suffix, write_report
from evaluation.reports.forms import BadReportOption, TuplesForm, report_options
from evaluation.reports.report_sections import sections_of
from evaluation.reports.sections.comparisons import common_of, matrices_of, sides_of
from evaluation.reports.sections.rates import cells_by_relation, relation_table, scored_relations
from evaluation.reports.services import prepare_report, store_report
from evaluation.templatetags.report_tables import evidence_url
from kgharvest import code_version
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404
from kgharvest.api.input import ArchiveFilters
from kgharvest.bulk.pagination import page_of, sort_key
from kgharvest.errors import DomainError
from kgharvest.pages.lists import ListPage
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, csv_text
from kgharvest.tables.latex import latex_of
from kgharvest.tables.table import Table, first_rows, without_empty_columns

LIST_TITLES = (
    ("cells", "Every cell"),
    ("sensitivity-cells", "Every cell under other rules"),
    ("size-curves", "Accuracy by number of top-ranked tuples"),
    ("calibration", "Accuracy by score"),
    ("sampling-cells", "Sample of every cell"),
    ("assisted-cuts", "Accuracy of cuts with a judge"),  # only with a judge
)
# Sections of the appendix: titles by template in evaluation/reports/sections. Sections of apps follow the first one.
APPENDIX = {
    "relations": "Accuracy per relation", "comparisons": "Comparisons", "ranks": "Ranks", "averages": "Averages",
    "sizes": "Size and accuracy curves", "assisted": "Judge-assisted estimates", "agreement": "Agreement",
    "annotators": "Annotators", "sensitivity": "Sensitivity", "judge": "Judge quality",
    "plan": "Sample-size planning", "conduct": "Study log", "files": "Files", "method": "Method",
}  # fmt: skip
# Limits of the first table: with more cells it has relations as rows, with more relations it has averages only.
MOST_ROWS_OF_LIST, MOST_ROWS_OF_MATRIX, MOST_COLUMNS_OF_MATRIX = 12, 25, 8
BODY_CACHE_S = 3600
# Maximum number of rows of tables that are shown unfolded; 487 relations with eight columns are slow to load.
MOST_RELATIONS = 60
LONG_TABLE = 20  # number of rows shown if a table is longer


class ReportList(ListPage):
    template_name = "evaluation/reports/report_list.html"
    filters = ArchiveFilters
    searched = ("round__name",)
    project_path = "round__project"
    columns = {"round": "round__name", "project": "round__project__name", "made": "created_at"}
    order = "-made"

    def rows(self):
        return Report.objects.visible_to(self.request.user).for_list()


@researcher_required
@require_POST
def report_new(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path, Action.WORK)
    try:
        report = prepare_report(round, request.user, **report_options(request.POST, round))
    except (BadReportOption, SeveralJudges) as refusal:
        messages.error(request, str(refusal))
        return redirect(round)
    if not report.document["n_judgments"]:
        messages.error(request, "The round has no judgments yet. No report was created.")
        return redirect(round)
    return redirect(store_report(report, request.user))


def find_report(request: HttpRequest, pk: int) -> Report:
    """Return the report, with its documents deferred. Raises Http404."""
    return get_object_or_404(Report.objects.visible_to(request.user).for_list(), pk=pk)


@researcher_required
@require_POST
def report_change(request: HttpRequest, pk: int, change: Callable[..., None]) -> HttpResponse:
    report = visible_or_404(request.user, Report.objects.for_list(), Action.WORK, pk=pk)
    change(report, by=request.user)
    return redirect(report)


@researcher_required
def report_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the report: its first screen, and an appendix with folded sections, all of them open with `?all`."""
    report = find_report(request, pk)
    body, _ = cached_parts(report, "all" in request.GET)
    context = {"report": report, "body": body, "may": allowed_actions(request.user, report.project)}
    return render(request, "evaluation/reports/report_detail.html", context)


@researcher_required
def appendix_section(request: HttpRequest, pk: int, key: str) -> HttpResponse:
    """Show a section of the appendix. Raises Http404."""
    report = find_report(request, pk)
    part = next((part for part in cached_parts(report, "all" in request.GET)[1] if part["key"] == key), None)
    if part is None:
        raise Http404(f"This report has no section {key}.")
    return render(request, "evaluation/reports/appendix_section.html", {"report": report, "part": part})


def cached_parts(report: Report, everything: bool) -> tuple[SafeString, list[dict[str, str]]]:
    """Return `render_parts`, cached, because hundreds of relations are slow to render."""
    key = f"report-parts-{report.pk}-{report.created_at.timestamp()}-{everything}-{code_version()}"
    return cache.get_or_set(key, lambda: render_parts(report, everything), BODY_CACHE_S)


def render_parts(report: Report, everything: bool) -> tuple[SafeString, list[dict[str, str]]]:
    """Return the body of the page and the sections of its appendix that have data.

    Both are the same for all users, because reports never change.
    """
    document = report.document_for_pages
    agreement = {
        tuple(map(part.get, CELL)): {**part, "k": part["n_judgments"] / (part["n_tasks"] or 1)}
        for part in document.get("agreement", [])
    }
    rows = [(relation, cells, agreement.get((relation, None, None))) for relation, cells in cells_by_relation(document)]
    totals = document["totals"]
    tables = [shortened(table) for table in tables_to_read(document)]
    lists = LIST_TITLES if document.get("judge") else LIST_TITLES[:-1]
    plans = document.get("planner") or {}
    of_totals = ((plan, evidence_url(report, plan)) for plan in plans.get("totals", []))
    of_comparisons = (
        (plan, reverse("evaluation:comparison", args=[report.pk, number]))
        for number, plan in enumerate(plans.get("comparisons", []), start=1)
    )
    results = "matrix" if len(rows) <= MOST_ROWS_OF_MATRIX and len(totals) <= MOST_COLUMNS_OF_MATRIX else "averages"
    context = {
        "report": report,
        "document": document,
        "everything": everything,
        "finding": finding(document),
        "badges": [(section.key, section.badge(document[section.key])) for section in sections_of(document)],
        "tables": {table.name.replace("-", "_"): table for table in tables},
        "latex_tables": [(table.name, table.title) for table in tables],
        "csv_tables": [*((table.name, table.title) for table in tables), *lists],
        "table": relation_table(document),
        "results": "list" if len(document["cells"]) <= MOST_ROWS_OF_LIST else results,
        "rows": rows if everything else rows[:MOST_RELATIONS],
        "totals": totals,
        "sides": [(total, agreement.get((None, total["model"], total["setting"]))) for total in totals],
        "n_relations": len(rows),
        "plans": [(plan["sentence"], address) for plan, address in (*of_totals, *of_comparisons) if plan["sentence"]],
        "figures": {figure.name.replace("-", "_"): figure_context(figure, document) for figure in figures_of(document)},
        "series": [side_name(total) for total in totals],
        "scored_relations": scored_relations(document),
        "key_numbers": list(key_numbers(document)),
        "matrices": matrices_of(document),
        "formats": FILES,
    }
    first, *others = ((key, title, f"evaluation/reports/sections/_{key}.html", {}) for key, title in APPENDIX.items())
    added = (
        (section.key, section.title, section.template, {"added": {"section": section, "tables": [
            shortened(without_empty_columns(table)) for table in tables_of(section.tables, document)
        ]}})
        for section in sections_of(document)
    )  # fmt: skip
    appendix = [
        {"key": key, "title": title, "html": html}
        for key, title, template, more in (first, *added, *others)
        if (html := render_to_string(template, context | more)).strip()
    ]
    return render_to_string("evaluation/reports/_report_body.html", context | {"appendix": appendix}), appendix


def shortened(table: Table) -> Table:
    return first_rows(table, MOST_RELATIONS, LONG_TABLE)


def figure_context(figure: ReportFigure, document: Document) -> dict[str, Any]:
    """Return the template context of a figure."""
    numbers = figure.numbers and shortened(without_empty_columns(figure.numbers(document)))
    return {**figure.image(document), "numbers": numbers}


@researcher_required
def comparison(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """Show both sides of a comparison by relation."""
    report = find_report(request, pk)
    comparisons = report.document["comparisons"]
    if not 1 <= number <= len(comparisons):
        raise Http404(f"This report has no comparison {number}.")
    compared = comparisons[number - 1]
    cells = {(cell["relation"], cell["model"], cell["setting"]): cell for cell in report.document["cells"]}
    a, b = sides_of(compared)
    rows = [
        {**entry, "a": cells[entry["relation"], *a], "b": cells[entry["relation"], *b]}
        for entry in compared["relations"]
    ]
    context = {"report": report, "comparison": compared, "rows": rows, "common": common_of(compared)}
    return render(request, "evaluation/reports/comparison.html", context)


@researcher_required
def report_file(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    report = find_report(request, pk)
    try:
        return report_download(report, file_format, request.GET.getlist("table"))
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(report)


def report_download(report: Report, file_format: str, tables: Collection[str] = ()) -> HttpResponse:
    """Return the report as a file. tables: names of the tables in a LaTeX file; default is all.

    Raises Http404 for unknown names, and RowsChanged or TooManyRows for the evidence page.
    """
    if file_format not in FILES:
        raise Http404(f"Unknown format {file_format}. Use one of {', '.join(FILES)}.")
    content: str | bytes
    if tables and file_format == "tex":
        named = {table.name: table for table in tables_to_read(report.document)}
        if unknown := sorted(set(tables) - set(named)):
            raise Http404(f"This report has no table named {', '.join(unknown)}.")
        content = latex_of(report.round.name, [table for name, table in named.items() if name in tables])
    else:
        content = write_report(report, file_format)
    return download(content, f"{report.round.name}-{file_suffix(file_format)}")


@researcher_required
def table_file(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    return table_download(find_report(request, pk), name)


def table_download(report: Report, name: str) -> HttpResponse:
    """Return one table of the report as CSV. Raises Http404 for an unknown name."""
    table = next((table for table in report_tables(report.document) if table.name == name), None)
    if table is None:
        raise Http404(f"This report has no table named {name}.")
    return download(csv_text(table), f"{report.round.name}-{name}.csv")


@researcher_required
def tuples(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the draws selected by the query string: all draws of the round, of a cell, of a side, or of a part."""
    report = find_report(request, pk)
    form = TuplesForm(request.GET)
    part = form.cleaned_data if form.is_valid() else {}
    draws = Draw.objects.filter(in_part(report.round, part)) if form.is_valid() else Draw.objects.none()
    outcomes = outcomes_of_part(report.round, part, draws, timezone.now())
    verdict = part.get("verdict", "")
    counts = {"": sum(outcomes.content.values()), **{outcome: outcomes.content[outcome] for outcome in OUTCOMES}}
    sort, n = sort_key(request, SORTED_BY, "rank"), counts[verdict]
    rows = sorted_draws(report.round, part, with_evidence(with_verdict(draws, verdict)), n, sort)
    context = {
        "report": report,
        "round": report.round,
        "form": form,
        "part": part,
        "counts": counts,
        "counted_at": outcomes.counted_at,
        "verdict": verdict,
        "sort": sort,
        "can_sort": not isinstance(rows, BestDraws),
        "page_obj": page_of(request, rows),
    }
    return render(request, "evaluation/reports/tuples.html", context)


def etag(request: HttpRequest, pk: int, name: str, file_format: str = "json") -> str:
    """Return the ETag of a rendered report. Reports never change, but their rendering changes with the code."""
    identity = f"{pk}-{name}-{file_format}-{code_version()}-{request.GET.urlencode()}"
    return f'"{hashlib.sha256(identity.encode()).hexdigest()}"'


@researcher_required
@condition(etag_func=etag)
def figure_file(request: HttpRequest, pk: int, name: str, file_format: str) -> HttpResponse:
    """Return a figure: a file, an image if `theme` is set, or a drawing for a page if `width` is set.

    Raises Http404.
    """
    report, options = find_report(request, pk), {key: request.GET.get(key) for key in ("theme", "relation")}
    if file_format != "svg" or "width" not in request.GET:
        return figure_download(report, name, file_format, **options)
    document = drawn_document(report, name, options["relation"])
    figure = figure_named(name, document)
    if figure is None:
        raise Http404(f"This report has no figure {name}.")
    return page_drawing(request, figure.draw, document, figure.title)


def page_drawing(request: HttpRequest, draw: DrawFigure, document: Document, title: str) -> HttpResponse:
    """Return the figure as SVG elements of the requested width, without the LMs and settings in `off`.

    Raises BadRequest.
    """
    try:
        width = min(max(int(request.GET["width"]), LEAST_WIDTH), MOST_WIDTH)
        off = {int(number) for number in request.GET.get("off", "").split(",") if number}
    except ValueError as error:
        raise BadRequest(
            "Invalid query: width must be a number of pixels, and off must be a comma-separated list of numbers."
        ) from error
    response = HttpResponse(to_page(draw(document, width, off), title))
    patch_cache_control(response, private=True, max_age=600)
    return response


def drawn_document(report: Report, name: str, relation: str | None = None) -> Document:
    """Return the document for a figure. If `relation` is given, figures of scores show all cells of this relation.

    Raises Http404 if the relation has no scores.
    """
    if not relation or name not in BY_RELATION:
        return report.document_for_pages
    document = report.scores_of(relation)
    if document is None:
        raise Http404(f"This report has no scores for {relation}.")
    return document


def figure_download(
    report: Report, name: str, file_format: str, theme: str | None = None, relation: str | None = None
) -> HttpResponse:
    """Return a figure as a download, or as an image for a page if `theme` is set. Raises Http404 for unknown names."""
    document = drawn_document(report, name, relation)
    figure = figure_named(name, document)
    if figure is None or file_format not in FIGURE_FORMATS:
        raise Http404(f"This report has no figure {name}.{file_format}.")
    content = figure.render(document, file_format, THEMES.get(theme or "", LIGHT))
    if theme is None:
        return download(content, f"{report.round.name}-{name}.{file_format}")
    response = HttpResponse(content, content_type=FORMATS[file_format].content_type)
    patch_cache_control(response, private=True, max_age=600)
    return response
