"""API of judge runs and their answers, which annotators cannot see."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, OpenApiTypes, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judges.files.answer_export import FORMATS
from annotation.judges.files.answer_import import import_answers
from annotation.judges.labels import label_counts, n_flipped
from annotation.judges.models import MOST_MONEY, MOST_TOKENS, JudgeAnswer, JudgeKind, JudgeRun
from annotation.judges.runs import continue_run, estimated_usage, queue_run, usage_of
from annotation.judges.specs import JudgeSpecSerializer, spec_of
from annotation.judges.views import answers_file
from annotation.models import Label
from annotation.rounds.api import RoundPartViewSet
from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin, file_operation, operation
from kgharvest.jobs import ledger
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES

SPEC = {
    "name": "llama-1",
    "kind": "chat",
    "model": "llama-3.3-70b",
    "base_url": "https://llm.example.org/v1",
    "prompt_price": 0.2,
    "completion_price": 0.6,
    "budget": 1.5,
}
CONTENT_TYPES = {name: written.media_type for name, written in FORMATS.items()}
EXAMPLE = OpenApiExample("A chat model", SPEC, request_only=True)


def address_of(run: JudgeRun) -> str:
    return reverse("annotation:api_judge_run", args=[run.pk])


class UsageSerializer(serializers.Serializer):
    """Usage of a run. cost: in the currency of the run's prices."""

    n_answers = serializers.IntegerField()
    n_prompt_tokens = serializers.IntegerField()
    n_completion_tokens = serializers.IntegerField()
    cost = serializers.FloatField()


class LabelCountsSerializer(serializers.Serializer):
    """Numbers of tuples by label. `none`: tuples without a label, because their answers tie or cannot be parsed."""

    true = serializers.IntegerField()
    false = serializers.IntegerField()
    unjudgeable = serializers.IntegerField()
    none = serializers.IntegerField(source="")

    def to_representation(self, counts: dict[str, int]) -> dict[str, int]:
        return {name: counts["" if name == "none" else name] for name in self.fields}


class JudgeRunEntrySerializer(serializers.ModelSerializer):
    """A run of an LM judge over the tuples of a round. `name` is unique in the round; `id` is also the job id."""

    round = serializers.IntegerField(source="round_id")
    project = serializers.CharField(source="project.slug")
    kind = serializers.ChoiceField(JudgeKind.choices, source="judge_kind")
    created_by = serializers.CharField(source="created_by.username", allow_null=True)
    is_unfinished = serializers.BooleanField()
    is_out_of_budget = serializers.BooleanField(help_text="If true, continue the run with a larger budget.")

    class Meta:
        model = JudgeRun
        fields = [
            *("id", "round", "project", "name", "kind", "model", "panel", "prompt_sha256", "is_out_of_budget"),
            *("created_by", *JOB_FIELDS, *JOB_TIMES),
        ]


class JudgeRunSerializer(JudgeRunEntrySerializer):
    """Details of a judge run. n_flipped: number of tuples whose labels differ between repeats."""

    spec = serializers.SerializerMethodField(help_text="JSON spec without default values.")
    used = serializers.SerializerMethodField()
    labels = serializers.SerializerMethodField()
    n_flipped = serializers.SerializerMethodField()

    class Meta(JudgeRunEntrySerializer.Meta):
        fields = [*JudgeRunEntrySerializer.Meta.fields, "spec", "used", "labels", "n_flipped"]

    def get_spec(self, run: JudgeRun) -> dict[str, Any]:
        return dict(spec_of(run))

    @extend_schema_field(UsageSerializer)
    def get_used(self, run: JudgeRun) -> dict[str, Any]:
        return UsageSerializer(usage_of(run)).data

    @extend_schema_field(LabelCountsSerializer)
    def get_labels(self, run: JudgeRun) -> dict[str, int]:
        return LabelCountsSerializer(label_counts(run)).data

    def get_n_flipped(self, run: JudgeRun) -> int:
        return n_flipped(run)


class JudgeRunFilters(Filters):
    status = serializers.ChoiceField(JudgeRun.Status.choices, required=False)
    panel = serializers.SlugField(required=False, help_text="Panel that the runs belong to.")


class AnswersInput(StrictSerializer):
    file = serializers.FileField(help_text="JSON lines of kgharvest or lm-eval, or a JSON log of inspect-ai.")
    name = serializers.SlugField(max_length=100, help_text="Run name, unique in the round.")
    model = serializers.CharField(max_length=500, required=False, help_text="Default: the LM named in the file.")
    panel = serializers.SlugField(max_length=100, required=False)


class JudgeRunLimits(StrictSerializer):
    budget = serializers.DecimalField(
        max_digits=12, decimal_places=4, min_value=0, max_value=MOST_MONEY, required=False, allow_null=True
    )
    max_tokens_total = serializers.IntegerField(
        min_value=1, max_value=MOST_TOKENS, required=False, allow_null=True, help_text="null for no limit."
    )


class RoundJudgeRunViewSet(PagedList, RoundPartViewSet):
    """Judge runs of a round, newest first."""

    serializer_class = JudgeRunSerializer
    entry_serializer_class = JudgeRunEntrySerializer
    filters = JudgeRunFilters

    def get_queryset(self) -> QuerySet:
        return self.round().judge_runs.for_list()

    @extend_schema(
        summary="Start a judge run",
        request=JudgeSpecSerializer,
        responses={202: JudgeRunSerializer},
        examples=[EXAMPLE],
    )
    def create(self, request: Request, round_id: int) -> Response:
        """A worker runs the judge. The request body is a judge spec as read by `judge_tuples` (docs/judges.md)."""
        run = queue_run(self.round(), request.data, request.user)
        return self.accepted(run, address_of(run))

    @operation(
        "Estimate a judge run",
        on_list=True,
        request=JudgeSpecSerializer,
        examples=[EXAMPLE],
        serializer_class=UsageSerializer,
    )
    def estimate(self, request: Request, round_id: int) -> Response:
        """Tokens and cost, estimated from prompt lengths and one-word answers. The judge is not called."""
        return self.answer(estimated_usage(self.round(), request.data, request.user))

    @operation(
        "Import judge answers",
        "import/",
        on_list=True,
        request={"multipart/form-data": AnswersInput},
        responses={201: JudgeRunSerializer},
        parser_classes=(MultiPartParser,),
    )
    def import_answers(self, request: Request, round_id: int) -> Response:
        """Imports all answers of the file or none of them. ImportRefused names each invalid line."""
        round, sent = self.round(), self.sent(AnswersInput)
        file = sent.pop("file")
        run = import_answers(round, sent | {"kind": "file"}, file.read(), file.name, request.user)
        return self.created(run, address_of(run))


class JudgeRunViewSet(RetrieveMixin, ApiViewSet):
    """A judge run with its progress, usage, and labels so far."""

    serializer_class = JudgeRunSerializer

    def get_queryset(self) -> QuerySet:
        return JudgeRun.objects.visible_to(self.request.user).for_list()

    @operation("Cancel a judge run")
    def cancel(self, request: Request, pk: int) -> Response:
        """Stored answers are kept, and the run can be continued."""
        return self.changed(ledger.cancel)

    @operation(
        "Continue a judge run",
        "continue/",
        request=JudgeRunLimits,
        responses={202: JudgeRunSerializer},
        examples=[OpenApiExample("With a larger budget", {"budget": 5}, request_only=True)],
    )
    def resume(self, request: Request, pk: int) -> Response:
        """Continues a run that failed, was canceled, or ran out of budget. Only tuples without an answer are judged."""
        run = continue_run(self.get_object(), self.sent(JudgeRunLimits), request.user)
        return self.accepted(run, self.address(run))

    @file_operation(
        "Download the answers of a judge run",
        "answers.<slug:file_format>",
        CONTENT_TYPES,
        responses={(200, content_type): OpenApiTypes.BINARY for content_type in CONTENT_TYPES.values()},
    )
    def answers_file(self, request: Request, pk: int, file_format: str) -> HttpResponse:
        """Formats: jsonl (JSON lines, can be imported again), inspect (inspect-ai log), lm-eval (logged samples)."""
        return answers_file(self.get_object(), file_format)


class JudgeAnswerSerializer(serializers.ModelSerializer):
    """An answer of the judge about one tuple in one repeat. label: empty if `raw` names no label."""

    tuple = serializers.IntegerField(source="knowledge_tuple_id")
    relation = serializers.CharField(source="knowledge_tuple.relation.path")
    entities = serializers.ListField(child=serializers.CharField(), source="knowledge_tuple.entities")
    label = serializers.CharField(help_text="true, false, unjudgeable, or empty.")
    cost = serializers.FloatField()

    class Meta:
        model = JudgeAnswer
        fields = [
            *("id", "tuple", "relation", "entities", "repeat", "raw", "label", "score", "model_reported"),
            *("prompt_sha256", "n_prompt_tokens", "n_completion_tokens", "cost", "seconds", "answered_at"),
        ]


class JudgeAnswerFilters(Filters):
    label = serializers.ChoiceField([*Label.choices, ("", "none")], required=False, help_text="Empty for no label.")
    tuple = IdField(source="knowledge_tuple", required=False)
    repeat = serializers.IntegerField(min_value=0, max_value=98, required=False)


class JudgeAnswerViewSet(PagedList, ApiViewSet):
    """Answers of a judge run, oldest first."""

    serializer_class = JudgeAnswerSerializer
    filters = JudgeAnswerFilters
    order = ("pk",)

    def get_queryset(self) -> QuerySet:
        run = self.row(JudgeRun.objects.visible_to(self.request.user))
        return run.answers.select_related("knowledge_tuple__relation__relation_set")
