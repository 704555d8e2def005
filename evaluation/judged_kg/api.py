"""The judged KG of a report's round in the API: files and SPARQL queries."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, OpenApiTypes, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.judged_kg.formats import FORMATS
from evaluation.judged_kg.rows import JudgedKG, Kept
from evaluation.judged_kg.sparql import EXAMPLES, LONGEST_QUERY, as_csv, as_json, ask
from evaluation.judged_kg.store import MOST_TUPLES_ON_PAGES
from evaluation.judged_kg.views import kg_download
from evaluation.reports.api import ReportView, files_of
from kgharvest.api.input import Filters, StrictSerializer
from kgharvest.api.views import AnyRenderer


class KGFilters(Filters):
    format = serializers.ChoiceField(list(FORMATS), help_text="hf and neo4j are zip archives.")
    verdict = serializers.ChoiceField(
        [kept.value for kept in Kept], required=False, help_text="Which tuples; all, but accepted of pykeen."
    )


class JudgedKGFile(ReportView):
    """The tuples of the harvests of a report's round, with verdicts as they are now."""

    renderer_classes = (AnyRenderer,)

    @extend_schema(
        summary="The judged KG of a report's round as a file",
        parameters=[KGFilters],
        responses=files_of({form.content_type: None for form in FORMATS.values()}),
    )
    def get(self, request: Request, pk: int) -> HttpResponse:
        report = self.report()
        asked = self.filtered_by(KGFilters)
        return kg_download(report.round, asked["format"], asked.get("verdict"))


class QueryInput(StrictSerializer):
    query = serializers.CharField(
        max_length=LONGEST_QUERY, trim_whitespace=False, help_text="SELECT, ASK or CONSTRUCT."
    )
    format = serializers.ChoiceField(["json", "csv"], default="json", help_text="Of the answer.")


class Sparql(ReportView):
    """Queries over the judged KG of a report's round."""

    scope = "read"
    is_keyed = False  # nothing is made

    @extend_schema(
        summary="Ask the judged KG of a report's round",
        request=QueryInput,
        responses={(200, "application/json"): OpenApiTypes.OBJECT, (200, "text/csv"): OpenApiTypes.STR},
        examples=[
            OpenApiExample("Precision", {"query": next(iter(EXAMPLES.values()))}, request_only=True),
            OpenApiExample(
                "An answer",
                {
                    "head": {"vars": ["relation"]},
                    "results": {"bindings": [{"relation": {"type": "literal", "value": "prevent"}}]},
                    "is_complete": True,
                },
                response_only=True,
                media_type="application/json",
            ),
        ],
    )
    def post(self, request: Request, pk: int) -> HttpResponse:
        """SPARQL 1.1 results in JSON, or CSV. `is_complete` is false where these are the first rows only."""
        report = self.report()
        sent = self.sent(QueryInput)
        answer = ask(JudgedKG(report.round), sent["query"], MOST_TUPLES_ON_PAGES)
        if sent["format"] == "csv":
            return HttpResponse(as_csv(answer), content_type="text/csv; charset=utf-8")
        return Response(as_json(answer))
