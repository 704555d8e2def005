"""API of the judged KG: download it as a file."""

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.request import Request

from evaluation.reports.api import ReportOperations
from kgharvest.api.input import Filters
from kgharvest.api.views import AnyRenderer, files_of, operation
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import FORMATS
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import Selection
from kgharvest.contrib.knowledge_graphs.judged_kg.views import kg_download


class KGFilters(Filters):
    format = serializers.ChoiceField(list(FORMATS), help_text="File format. hf is a zip archive.")
    verdict = serializers.ChoiceField(
        Selection.values, required=False, help_text="Tuples to export. Default: all, but accepted tuples for pykeen."
    )


class JudgedKGViewSet(ReportOperations):
    @operation(
        "Download the judged KG of a report's round",
        method="get",
        parameters=[KGFilters],
        responses=files_of(form.content_type for form in FORMATS.values()),
        renderer_classes=(AnyRenderer,),
    )
    def kg(self, request: Request, pk: int) -> HttpResponse:
        """Export the tuples of the round's harvests with their current verdicts."""
        report = self.get_object()
        query = self.filtered_by(KGFilters)
        return kg_download(report.round, query["format"], query.get("verdict"))
