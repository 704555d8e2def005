"""Plan of a preregistration, declared once for the page, the API, and the frozen document."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import TextChoices
from rest_framework import serializers

from evaluation.rendering.documents import lm_and_setting
from kgharvest.api.input import FiniteField, StrictSerializer
from kgharvest.errors import DomainError
from kgharvest.names import UnresolvedName, resolve_name
from kgharvest.statistics.paired_tests import FEWEST_RELATIONS, CellKey, Pair, Side, compared_cells

MOST = 100  # maximum number of hypotheses, and maximum number of comparisons
LONGEST_TEXT = 5_000
LONGEST_HYPOTHESIS = 1_000
SIDES = ("first", "second")
TEXTS = ("primary_outcome", "exclusion_rules", "stopping_rule", "analysis")


class Expects(TextChoices):
    """Expected difference in accuracy between the two sides of a hypothesis. A side is an LM and a setting."""

    FIRST = "first", "the first is more accurate"
    SECOND = "second", "the second is more accurate"
    DIFFERENT = "different", "they differ"
    ALIKE = "alike", "they are equivalent, within the margin"


class Words(serializers.CharField):
    """Text with normalized line breaks, so that the hash does not depend on the operating system."""

    def to_internal_value(self, value: Any) -> str:
        return super().to_internal_value(value).replace("\r\n", "\n").replace("\r", "\n")


class SideSerializer(StrictSerializer):
    model = serializers.CharField(max_length=500, help_text="LM name; can be shortened if unique within the round.")
    setting = serializers.CharField(max_length=30)


class ComparisonSerializer(StrictSerializer):
    first = SideSerializer()
    second = SideSerializer()


class HypothesisSerializer(ComparisonSerializer):
    expects = serializers.ChoiceField(Expects.choices)
    margin = FiniteField(
        min_value=0.1, max_value=50, allow_null=True, default=None,
        help_text="Equivalence margin in percentage points. Required if `expects` is `alike`.",
    )  # fmt: skip
    words = Words(
        max_length=LONGEST_HYPOTHESIS,
        allow_blank=True,
        default="",
        help_text="Wording of the hypothesis. Default: a generated sentence.",
    )

    def validate(self, hypothesis: dict[str, Any]) -> dict[str, Any]:
        if (hypothesis["expects"] == Expects.ALIKE) != (hypothesis["margin"] is not None):
            reason = "Enter a margin in percentage points if the sides are expected to be alike. Otherwise, omit it."
            raise serializers.ValidationError({"margin": [reason]})
        return hypothesis


class PlanSerializer(StrictSerializer):
    """Plan with hypotheses, comparisons, and rules in free text.

    The comparison that tests a hypothesis is added automatically.
    """

    hypotheses = HypothesisSerializer(many=True, default=list, max_length=MOST)
    comparisons = ComparisonSerializer(many=True, default=list, max_length=MOST)
    primary_outcome = Words(max_length=LONGEST_TEXT, label="Primary outcome", help_text="Main quantity of the study.")
    exclusion_rules = Words(
        max_length=LONGEST_TEXT, label="Exclusion rules",
        help_text="Criteria for excluding an annotator's judgments, and who decides. The round's limits only pause "
        "annotators.",
    )  # fmt: skip
    stopping_rule = Words(
        max_length=LONGEST_TEXT, label="Stopping rule",
        help_text="Condition that ends judging, in addition to the option that closes the round.",
    )  # fmt: skip
    analysis = Words(
        max_length=LONGEST_TEXT, label="Analysis",
        help_text="Analyses and criteria for conclusions, in addition to the method stated in every report.",
    )  # fmt: skip


def pairs_compared(cells: Iterable[CellKey]) -> list[Pair]:
    """Return the pairs of sides that a report compares if all given cells have verdicts."""
    return [pair for pair, _ in compared_cells(dict.fromkeys(cells, 0.0))]


def completed_plan(plan: Mapping[str, Any], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return a valid plan in its frozen form: full LM names, worded hypotheses, and each planned comparison once.

    Raises BadPlan for sides that reports do not compare.
    """
    hypotheses = [
        _with_sides(hypothesis, pairs, f"hypotheses[{number}]") for number, hypothesis in enumerate(plan["hypotheses"])
    ]
    named = [_with_sides(entry, pairs, f"comparisons[{number}]") for number, entry in enumerate(plan["comparisons"])]
    listed = {sides_of_plan(entry): {side: entry[side] for side in SIDES} for entry in [*named, *hypotheses]}
    return {
        "hypotheses": [entry | {"words": entry["words"] or hypothesis_in_words(entry)} for entry in hypotheses],
        "comparisons": list(listed.values()),
        **{name: plan[name] for name in TEXTS},
    }


def sides_of_plan(entry: Mapping[str, Any]) -> frozenset[Side]:
    """Return the two sides of a hypothesis or comparison."""
    return frozenset(Side(entry[side]["model"], entry[side]["setting"]) for side in SIDES)


def _with_sides(entry: Mapping[str, Any], pairs: Sequence[Pair], path: str) -> dict[str, Any]:
    models = {str(side.model) for pair in pairs for side in (pair.a, pair.b)}
    named = dict(entry)
    for name in SIDES:
        try:
            named[name] = {"model": resolve_name(entry[name]["model"], models, "LM"), "setting": entry[name]["setting"]}
        except UnresolvedName as refusal:
            raise DomainError("BadPlan", f"{path}.{name}.model: {refusal}") from None
    if sides_of_plan(named) not in {frozenset((pair.a, pair.b)) for pair in pairs}:
        raise DomainError(
            "BadPlan",
            f"{path}: reports on this round do not compare {lm_and_setting(named['first'])} with "
            f"{lm_and_setting(named['second'])}. Choose two settings of one LM, or two LMs in one setting, that share "
            f"at least {FEWEST_RELATIONS} relations.",
        )
    return named


def whole_hypothesis(hypothesis: Mapping[str, Any]) -> str:
    """Return the wording of a frozen hypothesis.

    If it differs from the tested hypothesis, that follows in parentheses.
    """
    words, tested = hypothesis["words"], hypothesis_in_words(hypothesis)
    return words if words == tested else f"{words} ({tested.rstrip('.')})"


def hypothesis_in_words(hypothesis: Mapping[str, Any]) -> str:
    first, second = (lm_and_setting(hypothesis[side]) for side in SIDES)
    return {
        Expects.FIRST: f"{first} is more accurate than {second}.",
        Expects.SECOND: f"{second} is more accurate than {first}.",
        Expects.DIFFERENT: f"{first} and {second} differ in accuracy.",
        Expects.ALIKE: f"{first} and {second} are at most {hypothesis['margin'] or 0:g} points apart.",
    }[Expects(hypothesis["expects"])]
