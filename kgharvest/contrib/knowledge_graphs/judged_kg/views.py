"""Pages of the judged KG of a report's round: verdict counts and file downloads."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from annotation.models import Round
from evaluation.reports.views import find_report
from kgharvest.access import researcher_required
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS, Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import KEPT_IN_WORDS, JudgedKG, Kept


@researcher_required
def judged_kg(request: HttpRequest, pk: int) -> HttpResponse:
    """Counts of the judged KG and its download form."""
    report = find_report(request, pk)
    kg = JudgedKG(report.round)
    context = {
        "report": report,
        "outcomes": kg.outcomes(),
        "sources": kg.sources,
        "n_tuples": sum(source.job.n_tuples for source in kg.sources if source.job),
        "formats": [(name, form, form.kept.value) for name, form in FORMATS.items()],
        "choices": [(kept.value, words) for kept, words in KEPT_IN_WORDS.items()],
    }
    return render(request, "knowledge_graphs/judged_kg/judged_kg.html", context)


@researcher_required
def judged_kg_file(request: HttpRequest, pk: int) -> HttpResponse:
    """Download the judged KG. Parameters: "format" and "verdict"."""
    report = find_report(request, pk)
    kept = request.GET.get("verdict") or None
    if request.GET.get("format") not in FORMATS or kept not in (None, *(choice.value for choice in Kept)):
        raise Http404(f"Judged KGs come as {', '.join(FORMATS)}, of {', '.join(Kept)}.")
    return kg_download(report.round, request.GET["format"], kept)


def kg_download(round: Round, file_format: str, kept: str | None) -> StreamingHttpResponse:
    """Return the export as a streamed file."""
    export = Export(JudgedKG(round), file_format, kept)
    response = StreamingHttpResponse(export.download(), content_type=export.format.content_type)
    response["Content-Disposition"] = f'attachment; filename="{export.file_name}"'
    return response
