"""What opening a round would do, in the API: its plan, and what annotators would see."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judges.cost import WANTED_HALF_WIDTH, Wish
from annotation.judging.serializers import PartsField
from annotation.models import Layout, Round
from annotation.rounds.api import DESCRIPTION, RelationInstructionsSerializer, RoundView, relation_instructions
from annotation.rounds.builder import freeze_round
from annotation.rounds.instructions import DEFAULT_INSTRUCTIONS
from annotation.rounds.plan import plan_round
from annotation.rounds.serializers import RoundSerializer, round_from_spec
from annotation.rounds.services import check_is_draft
from kgharvest.access import Action, check_may_anywhere
from kgharvest.api.input import Filters, FiniteField


class WorkloadSerializer(serializers.Serializer):
    n_drawn = serializers.IntegerField()
    n_tasks = serializers.IntegerField(help_text="Statements to judge: what several cells drew is judged once.")
    n_judgments_least = serializers.IntegerField()
    n_judgments = serializers.IntegerField()
    n_gold_shown = serializers.IntegerField()
    seconds_per_judgment = serializers.FloatField()
    is_measured = serializers.BooleanField(help_text="Whether the seconds are those of people here.")
    hours = serializers.FloatField()


class CellPlanSerializer(serializers.Serializer):
    name = serializers.CharField()
    population = serializers.IntegerField()
    n = serializers.IntegerField()
    n_strata = serializers.IntegerField()
    half_width = serializers.FloatField(help_text="Of the 95 % interval to expect.")
    n_to_halve = serializers.IntegerField(help_text="Statements for an interval half as wide.")


class MacroPlanSerializer(serializers.Serializer):
    name = serializers.CharField()
    n_relations = serializers.IntegerField()
    half_width = serializers.FloatField()


class PlannedComparisonSerializer(serializers.Serializer):
    name = serializers.CharField()
    n_relations = serializers.IntegerField()
    unit = serializers.ChoiceField(["statements", "relations"])
    difference = serializers.FloatField(
        allow_null=True, help_text="The smallest that shows in four of five rounds; null where none can."
    )


class WaySerializer(serializers.Serializer):
    judge = serializers.CharField(help_text="Who labels every tuple first; empty for people alone.")
    n_statements = serializers.IntegerField()
    n_judgments = serializers.IntegerField()
    hours = serializers.FloatField()
    pay = serializers.FloatField(allow_null=True)
    judge_cost = serializers.FloatField(allow_null=True, help_text="Of what it answered so far; null if not asked yet.")
    cost = serializers.FloatField(allow_null=True, help_text="Pay and judge together.")


class RoundPlanSerializer(serializers.Serializer):
    """What opening the round would make of it. `macros`: averages over the relations of one LM and setting."""

    workload = WorkloadSerializer()
    accuracy = serializers.FloatField(help_text="The one that the intervals are for.")
    n_gold = serializers.IntegerField()
    n_training = serializers.IntegerField()
    cells = CellPlanSerializer(many=True)
    macros = MacroPlanSerializer(many=True)
    comparisons = PlannedComparisonSerializer(many=True, source="compared.comparisons")
    ways = WaySerializer(many=True, help_text="To the half-width asked for: people alone, then with a judge.")


class PlanQuery(Filters):
    accuracy = FiniteField(min_value=0.01, max_value=0.99, default=0.5, help_text="Expected; 0.5 is the widest.")
    half_width = FiniteField(
        min_value=0.001, max_value=0.5, default=WANTED_HALF_WIDTH, help_text="Wanted of each cell; what `ways` lead to."
    )
    pay_per_hour = FiniteField(min_value=0, max_value=10_000, allow_null=True, default=None)


class PlanView(RoundView):
    serializer_class = RoundPlanSerializer
    refuses = True

    def plan(self, request: Request, round: Round) -> Response:
        asked = self.filtered_by(PlanQuery)
        wish = Wish(asked["half_width"], asked["pay_per_hour"])
        return self.answer(plan_round(round, asked["accuracy"], by=request.user, wish=wish))


class RoundPlan(PlanView):
    @extend_schema(summary="What opening a draft would do", parameters=[PlanQuery])
    def get(self, request: Request, round_id: int) -> Response:
        """Statements, judgments, hours, and the intervals to expect. Nothing is stored."""
        round = self.round()
        check_is_draft(round, "planned")
        return self.plan(request, round)


class DescriptionPlan(PlanView):
    @extend_schema(
        summary="What a description would do",
        parameters=[PlanQuery],
        request=RoundSerializer,
        examples=[OpenApiExample("A description", DESCRIPTION, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """As for a draft, without making one. Requires the role of owner or researcher in any project."""
        check_may_anywhere(request.user, Action.WORK)
        return self.plan(request, round_from_spec(request.data))


class PreviewStatementSerializer(serializers.Serializer):
    parts = PartsField()


class PreviewTrainingSerializer(PreviewStatementSerializer):
    label = serializers.ChoiceField(["true", "false"])
    reason = serializers.CharField()


class PreviewSerializer(serializers.Serializer):
    """What somebody new would see: the first batch."""

    layout = serializers.ChoiceField(Layout.choices)
    instructions = serializers.CharField(help_text="Markdown.")
    consent = serializers.CharField(allow_blank=True, help_text="Markdown.")
    statements = PreviewStatementSerializer(many=True)
    training = PreviewTrainingSerializer(many=True)
    relations = RelationInstructionsSerializer(many=True)


class RoundPreview(RoundView):
    serializer_class = PreviewSerializer
    refuses = True

    @extend_schema(summary="A draft as annotators will see it")
    def get(self, request: Request, round_id: int) -> Response:
        draft = self.round(Action.WORK)
        check_is_draft(draft, "previewed")
        frozen = freeze_round(draft, request.user)
        return self.answer(
            {
                "layout": draft.layout,
                "instructions": draft.instructions or DEFAULT_INSTRUCTIONS,
                "consent": draft.consent,
                "statements": frozen.tasks[: draft.batch_size],
                "training": frozen.training,
                "relations": relation_instructions(frozen.relations, frozen.relation_instructions),
            }
        )
