"""What people say in a preregistration, declared once for its page, the API and the frozen document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import TextChoices
from rest_framework import serializers

from evaluation.rendering.documents import lm_and_setting
from kgharvest.api.input import FiniteField, StrictSerializer
from kgharvest.errors import DomainError
from kgharvest.names import UnresolvedName, resolve_name
from kgharvest.statistics.paired_tests import FEWEST_RELATIONS, CellKey, Pair, Side, compared_cells

MOST = 100  # hypotheses, and comparisons
LONGEST_TEXT = 5_000
LONGEST_HYPOTHESIS = 1_000


class Expects(TextChoices):
    """What a hypothesis says of two sides."""

    FIRST = "first", "the first is more accurate"
    SECOND = "second", "the second is more accurate"
    DIFFERENT = "different", "they differ"
    ALIKE = "alike", "they are alike, within the margin"


class Words(serializers.CharField):
    """Lines end as on every system, so that the same words have the same hash."""

    def to_internal_value(self, value: Any) -> str:
        return super().to_internal_value(value).replace("\r\n", "\n").replace("\r", "\n")


class SideSerializer(StrictSerializer):
    model = serializers.CharField(max_length=500, help_text="LM, as short as is clear within the round.")
    setting = serializers.CharField(max_length=30)


class ComparisonSerializer(StrictSerializer):
    first = SideSerializer()
    second = SideSerializer()


class HypothesisSerializer(ComparisonSerializer):
    expects = serializers.ChoiceField(Expects.choices)
    margin = FiniteField(
        min_value=0.1,
        max_value=50,
        allow_null=True,
        default=None,
        help_text="Percentage points, where the two are expected to be alike.",
    )
    words = Words(max_length=LONGEST_HYPOTHESIS, allow_blank=True, default="", help_text="Empty: said by itself.")

    def validate(self, hypothesis: dict[str, Any]) -> dict[str, Any]:
        if (hypothesis["expects"] == Expects.ALIKE) != (hypothesis["margin"] is not None):
            reason = "Give a margin in percentage points where the two are expected to be alike, and only there."
            raise serializers.ValidationError({"margin": [reason]})
        return hypothesis


class PlanSerializer(StrictSerializer):
    """Hypotheses, comparisons and rules in words. The comparison of a hypothesis is planned by itself."""

    hypotheses = HypothesisSerializer(many=True, default=list, max_length=MOST)
    comparisons = ComparisonSerializer(many=True, default=list, max_length=MOST)
    primary_outcome = Words(
        max_length=LONGEST_TEXT, label="Primary outcome", help_text="The number that the study is about."
    )
    exclusion_rules = Words(
        max_length=LONGEST_TEXT,
        label="Exclusion rules",
        help_text="Whose judgments will not count and who decides it; the round's limits only pause people.",
    )
    stopping_rule = Words(
        max_length=LONGEST_TEXT,
        label="Stopping rule",
        help_text="When judging ends, beside the option that closes the round.",
    )
    analysis = Words(
        max_length=LONGEST_TEXT,
        label="Analysis",
        help_text="What will be computed and concluded, beside the method that every report states.",
    )


TEXTS = ("primary_outcome", "exclusion_rules", "stopping_rule", "analysis")


# -- what of it a report will compare ----------------------------------------------------------------------------------


def pairs_compared(cells: Iterable[CellKey]) -> list[Pair]:
    """Return the pairs of sides that a report on these cells compares if all of them get verdicts."""
    return [pair for pair, _ in compared_cells(dict.fromkeys(cells, 0.0))]


def completed_plan(plan: Mapping[str, Any], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return a valid plan as it is frozen: LMs by full names, hypotheses in words, all that is planned listed once.

    Raises BadPlan for sides that reports do not compare.
    """
    hypotheses = [
        _with_sides(hypothesis, pairs, f"hypotheses[{number}]") for number, hypothesis in enumerate(plan["hypotheses"])
    ]
    named = [_with_sides(entry, pairs, f"comparisons[{number}]") for number, entry in enumerate(plan["comparisons"])]
    listed = {sides_of_plan(entry): {side: entry[side] for side in SIDES} for entry in [*named, *hypotheses]}
    texts = {name: plan[name] for name in TEXTS}
    return {
        "hypotheses": [entry | {"words": entry["words"] or hypothesis_in_words(entry)} for entry in hypotheses],
        "comparisons": list(listed.values()),
        **texts,
    }


SIDES = ("first", "second")


def sides_of_plan(entry: Mapping[str, Any]) -> frozenset[Side]:
    """Return the two sides of a hypothesis or comparison."""
    return frozenset(Side(entry[side]["model"], entry[side]["setting"]) for side in SIDES)


def planned_sides(document: Mapping[str, Any]) -> frozenset[frozenset[Side]]:
    """Return the two sides of each comparison that a frozen document plans."""
    return frozenset(map(sides_of_plan, document["plan"]["comparisons"]))


def _with_sides(entry: Mapping[str, Any], pairs: Sequence[Pair], path: str) -> dict[str, Any]:
    models = {str(side.model) for pair in pairs for side in (pair.a, pair.b)}
    named = dict(entry)
    for name in SIDES:
        try:
            named[name] = {
                "model": resolve_name(entry[name]["model"], models, "LM"),
                "setting": entry[name]["setting"],
            }
        except UnresolvedName as refusal:
            raise DomainError("BadPlan", f"{path}.{name}.model: {refusal}") from None
    if sides_of_plan(named) not in {frozenset((pair.a, pair.b)) for pair in pairs}:
        raise DomainError(
            "BadPlan",
            f"{path}: reports on this round do not compare {lm_and_setting(named['first'])} with "
            f"{lm_and_setting(named['second'])}. They compare settings of an LM, and LMs in a setting, that share "
            f"{FEWEST_RELATIONS} relations or more; choose two of these.",
        )
    return named


def whole_hypothesis(hypothesis: Mapping[str, Any]) -> str:
    """Return a frozen hypothesis as it was put, and in brackets what is tested if that is put otherwise."""
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
