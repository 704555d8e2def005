"""Pages of the judged KG of a report's round: its files, and SPARQL queries."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from annotation.models import Round
from evaluation.judged_kg.formats import FORMATS, Export
from evaluation.judged_kg.rows import KEPT_IN_WORDS, JudgedKG, Kept
from evaluation.judged_kg.sparql import (
    EXAMPLES,
    LONGEST_QUERY,
    MOST_ROWS,
    MOST_SECONDS,
    as_csv,
    ask,
)
from evaluation.judged_kg.store import MOST_TUPLES_ON_PAGES
from evaluation.reports.views import find_report
from kgharvest.access import researcher_required
from kgharvest.errors import DomainError

ROWS_ON_PAGE = 200


@researcher_required
def judged_kg(request: HttpRequest, pk: int) -> HttpResponse:
    """What the files of the judged KG hold, and links to them."""
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
    return render(request, "evaluation/judged_kg/judged_kg.html", context)


@researcher_required
def judged_kg_file(request: HttpRequest, pk: int) -> HttpResponse:
    """Download the judged KG: "format" names how, "verdict" what."""
    report = find_report(request, pk)
    kept = request.GET.get("verdict") or None
    if request.GET.get("format") not in FORMATS or kept not in (None, *(choice.value for choice in Kept)):
        raise Http404(f"Judged KGs come as {', '.join(FORMATS)}, of {', '.join(Kept)}.")
    return kg_download(report.round, request.GET["format"], kept)


def kg_download(round: Round, file_format: str, kept: str | None) -> StreamingHttpResponse:
    """Return a file that is made while it is sent."""
    export = Export(JudgedKG(round), file_format, kept)
    response = StreamingHttpResponse(export.download(), content_type=export.format.content_type)
    response["Content-Disposition"] = f'attachment; filename="{export.file_name}"'
    return response


class QueryForm(forms.Form):
    query = forms.CharField(
        label="Query",
        max_length=LONGEST_QUERY,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "class": "code", "spellcheck": "false"}),
        help_text="SELECT, ASK or CONSTRUCT. The prefixes kgh, prov, rdf, rdfs and xsd are known.",
    )


@researcher_required
def sparql(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask the judged KG; the button "csv" gives the answer as a file."""
    report = find_report(request, pk)
    example = list(EXAMPLES.values())[number_of_example(request)]
    form = QueryForm(request.POST or None, initial={"query": example})
    context: dict[str, Any] = {"report": report, "form": form, "examples": EXAMPLES, "most_seconds": MOST_SECONDS}
    if form.is_valid():
        try:
            answer = ask(JudgedKG(report.round), form.cleaned_data["query"], MOST_TUPLES_ON_PAGES)
            if "csv" in request.POST:
                response = HttpResponse(as_csv(answer), content_type="text/csv; charset=utf-8")
                response["Content-Disposition"] = f'attachment; filename="{report.round.name}-query.csv"'
                return response
            rows = list(answer.texts())
            context |= {"answer": answer, "n_rows": len(rows), "rows": rows[:ROWS_ON_PAGE], "most_rows": MOST_ROWS}
        except DomainError as refusal:
            form.add_error("query", str(refusal))
    return render(request, "evaluation/judged_kg/sparql.html", context)


def number_of_example(request: HttpRequest) -> int:
    asked = request.GET.get("example", "")
    return int(asked) - 1 if asked in ("1", "2", "3") else 0
