"""What a rehearsal assumes, declared once for its page and the API; percentages, as people type them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import forms

from annotation.rounds.plan import ASSUMED_SECONDS
from evaluation.rehearsals.rehearsal import Assumptions

MOST_SIDES = 8  # with an accuracy each; more share one
USUAL = Assumptions(())
USUAL_ACCURACY = 70
MOST_PEOPLE = 1000
ERRORS = ("true_called_false", "false_called_true", "unjudgeable")


class Slider(forms.NumberInput):
    input_type = "range"
    template_name = "evaluation/rehearsals/_slider.html"


def percent_field(label: str, initial: float, most: int, help_text: str = "", least: int = 0) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, initial=initial, min_value=least, max_value=most, help_text=help_text, widget=Slider
    )


class RehearsalForm(forms.Form):
    """The assumptions about a draft. What is not given is as usual.

    sides: names of its LMs and settings. seconds: of a judgment, as measured.
    """

    spread = percent_field(
        "Relations differ by, points",
        round(100 * USUAL.spread),
        40,
        "Standard deviation of accuracy over relations; half of its variance is the same for all LMs and settings.",
    )
    true_called_false = percent_field("True called False, %", round(100 * USUAL.true_called_false), 50)
    false_called_true = percent_field("False called True, %", round(100 * USUAL.false_called_true), 50)
    unjudgeable = percent_field("Called Unjudgeable, %", round(100 * USUAL.unjudgeable), 50)
    n_people = forms.IntegerField(label="People", initial=USUAL.n_people, min_value=1, max_value=MOST_PEOPLE)
    seconds = forms.FloatField(label="Seconds a judgment", min_value=0.1, max_value=3600)
    pay_per_hour = forms.FloatField(label="Pay of an hour", min_value=0, max_value=10_000, required=False)

    def __init__(self, given: Mapping[str, Any], *, sides: Sequence[str], seconds: float | None) -> None:
        names = sides if len(sides) <= MOST_SIDES else ["all LMs and settings"]
        self._n_sides = len(sides)
        self._accuracies = {
            f"accuracy_{number}": percent_field(name, USUAL_ACCURACY, 99, least=1)
            for number, name in enumerate(names, 1)
        }
        usual = {name: field.initial for name, field in (self._accuracies | self.base_fields).items()}
        usual["seconds"] = ASSUMED_SECONDS if seconds is None else round(seconds, 1)
        super().__init__({**usual, **{name: given[name] for name in usual if given.get(name) not in (None, "")}})
        self.fields = self._accuracies | self.fields

    def groups(self) -> Iterator[tuple[str, list[forms.BoundField]]]:
        yield "Accuracy of tuples, %", [self[name] for name in (*self._accuracies, "spread")]
        yield (
            "Judgments",
            [self[name] for name in (*ERRORS, "n_people")],
        )
        yield "Cost", [self[name] for name in ("seconds", "pay_per_hour")]

    def assumptions(self) -> Assumptions:
        given = self.cleaned_data
        accuracies = [given[name] / 100 for name in self._accuracies]
        return Assumptions(
            accuracies if len(accuracies) == self._n_sides else accuracies * self._n_sides,
            given["spread"] / 100,
            *(given[name] / 100 for name in ERRORS),
            given["n_people"],
        )
