"""API of score evaluations."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judges.models import JudgeRun
from evaluation.models import ScoreEvaluation
from evaluation.rendering.figures.drawing import FIGURE_FORMATS
from evaluation.scores.score_jobs import (
    MORE_SCORES,
    STORED_SETTINGS,
    TRAIN_HELP,
    ScoreRequest,
    queue_score_job,
    score_request,
)
from evaluation.scores.views import score_download
from kgharvest.api.input import PlacementInput, VisibleField
from kgharvest.api.views import ApiViewSet, JsonParser, PagedList, RetrieveMixin, file_operation, operation
from kgharvest.engine.settings import PROMPT_SETTINGS, WITHOUT_LEARNING
from kgharvest.jobs import ledger
from kgharvest.jobs.api import StatusFilters
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES, Job
from kgharvest.models import LanguageModel
from kgharvest.relations.api import check_file_size
from kgharvest.tables.formats import FORMATS, NDJSON

FILES = {name: FORMATS[name].content_type for name in ("json", "jsonl", *FIGURE_FORMATS)} | {"jsonl": NDJSON}


class ScoreEvaluationEntrySerializer(serializers.ModelSerializer):
    """A score evaluation and its progress."""

    model = serializers.CharField(source="language_model.name")
    project = serializers.CharField(source="project.slug", allow_null=True)
    is_unfinished = serializers.BooleanField()

    class Meta:
        model = ScoreEvaluation
        fields = ["id", "model", "project", *JOB_FIELDS, *JOB_TIMES]


class ScoreEvaluationSerializer(ScoreEvaluationEntrySerializer):
    document = serializers.DictField(help_text="Empty until the evaluation has succeeded (docs/report-json.md).")

    class Meta(ScoreEvaluationEntrySerializer.Meta):
        fields = [*ScoreEvaluationEntrySerializer.Meta.fields, "document"]


class ScoreInput(PlacementInput):
    model = VisibleField(LanguageModel.objects.loadable(), source="language_model", help_text="LM id.")
    project = serializers.SlugField(required=False, help_text="Required if you work in several projects.")
    settings = serializers.MultipleChoiceField(
        choices=list(PROMPT_SETTINGS),
        default=list(WITHOUT_LEARNING),
        help_text="Settings whose prompts are newly created from the seed tuples.",
    )
    harvested = serializers.MultipleChoiceField(
        choices=list(STORED_SETTINGS), default=[], help_text="Settings with weighted prompts from finished harvests."
    )
    more = serializers.MultipleChoiceField(choices=list(MORE_SCORES.items()), default=[], help_text="Baseline scores.")
    systems = serializers.FileField(
        required=False,
        validators=[check_file_size],
        help_text="External scores: JSON lines, CSV, or TSV with relation, entities (or head and tail), score, and "
        "optionally system.",
    )
    judge_runs = serializers.ListField(
        child=VisibleField(JudgeRun.objects.filter(status=Job.Status.SUCCEEDED)),
        default=list,
        max_length=20,
        help_text="Ids of succeeded judge runs.",
    )
    facts = serializers.FileField(
        required=False,
        validators=[check_file_size],
        help_text='JSON lines {"relation": "set/name", "entities": [...]}, sent as multipart/form-data. Default: the '
        "facts of the embedded LMs' world.",
    )
    train = serializers.FileField(required=False, validators=[check_file_size], help_text=TRAIN_HELP)

    def request(self, by) -> ScoreRequest:
        """Return the validated request. Raises ImportRefused for invalid facts or scores."""
        sent = self.validated_data
        options = {name: sent.get(name) for name in ("facts", "systems", "train", "device", "dtype")}
        choices = chosen_scores(sent)
        return score_request(sent["language_model"], judge_runs=tuple(sent["judge_runs"]), by=by, **choices, **options)


def chosen_scores(sent: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return settings, harvested, and more of validated input in the order of evaluations."""
    orders = {"settings": PROMPT_SETTINGS, "harvested": STORED_SETTINGS, "more": MORE_SCORES}
    return {name: [choice for choice in order if choice in sent[name]] for name, order in orders.items()}


class ScoreEvaluationViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Score evaluations, newest first, with their status and, after success, their document."""

    serializer_class = ScoreEvaluationSerializer
    entry_serializer_class = ScoreEvaluationEntrySerializer
    filters = StatusFilters
    parser_classes = (JsonParser, MultiPartParser)

    def get_queryset(self) -> QuerySet:
        evaluations = ScoreEvaluation.objects.visible_to(self.request.user).select_related("language_model", "project")
        return evaluations.defer("document", "payload", "samples") if self.action == "list" else evaluations

    @extend_schema(
        summary="Evaluate the scores of an LM",
        request={"application/json": ScoreInput, "multipart/form-data": ScoreInput},
        responses={202: ScoreEvaluationSerializer},
        examples=[OpenApiExample("Two settings", {"model": 1, "settings": ["manual", "multi"]}, request_only=True)],
    )
    def create(self, request: Request) -> Response:
        """A worker computes the evaluation. An identical unfinished evaluation is not started twice."""
        sent = ScoreInput(data=request.data, context={"request": request})
        sent.is_valid(raise_exception=True)
        evaluation = queue_score_job(sent.request(request.user), request.user, sent.validated_data.get("project"))
        return self.accepted(evaluation, self.address(evaluation))

    @operation("Cancel an evaluation")
    def cancel(self, request: Request, pk: int) -> Response:
        return self.changed(ledger.cancel)

    @file_operation("Download an evaluation", "scores.<slug:file_format>", FILES)
    def file(self, request: Request, pk: int, file_format: str) -> HttpResponse:
        """The files are available after the evaluation has succeeded."""
        return score_download(self.row(self.get_queryset().exclude(document={})), file_format)
