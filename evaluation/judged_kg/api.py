"""API of the judged KG: download it as a file."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from evaluation.judged_kg.formats import FORMATS
from evaluation.judged_kg.rows import Kept
from evaluation.judged_kg.views import kg_download
from evaluation.reports.api import ReportView
from kgharvest.api.input import Filters
from kgharvest.api.views import AnyRenderer, files_of


class KGFilters(Filters):
    format = serializers.ChoiceField(list(FORMATS), help_text="hf is a zip archive.")
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
