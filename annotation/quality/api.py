"""Quality API of a round: progress, annotators, exclusion, limits, events, statements, and adjudication."""

from collections.abc import Sequence
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.invites.erasure import erase_annotator
from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import (
    Adjudication,
    Annotator,
    Draw,
    Exclusion,
    Judgment,
    JudgmentTask,
    Label,
    Limits,
    Reservation,
    StatementReport,
)
from annotation.monitoring.cells import round_cells
from annotation.monitoring.progress import OUTCOMES, progress
from annotation.quality.adjudication import LONGEST_REMARK, QUEUES, adjudicate, adjudication_queue
from annotation.quality.annotator_statistics import annotator_statistics, statistics_of
from annotation.quality.exclusion import exclude_annotator, exclusion_effect, reinstate_annotator
from annotation.quality.limits import pause_annotator, resume_annotator, set_limits
from annotation.quality.statement_list import MARKS, with_evidence
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.api import RoundOperations, RoundPartViewSet
from annotation.rounds.serializers import LimitsSerializer
from kgharvest.access import Action
from kgharvest.api.input import Filters, IdField, StrictSerializer
from kgharvest.api.views import PagedList, RetrieveMixin, operation
from kgharvest.events.models import Event
from kgharvest.events.types import history_sentences

# Progress


class OutcomesSerializer(serializers.Serializer):
    accepted = serializers.IntegerField()
    rejected = serializers.IntegerField()
    undecided = serializers.IntegerField()
    incomplete = serializers.IntegerField()


class CellProgressSerializer(OutcomesSerializer):
    """Progress of one cell. model, setting: empty if the imported judgments do not contain them."""

    relation = serializers.CharField()
    model = serializers.CharField(allow_blank=True)
    setting = serializers.CharField(allow_blank=True)
    job = serializers.IntegerField(allow_null=True)
    cut = serializers.CharField(allow_blank=True)
    n_strata = serializers.IntegerField()
    drawn = serializers.IntegerField()
    population = serializers.IntegerField(help_text="Number of tuples; 0 if unknown.")
    accuracy = serializers.FloatField(allow_null=True, help_text="Computed as in reports. If null, see `reason`.")
    low = serializers.FloatField(allow_null=True, help_text="Lower end of the 95 % interval.")
    high = serializers.FloatField(allow_null=True, help_text="Upper end of the 95 % interval.")
    reason = serializers.CharField(allow_null=True)


class ProgressSerializer(OutcomesSerializer):
    """Progress of a round. Gold statements are excluded from all counts."""

    n_tasks = serializers.IntegerField()
    complete = serializers.IntegerField()
    assigned = serializers.IntegerField(help_text="Incomplete statements assigned to annotators.")
    open = serializers.IntegerField(help_text="Incomplete statements not assigned to any annotator.")
    n_judgments = serializers.IntegerField(help_text="Counted judgments.")
    n_wanted = serializers.IntegerField()
    n_left = serializers.IntegerField()
    n_commented = serializers.IntegerField()
    judgments_per_hour = serializers.FloatField(allow_null=True)
    hours_left = serializers.FloatField(allow_null=True)
    percent_agreement = serializers.FloatField(allow_null=True)
    alpha = serializers.FloatField(allow_null=True, help_text="Krippendorff's nominal alpha. If null, see `reason`.")
    reason = serializers.CharField(allow_null=True)
    n_units = serializers.IntegerField(help_text="Statements with at least two judgments.")
    counted_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the cached counts of a large round; null if the counts are current."
    )
    cells = CellProgressSerializer(many=True)


# Annotator profiles


class GoldAccuracySerializer(serializers.Serializer):
    """Gold accuracy with its 95 % interval; null without gold judgments."""

    value = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)


class LabelSharesSerializer(serializers.Serializer):
    true = serializers.FloatField()
    false = serializers.FloatField()
    unjudgeable = serializers.FloatField()


class AnnotatorSerializer(serializers.Serializer):
    """Annotator statistics as on the Annotators page. Undefined values are null."""

    code = serializers.CharField()
    who = serializers.CharField(allow_blank=True, help_text="Account, guest name, or start of the invite token.")
    status = serializers.ChoiceField(Annotator.Status.choices)
    n = serializers.IntegerField(help_text="Number of judgments, including gold.")
    n_gold = serializers.IntegerField()
    n_gold_right = serializers.IntegerField()
    gold = GoldAccuracySerializer()
    agreement = serializers.FloatField(
        allow_null=True, help_text="Share of equal labels among all pairs with other annotators' judgments."
    )
    n_pairs = serializers.IntegerField()
    median_seconds = serializers.FloatField(allow_null=True)
    too_fast = serializers.FloatField(allow_null=True, help_text="Share of judgments in less than one second.")
    shares = LabelSharesSerializer()
    longest_run = serializers.IntegerField(help_text="Longest run of equal labels.")
    expected_run = serializers.FloatField(help_text="Longest run expected by chance.")
    flags = serializers.ListField(child=serializers.CharField(), help_text="Reasons to review the annotator.")
    n_comments = serializers.IntegerField()
    n_reports = serializers.IntegerField()
    n_uncounted = serializers.IntegerField()
    training = serializers.ListField(
        child=serializers.IntegerField(),
        allow_null=True,
        help_text="Number of correct answers and of all answers; null without training.",
    )


class AnnotatorFilters(Filters):
    status = serializers.ChoiceField(Annotator.Status.choices, required=False)


class ExclusionSerializer(serializers.ModelSerializer):
    """Decision to exclude an annotator's judgments, with the reinstatement, if any."""

    excluded_by = serializers.CharField(source="excluded_by.username", allow_null=True)
    reinstated_by = serializers.CharField(source="reinstated_by.username", allow_null=True)

    class Meta:
        model = Exclusion
        fields = [
            *("reason", "excluded_by", "excluded_at", "n_judgments"),
            *("reinstated_by", "reinstated_at", "n_counted_again", "n_left_out"),
        ]


# Exclusion


class OutcomeChangeSerializer(serializers.Serializer):
    before = serializers.ChoiceField(OUTCOMES)
    after = serializers.ChoiceField(OUTCOMES)
    n = serializers.IntegerField(help_text="Number of statements.")


class CellAccuracySerializer(serializers.Serializer):
    n = serializers.IntegerField()
    n_incomplete = serializers.IntegerField()
    accuracy = serializers.FloatField(allow_null=True)
    reason = serializers.CharField(allow_null=True)


class CellEffectSerializer(serializers.Serializer):
    relation = serializers.CharField()
    model = serializers.CharField(allow_blank=True)
    setting = serializers.CharField(allow_blank=True)
    before = CellAccuracySerializer()
    after = CellAccuracySerializer()


class AgreementSerializer(serializers.Serializer):
    percent_agreement = serializers.FloatField(allow_null=True)
    alpha = serializers.FloatField(allow_null=True)
    reason = serializers.CharField(allow_null=True)
    n_units = serializers.IntegerField()


class AgreementEffectSerializer(serializers.Serializer):
    before = AgreementSerializer()
    after = AgreementSerializer()


class ExclusionEffectSerializer(serializers.Serializer):
    """Effect of excluding the annotator now."""

    n_judgments = serializers.IntegerField(help_text="Number of judgments to exclude.")
    changes = OutcomeChangeSerializer(many=True)
    cells = CellEffectSerializer(many=True)
    agreement = AgreementEffectSerializer()


class ExclusionInput(StrictSerializer):
    reason = serializers.CharField(max_length=1000, help_text="Stored with the decision; not shown to the annotator.")


class AnnotatorDetailSerializer(AnnotatorSerializer):
    exclusions = ExclusionSerializer(many=True)

    def to_representation(self, annotator: Annotator) -> dict[str, Any]:
        exclusions = annotator.exclusions.select_related("excluded_by", "reinstated_by")
        profile = statistics_of(annotator, timezone.now()) | {"exclusions": exclusions}
        return super().to_representation(profile)


class AnnotatorViewSet(PagedList, RetrieveMixin, RoundPartViewSet):
    """Annotators of a round, sorted by code."""

    serializer_class = AnnotatorDetailSerializer
    entry_serializer_class = AnnotatorSerializer
    filters = AnnotatorFilters
    order = ("code",)
    lookup_field = "code"
    lookup_value_converter = "slug"

    def get_queryset(self) -> QuerySet:
        return self.round().annotators.select_related("round__project", "user", "invite")

    def paginate_queryset(self, queryset: QuerySet) -> Sequence[dict[str, Any]]:
        """Return the statistics of the annotators on a page.

        In a large round, the statistics may be a few minutes old.
        """
        now = timezone.now()
        statistics = {row["pk"]: row for row in annotator_statistics(self.round(), now).content}
        page = super().paginate_queryset(queryset)
        return [statistics.get(annotator.pk) or statistics_of(annotator, now) for annotator in page]

    @operation("Pause an annotator")
    def pause(self, request: Request, round_id: int, code: str) -> Response:
        """No further statements are assigned. Answers to assigned statements are still accepted."""
        return self.changed(pause_annotator)

    @operation("Resume a paused annotator")
    def resume(self, request: Request, round_id: int, code: str) -> Response:
        return self.changed(resume_annotator)

    @operation("Erase an annotator's identity", access=Action.MANAGE)
    def erase(self, request: Request, round_id: int, code: str) -> Response:
        """Erases the account link, name, and invite, but keeps the code and the judgments.

        Requires the owner role. This cannot be undone.
        """
        return self.changed(erase_annotator)

    @operation("Withdraw an annotator on request")
    def withdraw(self, request: Request, round_id: int, code: str) -> Response:
        """Erases the annotator's identity and keeps or removes the judgments, as stated in the round's consent."""
        return self.changed(withdraw_annotator)

    @operation(
        "Effect of excluding an annotator",
        method="get",
        responses=ExclusionEffectSerializer,
        access=Action.WORK,
        serializer_class=ExclusionSerializer,
    )
    def exclusion(self, request: Request, round_id: int, code: str) -> Response:
        return Response(ExclusionEffectSerializer(exclusion_effect(self.get_object())).data)

    @extend_schema(
        summary="Exclude an annotator",
        request=ExclusionInput,
        examples=[OpenApiExample("A reason", {"reason": "Answered without reading."}, request_only=True)],
    )
    @exclusion.mapping.post
    def exclude(self, request: Request, round_id: int, code: str) -> Response:
        """The judgments no longer count, and other annotators judge the statements. This can be undone."""
        annotator = self.get_object()
        reason = self.sent(ExclusionInput)["reason"]
        return self.answer(exclude_annotator(annotator, reason, by=request.user, effect=exclusion_effect(annotator)))

    @extend_schema(summary="Reinstate an annotator", responses={200: ExclusionSerializer})
    @exclusion.mapping.delete
    def reinstate(self, request: Request, round_id: int, code: str) -> Response:
        """The judgments count again unless another annotator's judgment replaced them."""
        exclusion = reinstate_annotator(self.get_object(), by=request.user)
        exclusion.refresh_from_db()
        return self.answer(exclusion)


# Limits and events


class RoundQualityViewSet(RoundOperations):
    @operation("Progress of a round", method="get", serializer_class=ProgressSerializer)
    def progress(self, request: Request, round_id: int) -> Response:
        round, now = self.round(), timezone.now()
        return self.answer(progress(round, now) | {"cells": round_cells(round, now).content})

    @operation("Limits of a round", method="get", serializer_class=LimitsSerializer)
    def limits(self, request: Request, round_id: int) -> Response:
        """Annotators who exceed a limit are paused. Null means no limit."""
        return self.answer(Limits.objects.filter(round=self.round()).first() or Limits())

    @extend_schema(summary="Set the limits of a round", request=LimitsSerializer)
    @limits.mapping.put
    def set_limits(self, request: Request, round_id: int) -> Response:
        """Omitted limits are reset to their defaults. The limits apply from the next check of each annotator."""
        round = self.round()
        return self.answer(set_limits(round, by=request.user, **self.sent(LimitsSerializer)))


class EventSerializer(serializers.ModelSerializer):
    """Event of a round. by: null if the system or the operator caused the event."""

    kind = serializers.CharField(max_length=30)
    by = serializers.CharField(source="by.username", allow_null=True)
    annotator = serializers.CharField(allow_null=True)
    details = serializers.DictField(help_text="Values that appear in `sentence`. The keys depend on `kind`.")
    sentence = serializers.CharField(source="history_sentence")

    class Meta:
        model = Event
        fields = ["id", "at", "kind", "by", "annotator", "details", "sentence"]


class EventFilters(Filters):
    kind = serializers.ChoiceField(list(history_sentences()), required=False)
    annotator = serializers.SlugField(required=False)


class EventViewSet(PagedList, RoundPartViewSet):
    """Events of a round, newest first."""

    serializer_class = EventSerializer
    filters = EventFilters

    def get_queryset(self) -> QuerySet:
        return self.round().events


# Statements


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
    """Label given by an expert.

    The label does not change the verdict. is_blind: true if annotators' labels were hidden.
    """

    by = serializers.CharField(source="by.username", allow_null=True)

    class Meta:
        model = Adjudication
        fields = ["client_uuid", "label", "comment", "is_blind", "by", "at"]


class TaskEntrySerializer(serializers.ModelSerializer):
    """Statement with its current judgments, reports, and adjudication."""

    relation = serializers.CharField(source="knowledge_tuple.relation.path")
    entities = serializers.ListField(child=serializers.CharField())
    outcome = serializers.SerializerMethodField()
    labels = LabelGivenSerializer(many=True, source="current_judgments")
    reports = StatementReportSerializer(many=True, source="reported")
    adjudications = AdjudicationSerializer(many=True, source="current_adjudications", help_text="At most one.")

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
    relation = IdField(required=False, help_text="Id of a relation.")
    outcome = serializers.ChoiceField(OUTCOMES, required=False)
    disagreement = serializers.BooleanField(default=False, help_text="True: only statements whose labels differ.")
    mark = serializers.ChoiceField(list(MARKS), required=False, help_text="Mark set by annotators or an expert.")
    is_gold = serializers.BooleanField(default=False, help_text="True: only gold statements. False: all others.")

    def narrow(self, rows: QuerySet) -> QuerySet:
        filters = self.validated_data
        rows = rows.filter(is_gold=filters["is_gold"])
        if "relation" in filters:
            rows = rows.filter(knowledge_tuple__relation=filters["relation"])
        if "outcome" in filters:
            rows = rows.filter(verdict="" if filters["outcome"] == "incomplete" else filters["outcome"])
        if filters["disagreement"]:
            rows = rows.with_disagreement()
        if "mark" in filters:
            marks = MARKS[filters["mark"]](self.context["view"].round())
            rows = rows.filter(Exists(marks.filter(task=OuterRef("pk"))))
        return rows


class TaskDrawSerializer(serializers.ModelSerializer):
    """Cell for which the statement was drawn. model, rank, score: null if the imported judgments lack them."""

    relation = serializers.CharField(source="stratum.relation.path")
    model = serializers.CharField(source="stratum.language_model.name", allow_null=True)
    setting = serializers.CharField(source="stratum.setting", allow_blank=True)
    job = serializers.IntegerField(source="stratum.job_id", allow_null=True)
    rank = serializers.IntegerField(source="harvested_tuple.rank", allow_null=True)
    score = serializers.FloatField(
        source="harvested_tuple.own_score", allow_null=True, help_text="Null if the harvest has no scores."
    )

    class Meta:
        model = Draw
        fields = ["relation", "model", "setting", "job", "rank", "score", "inclusion_probability"]


class TaskDetailSerializer(TaskEntrySerializer):
    draws = TaskDrawSerializer(many=True, source="all_draws")
    superseded = LabelGivenSerializer(many=True, help_text="Earlier judgments that annotators changed.")

    class Meta(TaskEntrySerializer.Meta):
        fields = [*TaskEntrySerializer.Meta.fields, "draws", "superseded"]


# Adjudication


class QueuedTaskSerializer(serializers.ModelSerializer):
    """Statement to adjudicate, without its judgments."""

    relation = serializers.CharField(source="knowledge_tuple.relation.path")
    entities = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = JudgmentTask
        fields = ["id", "position", "statement", "relation", "entities"]


class QueueFilters(Filters):
    queue = serializers.ChoiceField(
        list(QUEUES), default="undecided", help_text="Statements without a majority, or statements with disagreement."
    )

    def narrow(self, rows: QuerySet) -> QuerySet:
        return rows


class AdjudicationInput(StrictSerializer):
    label = serializers.ChoiceField(Label.choices)
    client_uuid = serializers.UUIDField(help_text="Generated by the client. Each UUID is stored once.")
    comment = serializers.CharField(max_length=LONGEST_REMARK, allow_blank=True, default="")
    is_blind = serializers.BooleanField(default=True, help_text="True if annotators' labels were hidden.")


class TaskViewSet(PagedList, RoundPartViewSet):
    """Statements of a round, in the round's order."""

    serializer_class = TaskDetailSerializer
    entry_serializer_class = TaskEntrySerializer
    filters = TaskFilters
    order = ("position",)

    def get_queryset(self) -> QuerySet:
        return with_evidence(self.round().tasks.all())

    @extend_schema(summary="A statement")
    def retrieve(self, request: Request, round_id: int, pk: int) -> Response:
        task = self.get_object()
        draws = task.draws.select_related("stratum__relation__relation_set", "stratum__language_model")
        task.all_draws = draws.select_related("harvested_tuple__job").order_by("stratum")
        task.superseded = task.judgments.exclude(superseded_by=None).select_related("annotator")
        return self.answer(task)

    @operation(
        "Adjudicate a statement",
        request=AdjudicationInput,
        responses={201: AdjudicationSerializer},
        examples=[
            OpenApiExample(
                "A label",
                {"label": "false", "client_uuid": "7f3c1a52-6d0e-4a9b-9c55-0d6f2d1f8e21", "comment": "Outdated."},
                request_only=True,
            )
        ],
        access=Action.ADJUDICATE,
        serializer_class=AdjudicationSerializer,
    )
    def adjudications(self, request: Request, round_id: int, pk: int) -> Response:
        """The new adjudication supersedes all earlier adjudications of the statement, even those by other experts."""
        task = get_object_or_404(self.round().tasks.without_gold(), pk=pk)
        return self.created(adjudicate(task, by=request.user, **self.sent(AdjudicationInput)))


class AdjudicationQueueViewSet(PagedList, RoundPartViewSet):
    """Statements of a round to adjudicate, in the round's order."""

    access = Action.ADJUDICATE
    serializer_class = QueuedTaskSerializer
    filters = QueueFilters
    order = ("position",)

    def get_queryset(self) -> QuerySet:
        queue = self.request.query_params.get("queue", "undecided")
        return adjudication_queue(self.round(), queue).select_related("knowledge_tuple__relation__relation_set")


# Reservations


class ReservationSerializer(serializers.ModelSerializer):
    """Statements that only these annotators may judge."""

    annotators = serializers.SlugRelatedField("code", many=True, read_only=True)
    n_left = serializers.IntegerField(source="statements_left.count", help_text="Number of incomplete statements.")
    n_stuck = serializers.IntegerField(
        help_text="Number of statements that need more judgments than the annotators can add."
    )

    class Meta:
        model = Reservation
        fields = ["id", "annotators", "n_reserved", "n_left", "n_stuck", "created_at"]


class ReservationInput(StrictSerializer):
    annotators = serializers.ListField(
        child=serializers.CharField(max_length=30), min_length=1, max_length=100, help_text="Codes of the annotators."
    )
    relation = IdField(
        source="knowledge_tuple__relation",
        required=False,
        help_text="Id of a relation. Its incomplete statements are reserved.",
    )
    statements = serializers.ListField(
        child=IdField(), source="pk__in", required=False, min_length=1, max_length=1000, help_text="Ids of statements."
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if len(sent) != 2:
            raise serializers.ValidationError("Send either a relation or statements.")
        return sent


class ReservationViewSet(PagedList, RoundPartViewSet):
    """Reservations of a round, newest first, without released ones."""

    access = Action.WORK
    serializer_class = ReservationSerializer

    def get_queryset(self) -> QuerySet:
        current = self.round().reservations.filter(released_at=None)
        return current.select_related("round__project").prefetch_related("annotators")

    @extend_schema(summary="Reserve statements", request=ReservationInput, responses={201: ReservationSerializer})
    def create(self, request: Request, round_id: int) -> Response:
        """Complete statements, gold, and statements of other reservations are not reserved."""
        sent = self.sent(ReservationInput)
        return self.created(reserve_statements(self.round(), sent.pop("annotators"), request.user, **sent))

    @extend_schema(summary="Release reserved statements")
    def destroy(self, request: Request, round_id: int, pk: int) -> Response:
        """The statements return to the pool of all annotators."""
        release_reservation(self.row(self.get_queryset()), request.user)
        return self.deleted()
