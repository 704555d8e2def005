"""Pages of probes: list, form, probe, relation, and downloads."""

from collections.abc import Callable, Iterator
from typing import Any

from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from evaluation.rendering.documents import Document
from evaluation.rendering.figures.drawing import FIGURE_FORMATS, LIGHT, THEMES
from evaluation.reports.views import figure_context
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.contrib.probing.models import Probe, ProbedRelation
from kgharvest.contrib.probing.probes.figures import PROBE_FIGURES, probe_figures, word_figures
from kgharvest.contrib.probing.probes.forms import ProbeForm
from kgharvest.contrib.probing.probes.services import JSON_LINES, document_of, queue_probe
from kgharvest.contrib.probing.probes.tables import control_table, method_table, probe_tables
from kgharvest.jobs import workers
from kgharvest.models import Job, RelationSet
from kgharvest.pages.lists import ListPage
from kgharvest.pages.panels import Panel, button
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, csv_text
from kgharvest.tables.latex import latex_of
from kgharvest.tables.table import without_empty_columns

N_PROMPTS = 20  # prompts shown per method, by decreasing weight


def probe_or_404(request: HttpRequest, pk: int) -> Probe:
    return visible_or_404(request.user, Probe.objects.select_related("language_model", "created_by", "project"), pk=pk)


def current_document(probe: Probe) -> Document:
    """Return the probe's document; until the probe has succeeded, a document of the records so far."""
    return probe.document or document_of(probe)


def link_to_probes(request: HttpRequest, subject: None) -> Iterator[Panel]:
    """Link on the report list (PANELS of kgharvest.registries)."""
    yield button("Probes", reverse("probing:probe_list"))


class ProbeList(ListPage):
    template_name = "probing/probes/probe_list.html"

    def rows(self):
        probes = Probe.objects.visible_to(self.request.user).select_related("language_model", "created_by")
        return probes.defer("document", "payload").annotate(n_relations=Count("relations")).order_by("-pk")

    def context(self, page):
        demo = RelationSet.objects.filter(name="demo", is_shipped=True).first()
        return {"lacks_worker": workers.lacking(timezone.now()), "demo": demo}


@worker_required
def probe_new(request: HttpRequest) -> HttpResponse:
    initial = {"relations": request.GET.getlist("relation"), "sets": request.GET.getlist("set")}
    form = ProbeForm(request.POST or None, request.FILES or None, initial=initial)
    form.offer_relations(request.user)
    offer_projects(form, request)
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(queue_probe(form.request(), request.user, chosen_project(form, request)))
    return render(request, "probing/probes/probe_new.html", {"form": form, "sets": form.choices_by_set()})


@researcher_required
def probe_detail(request: HttpRequest, pk: int) -> HttpResponse:
    probe = probe_or_404(request, pk)
    document = current_document(probe)
    ids = dict(probe.relations.values_list("name", "pk"))
    methods, controls = ([row["method"] for row in document[key]] for key in ("summary", "control"))
    tables = {table.name: without_empty_columns(table) for table in probe_tables(document)}
    context = {
        "probe": probe,
        "may": allowed_actions(request.user, probe.project),
        "document": document,
        "lacks_worker": workers.lacking_for(probe, timezone.now()),
        "methods": without_empty_columns(method_table(document)),
        "control": without_empty_columns(control_table(document)),
        "tables": tables,
        "compared": [tables[name] for name in ("differences", "comparisons") if name in tables],
        "relations": [
            {
                "pk": ids.get(entry["relation"]),
                **entry,
                "shares": [entry["p1"].get(method) for method in methods],
                "control_shares": [entry["control_p1"].get(method) for method in controls],
            }
            for entry in document["relations"]
        ],
        "figures": [figure_context(figure, document) for figure in PROBE_FIGURES if figure.shows(document)],
    }
    return render(request, "probing/probes/probe.html", context)


@researcher_required
def probed_relation(request: HttpRequest, pk: int, relation_pk: int) -> HttpResponse:
    """Scores and learned prompts of each method for one relation."""
    relations = ProbedRelation.objects.select_related("probe__language_model").defer("facts")
    relation = get_object_or_404(relations, probe__in=Probe.objects.visible_to(request.user), probe=pk, pk=relation_pk)
    records = relation.records.filter(is_control=False).annotate(n_prompts_stored=Count("prompts"))
    order = {method: index for index, method in enumerate(relation.probe.methods)}
    learned = [
        (record, list(record.prompts.defer("vectors")[:N_PROMPTS]))
        for record in sorted(records, key=lambda record: order[record.method])
    ]
    document = relation.probe.document
    figures = [figure_context(figure, document) for figure in word_figures(document, relation.name)]
    context = {"relation": relation, "learned": learned, "figures": figures}
    return render(request, "probing/probes/probed_relation.html", context)


@researcher_required
@require_POST
def job_change(request: HttpRequest, pk: int, change: Callable[[Job, Any], None], model: type[Job]) -> HttpResponse:
    """Cancel or retry a probe or text task. change: the service function."""
    job = visible_or_404(request.user, model.objects.select_related("project"), Action.WORK, pk=pk)
    with refusal_as_message(request):
        change(job, request.user)
    return redirect(job)


# -- Downloads ---------------------------------------------------------------------------------------------------------


@researcher_required
def probe_lines(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    return download(JSON_LINES[kind](probe_or_404(request, pk)), f"probe-{pk}-{kind}.jsonl", "application/jsonl")


@researcher_required
def probe_table(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    tables = {table.name: table for table in probe_tables(current_document(probe_or_404(request, pk)))}
    if name not in tables:
        raise Http404(f"Table {name} not found.")
    return download(csv_text(tables[name]), f"probe-{pk}-{name}.csv")


@researcher_required
def probe_latex(request: HttpRequest, pk: int) -> HttpResponse:
    tables = map(without_empty_columns, probe_tables(current_document(probe_or_404(request, pk))))
    return download(latex_of(f"probe-{pk}", tables), f"probe-{pk}.tex")


@researcher_required
def probe_figure(request: HttpRequest, pk: int, name: str, file_format: str) -> HttpResponse:
    document = current_document(probe_or_404(request, pk))
    figure = next((figure for figure in probe_figures(document) if figure.name == name), None)
    if figure is None or file_format not in FIGURE_FORMATS:
        raise Http404(f"Figure {name}.{file_format} not found.")
    image = figure.render(document, file_format, THEMES.get(request.GET.get("theme", ""), LIGHT))
    if "theme" in request.GET:
        return HttpResponse(image, content_type=FORMATS[file_format].content_type)
    return download(image, f"probe-{pk}-{name}.{file_format}")
