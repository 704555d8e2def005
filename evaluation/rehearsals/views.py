"""Page for power simulations of a draft. Nothing is stored."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from annotation.models import Round
from annotation.rounds.builder import freeze_round
from annotation.rounds.draft_views import get_draft
from annotation.rounds.plan import measured_pace
from evaluation.evidence.evidence import Evidence
from evaluation.rehearsals.forms import RehearsalForm
from evaluation.rehearsals.rehearsal import draft_evidence, n_runs_of, rehearse, side_name
from kgharvest.access import User, researcher_required
from kgharvest.errors import DomainError

N_CELLS = 20  # with the widest intervals


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
    is_part = request.GET.get("part") == "outcome"
    template = "_outcome.html" if is_part else "rehearsal.html"
    return render(request, f"evaluation/rehearsals/{template}", context)


def rehearsal_form(draft: Round, given: Any, by: User) -> tuple[RehearsalForm, Evidence]:
    """Return the assumptions form of a draft, and its evidence. Raises as freeze_round does."""
    evidence = draft_evidence(draft, freeze_round(draft, by))
    names = [side_name(*side) for side in evidence.sides]
    return RehearsalForm(given, sides=names, seconds=measured_pace()), evidence


def outcome_of(form: RehearsalForm, evidence: Evidence) -> dict[str, Any]:
    """Return the simulation with low, median, and high of hours and pay; pay is None without an hourly rate."""
    rehearsed = rehearse(evidence, form.assumptions(), n_runs_of(evidence))
    hours = [n * form.cleaned_data["seconds"] / 3600 for n in rehearsed.n_judgments]
    pay_per_hour = form.cleaned_data["pay_per_hour"]
    return {
        "rehearsal": rehearsed,
        "cells": rehearsed.cells[:N_CELLS],
        "hours": hours,
        "pay": None if pay_per_hour is None else [hours_of_work * pay_per_hour for hours_of_work in hours],
    }
