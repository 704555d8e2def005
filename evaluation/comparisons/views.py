"""Pages to compare two reports, a report and the paper's Table 5, or two harvests."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse

from evaluation.comparisons import harvest_overlap
from evaluation.comparisons.report_comparison import (
    ReportSide,
    comparisons_between,
    difference_table,
    load_table5,
    published_document,
    published_table,
    report_comparison_table,
    report_side,
    shared_relations,
    shared_verdicts,
    with_distinct_names,
)
from evaluation.models import Report
from evaluation.reports.sections.comparisons import compare_sides, comparison_table
from kgharvest.access import researcher_required, visible_or_404
from kgharvest.bulk.pagination import number_in, page_of
from kgharvest.models import HarvestedTuple, HarvestJob, Relation
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import csv_text
from kgharvest.tables.latex import latex_of

COMPARISON_TABLES = ("table", "differences", "comparison_table")
PAPER = "paper"
PAPER_NAME = "the paper"
MOST_CHOICES = 200
SEED = 0  # fixed seed for the intervals, so that comparisons are reproducible


@researcher_required
def compare(request: HttpRequest) -> HttpResponse:
    reports = Report.objects.visible_to(request.user).for_list()
    chosen = {side: request.GET.get(side, "") for side in "ab"}
    offered = reports.archived(False) | reports.filter(pk__in=map(number_in, chosen.values()))
    choices = [(str(report.pk), str(report)) for report in offered[:MOST_CHOICES]]
    choices.append((PAPER, "Hao et al. (2023), Table 5, as printed in the paper"))
    context = {"chosen": chosen, "choices": choices, "paper": load_table5()}
    if all(chosen.values()):
        a, b = with_distinct_names(*(find_report_side(reports, choice) for choice in chosen.values()))
        context |= report_comparison(a, b) | {
            "shared_verdicts": shared_verdicts_in_words(reports, *chosen.values()),
            "sources": [(a.name, source_url(chosen["a"])), (b.name, source_url(chosen["b"]))],
        }
        if file_format := request.GET.get("format"):
            return comparison_file(context, file_format, request.GET.get("table", ""))
    return render(request, "evaluation/comparisons/compare.html", context)


def comparison_file(context: Mapping[str, Any], file_format: str, name: str) -> HttpResponse:
    """Return all tables of a comparison as LaTeX, or one by name as CSV. Raises Http404."""
    tables = [table for table in (context[key] for key in COMPARISON_TABLES) if table.rows]
    file_name = f"{context['a'].name}-and-{context['b'].name}"
    if file_format == "tex":
        return download(latex_of(file_name, tables), f"{file_name}.tex")
    chosen = next((table for table in tables if table.name == name), None)
    if file_format != "csv" or chosen is None:
        raise Http404("Unknown format. Use tex, or csv with the name of a table.")
    return download(csv_text(chosen), f"{file_name}-{name}.csv")


def find_report_side(reports: QuerySet[Report], choice: str) -> ReportSide:
    if choice == PAPER:
        return report_side(PAPER_NAME, published_document(load_table5()))
    report = reports.defer(None).filter(pk=number_in(choice)).first()
    if report is None:
        raise Http404("Report not found.")
    return report_side(report.round.name, report.document)


def source_url(choice: str) -> str:
    return reverse("evaluation:published") if choice == PAPER else reverse("evaluation:report", args=[choice])


def shared_verdicts_in_words(reports: QuerySet[Report], a: str, b: str) -> str | None:
    """Return a sentence that compares the verdicts of two rounds on the tuples judged in both, or None."""
    if PAPER in (a, b):
        return None
    rounds = [reports.get(pk=choice).round for choice in (a, b)]
    shared = shared_verdicts(*rounds)
    return shared and shared.in_words(*(round.name for round in rounds))


def report_comparison(a: ReportSide, b: ReportSide) -> dict[str, Any]:
    comparisons = comparisons_between(a, b, SEED)
    return {
        "a": a,
        "b": b,
        "n_shared": len(shared_relations(a, b)),
        "table": report_comparison_table(a, b),
        "differences": difference_table(a, b),
        "comparisons": comparisons,
        "comparison_table": comparison_table({"comparisons": comparisons}),
        "origins": sorted({a.origin, b.origin} - {""}),
    }


@researcher_required
def published(request: HttpRequest) -> HttpResponse:
    """Show the paper's Table 5 with significance tests, which the paper does not print."""
    paper = load_table5()
    accuracies = {key: accuracy for key, (accuracy, _) in paper.cells.items()}
    comparisons = compare_sides(accuracies, {}, SEED)
    context = {
        "paper": paper,
        "table": published_table(paper),
        "comparisons": comparisons,
        "comparison_table": comparison_table({"comparisons": comparisons}),
    }
    return render(request, "evaluation/comparisons/published.html", context)


RELATIONS_PER_PAGE = 10  # each relation loads two harvests
MOST_ADDED_UNASKED = 50_000  # number of tuples above which totals are computed only on request


@researcher_required
def compare_harvests(request: HttpRequest) -> HttpResponse:
    """Compare the harvests "a" and "b" of the query string. If "b" is missing, show the harvests to choose from."""
    a = _job(request, request.GET.get("a"))
    relation = (
        a.relation if a else visible_or_404(request.user, Relation.objects, pk=_number(request.GET.get("relation")))
    )
    jobs = HarvestJob.objects.visible_to(request.user).with_cell().succeeded().defer("payload", "summary")
    jobs = jobs.filter(relation=relation, n_tuples__gt=0).order_by("language_model__name", "setting", "-pk")
    b = _job(request, request.GET.get("b"))
    if b and b.relation_id != relation.pk:
        raise Http404("The harvests have different relations. Choose harvests of one relation.")
    context = {"relation": relation, "a": a, "b": b, "jobs": jobs[:MOST_CHOICES]}
    if a and b:
        context |= _compared(request, harvest_overlap.overlap_of(a, b))
    return render(request, "evaluation/comparisons/compare_harvests.html", context)


def _job(request: HttpRequest, number: str | None) -> HarvestJob | None:
    if not number:
        return None
    jobs = HarvestJob.objects.visible_to(request.user).with_cell().succeeded().defer("payload", "summary")
    return get_object_or_404(jobs, pk=_number(number))


def _number(text: str | None) -> int:
    number = number_in(text)
    if number is None:
        raise Http404("Invalid id. Give the id of a relation or of two harvests.")
    return number


def _compared(request: HttpRequest, overlap: harvest_overlap.HarvestOverlap) -> dict[str, Any]:
    parts = overlap.parts
    part = request.GET.get("part")
    part = part if part in harvest_overlap.PARTS else "both"
    accuracies = harvest_overlap.accuracy_of_parts(overlap, request.user)
    page = page_of(request, parts[part])
    return {
        "overlap": overlap,
        "most": harvest_overlap.MOST_COMPARED,
        "parts": [{"name": part, "n": len(parts[part]), "judged": accuracies[part]} for part in harvest_overlap.PARTS],
        "shown": part,
        "page_obj": page,
        "rows": _rows(overlap, page.object_list),
    }


def _rows(overlap: harvest_overlap.HarvestOverlap, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return the tuples with these ids, each with its rank and score in each harvest."""
    harvested_tuples = HarvestedTuple.objects.filter(job__in=[overlap.a, overlap.b], knowledge_tuple__in=ids)
    by_tuple: dict[int, dict[str, Any]] = {pk: {} for pk in ids}
    for harvested in harvested_tuples.select_related("knowledge_tuple"):
        row = by_tuple[harvested.knowledge_tuple_id]
        row["tuple"] = harvested.knowledge_tuple
        row["a" if harvested.job_id == overlap.a.pk else "b"] = harvested
    return list(by_tuple.values())


@researcher_required
def compare_sets(request: HttpRequest) -> HttpResponse:
    """Compare the cells of the harvests "a" and "b" on all relations of their set, with pagination."""
    a, b = _job(request, request.GET.get("a")), _job(request, request.GET.get("b"))
    if a is None or b is None or a.relation.relation_set_id != b.relation.relation_set_id:
        raise Http404("Give the ids of two harvests of one relation set.")
    pairs = harvest_overlap.pairs_of_set(a, b, request.user)
    page = Paginator(pairs, RELATIONS_PER_PAGE).get_page(request.GET.get("page"))
    n_tuples = sum(min(job.n_tuples, harvest_overlap.MOST_COMPARED) for pair in pairs for job in pair)
    adds_up = pairs and (n_tuples <= MOST_ADDED_UNASKED or "totals" in request.GET)
    context = {
        "a": a,
        "b": b,
        "relation_set": a.relation.relation_set,
        "page_obj": page,
        "overlaps": harvest_overlap.overlaps_of(page.object_list),
        "totals": harvest_overlap.totals_of(pairs) if adds_up else None,
        "n_tuples": n_tuples,
    }
    return render(request, "evaluation/comparisons/compare_sets.html", context)
