"""Page and form for power simulations of a draft. Shares are entered in percent. Nothing is stored."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from annotation.models import Round
from annotation.rounds.builder import freeze_round
from annotation.rounds.draft_views import get_draft
from annotation.rounds.plan import ASSUMED_SECONDS, measured_pace
from evaluation.evidence.evidence import Evidence
from evaluation.rehearsals.rehearsal import Assumptions, draft_evidence, n_runs_of, rehearse, side_name
from kgharvest.access import User, researcher_required
from kgharvest.errors import DomainError

N_CELLS = 20  # maximum number of listed cells; those with the widest intervals are listed
MOST_SIDES = 8  # maximum number of LMs and settings with separate accuracies; if there are more, all share one accuracy
DEFAULTS = Assumptions(())
DEFAULT_ACCURACY = 70
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
    """Assumptions about a draft. Missing values are replaced with defaults.

    sides: names of the draft's LMs and settings. seconds: measured time per judgment.
    """

    spread = percent_field(
        "Standard deviation across relations (points)",
        round(100 * DEFAULTS.spread),
        40,
        "Standard deviation of accuracy. Half of the variance is common to all LMs and settings.",
    )
    true_called_false = percent_field("True called False, %", round(100 * DEFAULTS.true_called_false), 50)
    false_called_true = percent_field("False called True, %", round(100 * DEFAULTS.false_called_true), 50)
    unjudgeable = percent_field("Called Unjudgeable, %", round(100 * DEFAULTS.unjudgeable), 50)
    n_people = forms.IntegerField(label="People", initial=DEFAULTS.n_people, min_value=1, max_value=MOST_PEOPLE)
    seconds = forms.FloatField(label="Seconds per judgment", min_value=0.1, max_value=3600)
    pay_per_hour = forms.FloatField(label="Hourly rate", min_value=0, max_value=10_000, required=False)

    def __init__(self, given: Mapping[str, Any], *, sides: Sequence[str], seconds: float | None) -> None:
        names = sides if len(sides) <= MOST_SIDES else ["all LMs and settings"]
        self._n_sides = len(sides)
        self._accuracies = {
            f"accuracy_{number}": percent_field(name, DEFAULT_ACCURACY, 99, least=1)
            for number, name in enumerate(names, 1)
        }
        defaults = {name: field.initial for name, field in (self._accuracies | self.base_fields).items()}
        defaults["seconds"] = ASSUMED_SECONDS if seconds is None else round(seconds, 1)
        super().__init__({**defaults, **{name: given[name] for name in defaults if given.get(name) not in (None, "")}})
        self.fields = self._accuracies | self.fields

    def groups(self) -> Iterator[tuple[str, list[forms.BoundField]]]:
        yield "Accuracy of tuples, %", [self[name] for name in (*self._accuracies, "spread")]
        yield "Judgments", [self[name] for name in (*ERRORS, "n_people")]
        yield "Cost", [self[name] for name in ("seconds", "pay_per_hour")]

    def assumptions(self) -> Assumptions:
        cleaned = self.cleaned_data
        accuracies = [cleaned[name] / 100 for name in self._accuracies]
        return Assumptions(
            accuracies if len(accuracies) == self._n_sides else accuracies * self._n_sides,
            cleaned["spread"] / 100,
            *(cleaned[name] / 100 for name in ERRORS),
            cleaned["n_people"],
        )


@researcher_required
def rehearsal(request: HttpRequest, path: str) -> HttpResponse:
    """Run a simulation. `?part=outcome` returns only the result, for the page's script."""
    draft = get_draft(request, path)
    try:
        form, evidence = rehearsal_form(draft, request.GET, request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(draft)
    context = {"round": draft, "form": form, "n_statements": evidence.n_tasks}
    if form.is_valid():
        context |= outcome_of(form, evidence)
    template = "_outcome.html" if request.GET.get("part") == "outcome" else "rehearsal.html"
    return render(request, f"evaluation/rehearsals/{template}", context)


def rehearsal_form(draft: Round, given: Any, by: User) -> tuple[RehearsalForm, Evidence]:
    """Return the assumptions form of a draft, and its evidence. Raises the same errors as freeze_round."""
    evidence = draft_evidence(draft, freeze_round(draft, by))
    names = [side_name(*side) for side in evidence.sides]
    return RehearsalForm(given, sides=names, seconds=measured_pace()), evidence


def outcome_of(form: RehearsalForm, evidence: Evidence) -> dict[str, Any]:
    """Return the simulation, and the low, median, and high values of hours and pay.

    Pay is None without an hourly rate.
    """
    rehearsed = rehearse(evidence, form.assumptions(), n_runs_of(evidence))
    hours = [n * form.cleaned_data["seconds"] / 3600 for n in rehearsed.n_judgments]
    pay_per_hour = form.cleaned_data["pay_per_hour"]
    return {
        "rehearsal": rehearsed,
        "cells": rehearsed.cells[:N_CELLS],
        "hours": hours,
        "pay": None if pay_per_hour is None else [hours_of_work * pay_per_hour for hours_of_work in hours],
    }
