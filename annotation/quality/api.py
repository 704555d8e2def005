"""How a round goes, in the API: its progress, its annotators with their profiles, limits, exclusions, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.models import Annotator, Exclusion, Limits, RoundEvent
from annotation.monitoring.cells import round_cells
from annotation.monitoring.progress import OUTCOMES, progress
from annotation.quality.annotator_statistics import annotator_statistics, statistics_of
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.quality.exclusion_effect import exclusion_effect
from annotation.quality.limits import pause_annotator, resume_annotator, set_limits
from annotation.recruiting.erasure import erase_annotator
from annotation.recruiting.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.api import RoundView
from annotation.rounds.serializers import LimitsSerializer
from kgharvest.access import Action
from kgharvest.api.input import Filters, StrictSerializer
from kgharvest.api.views import ListView

# -- progress ----------------------------------------------------------------------------------------------------------


class OutcomesSerializer(serializers.Serializer):
    accepted = serializers.IntegerField()
    rejected = serializers.IntegerField()
    undecided = serializers.IntegerField()
    incomplete = serializers.IntegerField()


class CellProgressSerializer(OutcomesSerializer):
    """model, setting: empty where imported judgments name none."""

    relation = serializers.CharField()
    model = serializers.CharField(allow_blank=True)
    setting = serializers.CharField(allow_blank=True)
    job = serializers.IntegerField(allow_null=True)
    cut = serializers.CharField(allow_blank=True)
    n_strata = serializers.IntegerField()
    drawn = serializers.IntegerField()
    population = serializers.IntegerField(help_text="0 where nobody knows.")
    accuracy = serializers.FloatField(allow_null=True, help_text="As in reports; null for the `reason`.")
    low = serializers.FloatField(allow_null=True, help_text="Of the 95 % interval.")
    high = serializers.FloatField(allow_null=True)
    reason = serializers.CharField(allow_null=True)


class ProgressSerializer(OutcomesSerializer):
    """Gold is left out of all numbers."""

    n_tasks = serializers.IntegerField()
    complete = serializers.IntegerField()
    assigned = serializers.IntegerField(help_text="Incomplete statements that somebody holds.")
    open = serializers.IntegerField(help_text="Incomplete statements that nobody holds.")
    n_judgments = serializers.IntegerField(help_text="Counted ones.")
    n_wanted = serializers.IntegerField()
    n_left = serializers.IntegerField()
    n_commented = serializers.IntegerField()
    judgments_per_hour = serializers.FloatField(allow_null=True)
    hours_left = serializers.FloatField(allow_null=True)
    percent_agreement = serializers.FloatField(allow_null=True)
    alpha = serializers.FloatField(allow_null=True, help_text="Krippendorff's, nominal; null for the `reason`.")
    reason = serializers.CharField(allow_null=True)
    n_units = serializers.IntegerField(help_text="Statements with two judgments or more.")
    counted_at = serializers.DateTimeField(
        allow_null=True, help_text="A large round is counted now and then; null: for this answer."
    )
    cells = CellProgressSerializer(many=True)


class RoundProgress(RoundView):
    serializer_class = ProgressSerializer

    @extend_schema(summary="How far a round is")
    def get(self, request: Request, round_id: int) -> Response:
        round, now = self.round(), timezone.now()
        return self.answer(progress(round, now) | {"cells": round_cells(round, now).content})


# -- profiles ----------------------------------------------------------------------------------------------------------


class GoldAccuracySerializer(serializers.Serializer):
    """With its 95 % interval; null where nobody judged gold."""

    value = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)


class LabelSharesSerializer(serializers.Serializer):
    true = serializers.FloatField()
    false = serializers.FloatField()
    unjudgeable = serializers.FloatField()


class AnnotatorSerializer(serializers.Serializer):
    """An annotator with the numbers of the page Annotators; null where there is nothing to count."""

    code = serializers.CharField()
    who = serializers.CharField(allow_blank=True, help_text="Account, name of a guest or beginning of an invite.")
    status = serializers.ChoiceField(Annotator.Status.choices)
    n = serializers.IntegerField(help_text="Judgments, gold included.")
    n_gold = serializers.IntegerField()
    n_gold_right = serializers.IntegerField()
    gold = GoldAccuracySerializer()
    agreement = serializers.FloatField(allow_null=True, help_text="Share of pairs with others' judgments that agree.")
    n_pairs = serializers.IntegerField()
    median_seconds = serializers.FloatField(allow_null=True)
    too_fast = serializers.FloatField(allow_null=True, help_text="Share of judgments in less than a second.")
    shares = LabelSharesSerializer()
    longest_run = serializers.IntegerField(help_text="Of equal labels.")
    expected_run = serializers.FloatField()
    flags = serializers.ListField(child=serializers.CharField(), help_text="Why somebody should look.")
    n_comments = serializers.IntegerField()
    n_reports = serializers.IntegerField()
    n_uncounted = serializers.IntegerField()
    training = serializers.ListField(
        child=serializers.IntegerField(), allow_null=True, help_text="How many were right, of how many; null without."
    )


class AnnotatorFilters(Filters):
    status = serializers.ChoiceField(Annotator.Status.choices, required=False)


class AnnotatorList(RoundView, ListView):
    """The annotators of a round, by code."""

    serializer_class = AnnotatorSerializer
    filters = AnnotatorFilters
    order = ("code",)

    def get_queryset(self) -> QuerySet:
        return self.round().annotators.select_related("user", "invite", "round")

    def paginate_queryset(self, queryset: QuerySet) -> Sequence[dict[str, Any]]:
        """Return the statistics of the annotators of a page; a large round's may be as they were a while ago."""
        now = timezone.now()
        counted = {row["pk"]: row for row in annotator_statistics(self.round(), now).content}
        page = super().paginate_queryset(queryset)
        return [counted.get(annotator.pk) or statistics_of(annotator, now) for annotator in page]


class ExclusionSerializer(serializers.ModelSerializer):
    """A decision that an annotator's judgments count no more, and perhaps a later one that they do again."""

    excluded_by = serializers.CharField(source="excluded_by.username", allow_null=True)
    reinstated_by = serializers.CharField(source="reinstated_by.username", allow_null=True)

    class Meta:
        model = Exclusion
        fields = [
            *("reason", "excluded_by", "excluded_at", "n_judgments"),
            *("reinstated_by", "reinstated_at", "n_counted_again", "n_left_out"),
        ]


class AnnotatorDetailSerializer(AnnotatorSerializer):
    exclusions = ExclusionSerializer(many=True)


class AnnotatorView(RoundView):
    serializer_class = AnnotatorDetailSerializer

    def annotator(self, action: Action = Action.VIEW) -> Annotator:
        """Return the annotator of the address, of a round in which the user may do `action`."""
        annotators = self.round(action).annotators.select_related("round__project", "user", "invite")
        return get_object_or_404(annotators, code=self.kwargs["code"])

    def profile(self) -> Response:
        annotator = self.annotator()
        exclusions = annotator.exclusions.select_related("excluded_by", "reinstated_by")
        return self.answer(statistics_of(annotator, timezone.now()) | {"exclusions": exclusions})


class AnnotatorDetail(AnnotatorView):
    @extend_schema(summary="An annotator")
    def get(self, request: Request, round_id: int, code: str) -> Response:
        return self.profile()


class AnnotatorChange(AnnotatorView):
    """change: the service's function, of the annotator and who changes them. action: what that is in the project."""

    change: Callable[..., Any]
    action = Action.WORK

    @extend_schema(request=None)
    def post(self, request: Request, round_id: int, code: str) -> Response:
        def change() -> Response:
            type(self).change(self.annotator(self.action), by=request.user)
            return self.profile()

        return self.once(change)


@extend_schema(summary="Pause an annotator")
class AnnotatorPause(AnnotatorChange):
    """Nothing more is handed out to them; what they hold is still taken."""

    change = pause_annotator


@extend_schema(summary="Let a paused annotator go on")
class AnnotatorResume(AnnotatorChange):
    change = resume_annotator


@extend_schema(summary="Forget who an annotator is")
class AnnotatorErase(AnnotatorChange):
    """Account, name and invite are forgotten; code and judgments stay. This cannot be undone; owners do it."""

    change = erase_annotator
    action = Action.MANAGE


@extend_schema(summary="Withdraw an annotator who asked for it")
class AnnotatorWithdraw(AnnotatorChange):
    """What they judged is kept or taken out, as the round said beside its consent; who they are is forgotten."""

    change = withdraw_annotator


# -- exclusion ---------------------------------------------------------------------------------------------------------


class OutcomeChangeSerializer(serializers.Serializer):
    before = serializers.ChoiceField(OUTCOMES)
    after = serializers.ChoiceField(OUTCOMES)
    n = serializers.IntegerField(help_text="Statements.")


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
    """What excluding the annotator now would change."""

    n_judgments = serializers.IntegerField(help_text="Taken out of the count.")
    changes = OutcomeChangeSerializer(many=True)
    cells = CellEffectSerializer(many=True)
    agreement = AgreementEffectSerializer()


class ExclusionInput(StrictSerializer):
    reason = serializers.CharField(max_length=1000, help_text="Kept with the decision; the annotator does not see it.")


class AnnotatorExclusion(AnnotatorView):
    serializer_class = ExclusionSerializer

    @extend_schema(summary="What excluding an annotator would change", responses=ExclusionEffectSerializer)
    def get(self, request: Request, round_id: int, code: str) -> Response:
        return Response(ExclusionEffectSerializer(exclusion_effect(self.annotator(Action.WORK))).data)

    @extend_schema(
        summary="Exclude an annotator",
        request=ExclusionInput,
        examples=[OpenApiExample("A reason", {"reason": "Answered without reading."}, request_only=True)],
    )
    def post(self, request: Request, round_id: int, code: str) -> Response:
        """Their judgments count no more, and the statements want others instead. It can be taken back."""

        def exclude() -> Response:
            annotator = self.annotator(Action.WORK)
            reason = self.sent(ExclusionInput)["reason"]
            return self.answer(
                exclude_annotator(annotator, reason, by=request.user, effect=exclusion_effect(annotator))
            )

        return self.once(exclude)

    @extend_schema(summary="Reinstate an annotator", responses={200: ExclusionSerializer})
    def delete(self, request: Request, round_id: int, code: str) -> Response:
        """Their judgments count again wherever nobody took their place."""
        exclusion = reinstate_annotator(self.annotator(Action.WORK), by=request.user)
        exclusion.refresh_from_db()
        return self.answer(exclusion)


# -- limits and events -------------------------------------------------------------------------------------------------


class RoundLimits(RoundView):
    """When an annotator of the round is paused for somebody to look; null: no such limit."""

    serializer_class = LimitsSerializer

    @extend_schema(summary="The limits of a round")
    def get(self, request: Request, round_id: int) -> Response:
        return self.answer(Limits.objects.filter(round=self.round()).first() or Limits())

    @extend_schema(summary="Set the limits of a round")
    def put(self, request: Request, round_id: int) -> Response:
        """What is left out is as usual. They hold from everybody's next judgments on."""
        round = self.round(Action.WORK)
        return self.answer(set_limits(round, by=request.user, **self.sent(LimitsSerializer)))


class EventSerializer(serializers.ModelSerializer):
    """A line of a round's log. by: null for the system and the operator."""

    by = serializers.CharField(source="by.username", allow_null=True)
    annotator = serializers.CharField(source="annotator.code", allow_null=True)
    details = serializers.DictField(help_text="What the sentence rests on, by kind.")
    sentence = serializers.CharField()

    class Meta:
        model = RoundEvent
        fields = ["id", "at", "kind", "by", "annotator", "details", "sentence"]


class EventFilters(Filters):
    kind = serializers.ChoiceField(list(RoundEvent.SENTENCES), required=False)
    annotator = serializers.SlugField(source="annotator__code", required=False)


class EventList(RoundView, ListView):
    """What happened in a round, the last first."""

    serializer_class = EventSerializer
    filters = EventFilters

    def get_queryset(self) -> QuerySet:
        return self.round().events.select_related("by", "annotator")
