"""A round's statements in the API, with all that was said of them, and adjudication."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Adjudication, Draw, Judgment, JudgmentTask, Label, StatementReport
from annotation.monitoring.progress import OUTCOMES
from annotation.quality.adjudication import LONGEST_REMARK, QUEUES, adjudicate, adjudication_queue
from annotation.quality.statement_list import MARKS, with_evidence
from annotation.rounds.api import RoundView
from kgharvest.access import Action
from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import ListView

# -- statements --------------------------------------------------------------------------------------------------------


class LabelGivenSerializer(serializers.ModelSerializer):
    annotator = serializers.CharField(source="annotator.code")

    class Meta:
        model = Judgment
        fields = ["annotator", "label", "is_counted", "is_excluded", "seconds", "comment", "judged_at"]


class StatementReportSerializer(serializers.ModelSerializer):
    annotator = serializers.CharField(source="annotator.code")

    class Meta:
        model = StatementReport
        fields = ["annotator", "reason", "comment", "reported_at"]


class AdjudicationSerializer(serializers.ModelSerializer):
    """What an expert says; it stands beside the verdict, never in its place. is_blind: the labels were out of sight."""

    by = serializers.CharField(source="by.username", allow_null=True)

    class Meta:
        model = Adjudication
        fields = ["client_uuid", "label", "comment", "is_blind", "by", "at"]


class TaskEntrySerializer(serializers.ModelSerializer):
    """A statement with what annotators said last, what they reported, and what an expert says."""

    relation = serializers.CharField(source="knowledge_tuple.relation.path")
    entities = serializers.ListField(child=serializers.CharField())
    outcome = serializers.SerializerMethodField()
    labels = LabelGivenSerializer(many=True, source="current_judgments")
    reports = StatementReportSerializer(many=True, source="reported")
    adjudications = AdjudicationSerializer(many=True, source="current_adjudications", help_text="One, or none.")

    class Meta:
        model = JudgmentTask
        fields = [
            *("id", "position", "statement", "relation", "entities", "knowledge_tuple", "is_gold", "gold_label"),
            *("outcome", "n_wanted", "n_judgments", "n_true", "n_false", "n_unjudgeable"),
            *("labels", "reports", "adjudications"),
        ]

    @extend_schema_field(serializers.ChoiceField(OUTCOMES))
    def get_outcome(self, task: JudgmentTask) -> str:
        return task.verdict or "incomplete"


class TaskFilters(Filters):
    """Gold is listed where `is_gold` asks for it, and only then."""

    relation = IdField(required=False, help_text="Id of a relation.")
    outcome = serializers.ChoiceField(OUTCOMES, required=False)
    disagreement = serializers.BooleanField(default=False, help_text="Only where judgments are not all alike.")
    mark = serializers.ChoiceField(list(MARKS), required=False, help_text="By annotators, or by an expert.")
    is_gold = serializers.BooleanField(default=False)

    def narrow(self, rows: QuerySet) -> QuerySet:
        wanted = self.validated_data
        rows = rows.filter(is_gold=wanted["is_gold"])
        if "relation" in wanted:
            rows = rows.filter(knowledge_tuple__relation=wanted["relation"])
        if "outcome" in wanted:
            rows = rows.filter(verdict="" if wanted["outcome"] == "incomplete" else wanted["outcome"])
        if wanted["disagreement"]:
            rows = rows.with_disagreement()
        if "mark" in wanted:
            marks = MARKS[wanted["mark"]](self.context["view"].round())
            rows = rows.filter(Exists(marks.filter(task=OuterRef("pk"))))
        return rows


class TaskList(RoundView, ListView):
    """The statements of a round, in its order."""

    serializer_class = TaskEntrySerializer
    filters = TaskFilters
    order = ("position",)

    def get_queryset(self) -> QuerySet:
        return with_evidence(self.round().tasks.all())


class TaskDrawSerializer(serializers.ModelSerializer):
    """Of which cell's sample the statement is. model, rank, score: null where judgments were imported without them."""

    relation = serializers.CharField(source="stratum.relation.path")
    model = serializers.CharField(source="stratum.language_model.name", allow_null=True)
    setting = serializers.CharField(source="stratum.setting", allow_blank=True)
    job = serializers.IntegerField(source="stratum.job_id", allow_null=True)
    rank = serializers.IntegerField(source="harvested_tuple.rank", allow_null=True)
    score = serializers.FloatField(
        source="harvested_tuple.own_score", allow_null=True, help_text="Null where the harvest has no scores."
    )

    class Meta:
        model = Draw
        fields = ["relation", "model", "setting", "job", "rank", "score", "inclusion_probability"]


class TaskDetailSerializer(TaskEntrySerializer):
    draws = TaskDrawSerializer(many=True, source="all_draws")
    superseded = LabelGivenSerializer(many=True, help_text="What annotators said before they changed their mind.")

    class Meta(TaskEntrySerializer.Meta):
        fields = [*TaskEntrySerializer.Meta.fields, "draws", "superseded"]


class TaskDetail(RoundView):
    serializer_class = TaskDetailSerializer

    @extend_schema(summary="A statement")
    def get(self, request: Request, round_id: int, pk: int) -> Response:
        task = get_object_or_404(with_evidence(self.round().tasks.all()), pk=pk)
        draws = task.draws.select_related("stratum__relation__relation_set", "stratum__language_model")
        task.all_draws = draws.select_related("harvested_tuple__job").order_by("stratum")
        task.superseded = task.judgments.exclude(superseded_by=None).select_related("annotator")
        return self.answer(task)


# -- adjudication ------------------------------------------------------------------------------------------------------


class QueuedTaskSerializer(serializers.ModelSerializer):
    """A statement that waits for an expert, without what annotators said."""

    relation = serializers.CharField(source="knowledge_tuple.relation.path")
    entities = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = JudgmentTask
        fields = ["id", "position", "statement", "relation", "entities"]


class QueueFilters(Filters):
    queue = serializers.ChoiceField(
        list(QUEUES), default="undecided", help_text="Without a majority, or all on which annotators disagree."
    )

    def narrow(self, rows: QuerySet) -> QuerySet:
        return rows


class AdjudicationQueue(RoundView, ListView):
    """The statements of a round that wait for an expert, in its order."""

    serializer_class = QueuedTaskSerializer
    filters = QueueFilters
    order = ("position",)

    def get_queryset(self) -> QuerySet:
        round = self.round(Action.ADJUDICATE)
        queue = self.request.query_params.get("queue", "undecided")
        return adjudication_queue(round, queue).select_related("knowledge_tuple__relation__relation_set")


class AdjudicationInput(StrictSerializer):
    label = serializers.ChoiceField(Label.choices)
    client_uuid = serializers.UUIDField(help_text="Made with the answer; sent again it counts once.")
    comment = serializers.CharField(max_length=LONGEST_REMARK, allow_blank=True, default="")
    is_blind = serializers.BooleanField(default=True, help_text="Whether the annotators' labels were out of sight.")


class TaskAdjudications(RoundView):
    serializer_class = AdjudicationSerializer

    @extend_schema(
        summary="Adjudicate a statement",
        request=AdjudicationInput,
        responses={201: AdjudicationSerializer},
        examples=[
            OpenApiExample(
                "A label",
                {"label": "false", "client_uuid": "7f3c1a52-6d0e-4a9b-9c55-0d6f2d1f8e21", "comment": "Outdated."},
                request_only=True,
            )
        ],
    )
    def post(self, request: Request, round_id: int, pk: int) -> Response:
        """A later adjudication takes the place of an earlier one, whoever gave it."""

        def store() -> Response:
            task = get_object_or_404(self.round(Action.ADJUDICATE).tasks.without_gold(), pk=pk)
            return self.created(adjudicate(task, by=request.user, **self.sent(AdjudicationInput)))

        return self.once(store)
