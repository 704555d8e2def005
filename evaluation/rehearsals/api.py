"""API of power simulations of draft rounds."""

from django import forms
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.rounds.api import RoundOperations
from annotation.rounds.services import check_is_draft
from evaluation.rehearsals.views import MOST_SIDES, RehearsalForm, outcome_of, percent_field, rehearsal_form
from kgharvest.access import Action
from kgharvest.api.input import Filters, FiniteField
from kgharvest.api.views import operation


def parameter(field: forms.IntegerField | forms.FloatField) -> serializers.Field:
    """Return the query parameter for a form field."""
    kind = serializers.IntegerField if isinstance(field, forms.IntegerField) else FiniteField
    return kind(min_value=field.min_value, max_value=field.max_value, required=False, help_text=str(field.label))


class AssumptionFilters(Filters):
    """Assumptions of the page's form. accuracy_N: accuracy of the N-th LM and setting.

    If the draft has too many LMs and settings, accuracy_1 applies to all of them.
    """

    def get_fields(self) -> dict[str, serializers.Field]:
        accuracies = {
            f"accuracy_{number}": percent_field(f"Accuracy of LM and setting {number}, %", 0, 99, least=1)
            for number in range(1, MOST_SIDES + 1)
        }
        return {name: parameter(field) for name, field in (accuracies | RehearsalForm.base_fields).items()}


class SpreadSerializer(serializers.Serializer):
    """Median over the simulations, and the range of the middle 90 %."""

    low = serializers.FloatField()
    median = serializers.FloatField()
    high = serializers.FloatField()


class CellOutcomeSerializer(serializers.Serializer):
    relation = serializers.CharField()
    model = serializers.CharField(allow_null=True)
    setting = serializers.CharField(allow_null=True)
    half_width = SpreadSerializer()


class SideOutcomeSerializer(serializers.Serializer):
    """Means over relations.

    half_width: half-width of the interval for these relations. for_others: half-width of the interval for similar
    relations.
    """

    model = serializers.CharField(allow_null=True)
    setting = serializers.CharField(allow_null=True)
    n_relations = serializers.IntegerField()
    true = SpreadSerializer()
    measured = SpreadSerializer()
    error = SpreadSerializer(help_text="Measured minus true.")
    half_width = SpreadSerializer()
    for_others = SpreadSerializer(allow_null=True)


class ComparisonOutcomeSerializer(serializers.Serializer):
    """Simulated comparison of two sides. expected: assumed accuracy of a minus that of b.

    found: share of simulations with a Holm-adjusted p < .05.
    """

    common = serializers.CharField(allow_null=True)
    a = serializers.CharField()
    b = serializers.CharField()
    expected = serializers.FloatField()
    found = serializers.FloatField()
    wrong_sign = serializers.FloatField()


class RehearsalSerializer(serializers.Serializer):
    """Expected results of the draft's report, estimated from many simulated rounds."""

    n_runs = serializers.IntegerField(help_text="Number of simulated rounds.")
    sides = SideOutcomeSerializer(many=True)
    cells = CellOutcomeSerializer(many=True, help_text="Cells with the widest intervals first.")
    comparisons = ComparisonOutcomeSerializer(many=True)
    alpha = SpreadSerializer(allow_null=True)
    undecided = SpreadSerializer(help_text="Share of undecided statements.")
    wrong_verdicts = SpreadSerializer(help_text="Share of statements with a wrong verdict.")
    n_judgments = SpreadSerializer()


class RehearsalOutcomeSerializer(serializers.Serializer):
    rehearsal = RehearsalSerializer()
    hours = serializers.ListField(child=serializers.FloatField(), help_text="Low, median, and high.")
    pay = serializers.ListField(
        child=serializers.FloatField(), allow_null=True, help_text="Null without an hourly rate."
    )


class RehearsalViewSet(RoundOperations):
    @operation(
        "Run a power simulation of a draft",
        method="get",
        parameters=[AssumptionFilters],
        access=Action.WORK,
        serializer_class=RehearsalOutcomeSerializer,
        refuses=True,
    )
    def rehearsal(self, request: Request, round_id: int) -> Response:
        """Estimates interval widths, power of comparisons, judgments, and cost. Nothing is stored."""
        assumptions = self.filtered_by(AssumptionFilters)
        round = self.round()
        check_is_draft(round, "rehearsed")
        form, evidence = rehearsal_form(round, assumptions, request.user)
        if not form.is_valid():
            raise serializers.ValidationError(form.errors)
        return self.answer(outcome_of(form, evidence))
