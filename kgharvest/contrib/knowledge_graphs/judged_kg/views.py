"""Page and downloads of the judged KG of a report's round."""

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from annotation.models import Round
from evaluation.reports.views import find_report
from kgharvest.access import researcher_required
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS, Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import JudgedKG, Selection
from kgharvest.tables.downloads import download


@researcher_required
def judged_kg(request: HttpRequest, pk: int) -> HttpResponse:
    """Show verdict counts and the download form."""
    report = find_report(request, pk)
    kg = JudgedKG(report.round)
    context = {
        "report": report,
        "outcomes": kg.outcomes(),
        "sources": kg.sources,
        "n_tuples": sum(source.job.n_tuples for source in kg.sources if source.job),
        "formats": FORMATS.items(),
        "selections": Selection.choices,
    }
    return render(request, "knowledge_graphs/judged_kg/judged_kg.html", context)


@researcher_required
def judged_kg_file(request: HttpRequest, pk: int) -> HttpResponse:
    """Download the judged KG. Parameters: "format" and "verdict"."""
    report = find_report(request, pk)
    selection = request.GET.get("verdict") or None
    if request.GET.get("format") not in FORMATS or selection not in (None, *Selection.values):
        raise Http404(f"Choose a format ({', '.join(FORMATS)}) and a verdict ({', '.join(Selection)}).")
    return kg_download(report.round, request.GET["format"], selection)


def kg_download(round: Round, file_format: str, selection: str | None) -> HttpResponse | StreamingHttpResponse:
    """Return the export as a streamed file."""
    export = Export(JudgedKG(round), file_format, selection)
    return download(export.download(), export.file_name, export.format.content_type)
