"""API to create, list, and download reports, in every format that pages offer."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Draw, Round
from annotation.rounds.api import ArchiveMixin
from evaluation.models import Report
from evaluation.rendering.figures.drawing import FIGURE_FORMATS, THEMES
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import report_tables
from evaluation.reports.drawn_tuples import CUTS, INCOMPLETE, OUTCOMES, in_part, with_evidence, with_verdict
from evaluation.reports.files import FILES, content_type_of
from evaluation.reports.forms import LEAST_POINTS, MOST_POINTS, report_options
from evaluation.reports.services import prepare_report, store_report
from evaluation.reports.views import figure_download, report_download, table_download
from kgharvest.access import Action, visible_or_404
from kgharvest.api.input import ArchiveFilters, Filters, FiniteField, IdField, StrictSerializer
from kgharvest.api.views import ApiViewSet, PagedList, file_operation
from kgharvest.statistics.paired_tests import MARGIN
from kgharvest.tables.formats import FORMATS


class HeadlineSerializer(serializers.Serializer):
    n_tasks = serializers.IntegerField()
    n_complete = serializers.IntegerField()
    n_judgments = serializers.IntegerField()
    alpha = serializers.FloatField(allow_null=True)


class ReportEntrySerializer(serializers.ModelSerializer):
    """A report in a list. round: id of the round. round_name: name of the round."""

    round_name = serializers.CharField(source="round.name")
    project = serializers.CharField(source="round.project.slug")
    headline = HeadlineSerializer()
    created_by = serializers.CharField(source="created_by.username", allow_null=True)
    archived = serializers.BooleanField(source="is_archived", help_text="True if the report or its round is archived.")

    class Meta:
        model = Report
        fields = [
            *("id", "round", "round_name", "project", "headline", "code_version", "created_by", "created_at"),
            "archived",
        ]


class ReportFileSerializer(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField()
    url = serializers.URLField()


class ReportDetailSerializer(ReportEntrySerializer):
    """A report with its whole document (docs/report-json.md) and the URLs of its files."""

    document = serializers.DictField(help_text="Frozen document; it never changes.")
    files = serializers.SerializerMethodField()
    tables = serializers.SerializerMethodField()
    figures = serializers.SerializerMethodField()

    class Meta(ReportEntrySerializer.Meta):
        fields = [*ReportEntrySerializer.Meta.fields, "document", "files", "tables", "figures"]

    @extend_schema_field(ReportFileSerializer(many=True))
    def get_files(self, report: Report) -> list[dict[str, str]]:
        return [self._file(report, "report_file", name, title, name) for name, title in FILES.items()]

    @extend_schema_field(ReportFileSerializer(many=True))
    def get_tables(self, report: Report) -> list[dict[str, str]]:
        tables = report_tables(report.document)
        return [self._file(report, "report_table", table.name, table.caption, table.name) for table in tables]

    @extend_schema_field(ReportFileSerializer(many=True))
    def get_figures(self, report: Report) -> list[dict[str, str]]:
        figures = figures_of(report.document)
        return [
            self._file(report, "report_figure", figure.name, figure.title, figure.name, "svg") for figure in figures
        ]

    def _file(self, report: Report, view: str, name: str, title: str, *parts: str) -> dict[str, str]:
        address = reverse(f"evaluation:api_{view}", args=[report.pk, *parts])
        return {"name": name, "title": title, "url": self.context["request"].build_absolute_uri(address)}


class ReportFilters(ArchiveFilters):
    project = serializers.SlugField(source="round__project__slug", required=False, help_text="Slug of a project.")
    round = IdField(required=False, help_text="Id of a round.")


class ReportInput(StrictSerializer):
    round = IdField()
    equivalence_margin = FiniteField(
        min_value=LEAST_POINTS,
        max_value=MOST_POINTS,
        default=100 * MARGIN,
        help_text="Largest difference in percentage points at which two sides count as equivalent.",
    )
    judge = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=100,
        help_text="Name of a judge run of the round for judge-assisted estimates. Default: none.",
    )


class FigureQuery(Filters):
    theme = serializers.ChoiceField(list(THEMES), required=False, help_text="Default: light.")
    relation = serializers.CharField(
        required=False, max_length=500, help_text="Relation that a figure of accuracy by score shows."
    )


class ReportOperations(ApiViewSet):
    """Operations on a report, with deferred documents."""

    def get_queryset(self) -> QuerySet:
        return Report.objects.visible_to(self.request.user).for_list()


class ReportViewSet(ArchiveMixin, PagedList, ReportOperations):
    """The reports of your projects, newest first."""

    serializer_class = ReportDetailSerializer
    entry_serializer_class = ReportEntrySerializer
    filters = ReportFilters
    once = False  # `create` computes the report first and then opens a transaction itself

    @extend_schema(
        summary="Create a report",
        request=ReportInput,
        examples=[OpenApiExample("On a round", {"round": 7, "equivalence_margin": 5}, request_only=True)],
    )
    def create(self, request: Request) -> Response:
        """Create a report on the current state of the round. Large rounds take several seconds."""

        def compute() -> Report:
            sent = self.sent(ReportInput)
            rounds = Round.objects.select_related("project")
            judged = visible_or_404(request.user, rounds, Action.WORK, pk=sent["round"])
            return prepare_report(judged, request.user, **report_options(sent, judged))

        def store(computed: Report) -> Response:
            report = store_report(computed, request.user)
            return self.created(report, self.address(report))

        return self.prepared_once(compute, store)

    @extend_schema(summary="Get a report")
    def retrieve(self, request: Request, pk: int) -> Response:
        return self.answer(self.get_object())

    @file_operation(
        "Download a report",
        "report.<slug:file_format>",
        {name: content_type_of(name) for name in FILES},
        parameters=[OpenApiParameter("table", str, many=True, description="Tables in a LaTeX file. Default: all.")],
        refuses=True,
    )
    def file(self, request: Request, pk: int, file_format: str) -> HttpResponse:
        return report_download(self.get_object(), file_format, request.query_params.getlist("table"))

    @file_operation("Download a table of a report as CSV", "tables/<slug:name>.csv", "text/csv")
    def table(self, request: Request, pk: int, name: str) -> HttpResponse:
        return table_download(self.get_object(), name)

    @file_operation(
        "Download a figure of a report",
        "figures/<slug:name>.<slug:file_format>",
        {name: FORMATS[name].content_type for name in FIGURE_FORMATS},
        parameters=[FigureQuery],
    )
    def figure(self, request: Request, pk: int, name: str, file_format: str) -> HttpResponse:
        query = self.filtered_by(FigureQuery)
        return figure_download(self.get_object(), name, file_format, query.get("theme"), query.get("relation"))


class ReportPartViewSet(ApiViewSet):
    """Operations on a part of a report. Access depends on the report's project."""

    report_kwarg = "report_id"

    def report(self) -> Report:
        """Return the report in the URL, with deferred documents. Raises Http404 or NotAllowed."""
        reports = Report.objects.visible_to(self.request.user).for_list()
        return self.permitted(get_object_or_404(reports, pk=self.kwargs[self.report_kwarg]))

    def get_object(self) -> Any:
        return self.named()


class EvidenceSerializer(serializers.Serializer):
    annotator = serializers.CharField(source="annotator.code")
    label = serializers.CharField()


class ReportTupleSerializer(serializers.ModelSerializer):
    """A statement drawn for a cell, with its current verdict and counted judgments."""

    task = serializers.IntegerField(source="task_id")
    statement = serializers.CharField(source="task.statement")
    outcome = serializers.SerializerMethodField()
    relation = serializers.CharField(source="stratum.relation.path")
    model = serializers.CharField(source="stratum.language_model.name", allow_null=True)
    setting = serializers.CharField(source="stratum.setting", allow_blank=True)
    rank = serializers.IntegerField(source="harvested_tuple.rank", allow_null=True)
    score = serializers.SerializerMethodField(help_text="Null if the harvest has no scores.")
    judgments = EvidenceSerializer(many=True, source="task.evidence")

    class Meta:
        model = Draw
        fields = [
            *("id", "task", "statement", "outcome", "relation", "model", "setting", "rank", "score"),
            *("inclusion_probability", "judgments"),
        ]

    def get_outcome(self, draw: Draw) -> str:
        return draw.task.verdict or INCOMPLETE

    def get_score(self, draw: Draw) -> float | None:
        harvested = draw.harvested_tuple
        return harvested.score if harvested and draw.stratum.job.is_scored else None


class TupleFilters(Filters):
    relation = serializers.CharField(required=False, max_length=500, help_text="Relation name, or set/name.")
    model = serializers.CharField(required=False, max_length=500)
    setting = serializers.CharField(required=False, max_length=30)
    outcome = serializers.ChoiceField(OUTCOMES, required=False)
    best = FiniteField(
        required=False,
        min_value=0,
        max_value=1,
        help_text="Share of top-ranked tuples of each cell. For example, 0.3 selects ranks 1 to 30 of 100.",
    )
    cut = serializers.ChoiceField(CUTS, required=False, help_text="Cut applied to each harvest.")
    score_from = FiniteField(required=False)
    score_to = FiniteField(required=False)

    def narrow(self, rows: QuerySet) -> QuerySet:
        part = self.validated_data
        rows = rows.filter(in_part(self.context["view"].report().round, part))
        return with_verdict(rows, part.get("outcome", ""))


class ReportTupleViewSet(PagedList, ReportPartViewSet):
    """The statements of a report's cells, narrowed by filters."""

    report_kwarg = "pk"

    serializer_class = ReportTupleSerializer
    filters = TupleFilters

    def get_queryset(self) -> QuerySet:
        draws = Draw.objects.filter(stratum__round=self.report().round_id)
        return with_evidence(draws).select_related("stratum__relation__relation_set")
