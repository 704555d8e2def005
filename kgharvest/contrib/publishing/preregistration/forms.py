"""The form of a preregistration: a row for each comparison that reports on the round will make, and rules in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import forms

from annotation.models import Round
from evaluation.rendering.documents import lm_and_setting
from kgharvest.contrib.publishing.preregistration.plan import (
    LONGEST_HYPOTHESIS,
    TEXTS,
    Expects,
    HypothesisSerializer,
    PlanSerializer,
)
from kgharvest.statistics.paired_tests import Pair, Side

MOST_ROWS = 60  # more comparisons are planned through the API
NO_HYPOTHESIS = ("", "no hypothesis")
NO_LIMITS = "none"  # as annotation.models.Limits.sentence has it


def first_words(round: Round, limits: str) -> dict[str, str]:
    """Return what the form begins with: what the options of the round say, to go on from."""
    excluded = "Nobody is excluded."
    if limits != NO_LIMITS:
        excluded = f"Excluded is whom a limit of the round pauses ({limits}), if two of us agree, and nobody else."
    return {
        "primary_outcome": "Accuracy of each LM and setting, averaged over relations.",
        "exclusion_rules": excluded,
        "stopping_rule": f"Judging ends when {round.get_closes_when_display()}; nobody looks at accuracies before.",
        "analysis": "As every report states it; what is not planned here is exploratory.",
    }


class PlanForm(forms.Form):
    """`document()` is what PlanSerializer reads; its errors stand beside the fields.

    pairs: what reports compare.
    """

    def __init__(self, given: Any = None, *, pairs: Sequence[Pair], initial: Mapping[str, Any]) -> None:
        super().__init__(given, initial=dict(initial))
        self.pairs = pairs[:MOST_ROWS]
        self.n_left_out = len(pairs) - len(self.pairs)
        texts = PlanSerializer().fields
        for name in TEXTS:
            self.fields[name] = forms.CharField(
                label=texts[name].label,
                help_text=texts[name].help_text,
                max_length=texts[name].max_length,
                widget=forms.Textarea(attrs={"rows": 3}),
            )
        margin = HypothesisSerializer().fields["margin"]
        for number, pair in enumerate(self.pairs):
            names = pair_in_words(pair)
            self.fields |= {
                f"planned_{number}": forms.BooleanField(required=False, label=f"Plan {names}"),
                f"expects_{number}": forms.ChoiceField(
                    choices=[NO_HYPOTHESIS, *expectations(pair)], required=False, label=f"Hypothesis on {names}"
                ),
                f"margin_{number}": forms.FloatField(
                    required=False,
                    min_value=margin.min_value,
                    max_value=margin.max_value,
                    label=f"Margin for {names}, points",
                ),
                f"words_{number}": forms.CharField(
                    required=False,
                    max_length=LONGEST_HYPOTHESIS,
                    label=f"Words on {names}",
                    widget=forms.TextInput(attrs={"size": 36}),
                ),
            }

    def texts(self) -> Iterator[forms.BoundField]:
        return (self[name] for name in TEXTS)

    def rows(self) -> Iterator[dict[str, Any]]:
        for number, pair in enumerate(self.pairs):
            fields = {name: self[f"{name}_{number}"] for name in ("planned", "expects", "margin", "words")}
            yield {"common": pair.common, "names": pair.names, **fields}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for number in range(len(self.pairs)):
            expects, margin = cleaned.get(f"expects_{number}"), cleaned.get(f"margin_{number}")
            if expects == Expects.ALIKE and margin is None and f"margin_{number}" not in self.errors:
                self.add_error(f"margin_{number}", "Within how many points?")
            elif not expects and cleaned.get(f"words_{number}"):
                self.add_error(f"expects_{number}", "What do these words expect?")
        return cleaned

    def document(self) -> dict[str, Any]:
        given = self.cleaned_data
        comparisons, hypotheses = [], []
        for number, pair in enumerate(self.pairs):
            sides = {"first": _side(pair.a), "second": _side(pair.b)}
            if given[f"planned_{number}"]:
                comparisons.append(sides)
            if expects := given[f"expects_{number}"]:
                margin = given[f"margin_{number}"] if expects == Expects.ALIKE else None
                hypotheses.append({**sides, "expects": expects, "margin": margin, "words": given[f"words_{number}"]})
        return {"hypotheses": hypotheses, "comparisons": comparisons, **{name: given[name] for name in TEXTS}}


def _side(side: Side) -> dict[str, str]:
    return {"model": str(side.model), "setting": str(side.setting)}


def expectations(pair: Pair) -> list[tuple[str, str]]:
    """Return what a hypothesis can say of these two, by their names."""
    first, second = pair.names
    ahead = {Expects.FIRST: f"{first} is more accurate", Expects.SECOND: f"{second} is more accurate"}
    return [(expects.value, ahead.get(expects, expects.label)) for expects in Expects]


def pair_in_words(pair: Pair) -> str:
    return f"{lm_and_setting(_side(pair.a))} and {lm_and_setting(_side(pair.b))}"
