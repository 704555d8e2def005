"""The short training before the first batch: a statement, an answer, and why; then how many were right."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from annotation.judging.training import answer_training, current_training, last_training, next_statement
from annotation.judging.training_forms import TrainingAnswerForm
from annotation.judging.views import by_annotator
from annotation.models import Annotator, Label, TrainingStatement
from annotation.rounds.instructions import instructions_html


@require_http_methods(["GET", "POST"])
@by_annotator
def training(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    if not annotator.round.training_size:
        raise Http404("This round has no training.")
    return take_answer(request, annotator) if request.method == "POST" else show(request, annotator)


def take_answer(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Take the answer to a statement and go on to the reason; without one, begin once more."""
    here = reverse("annotation:training", args=[annotator.round.name])
    form = TrainingAnswerForm(request.POST)
    if not form.is_valid():
        current_training(annotator, timezone.now())
        return redirect(here)
    asked = form.cleaned_data
    if answer_training(annotator, asked["position"], asked["label"], timezone.now()) is None:
        return redirect(here)
    return redirect(f"{here}?{urlencode({'position': asked['position'], 'label': asked['label']})}")


def show(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Show the reason for the answer in the address, the next statement, or how the last training went."""
    context = {
        "round": annotator.round,
        "labels": Label,
        "n_statements": annotator.round.training_statements.count(),
        "instructions": instructions_html(annotator.round),
    }
    if "label" in request.GET:
        return render(request, "annotation/judging/training_reason.html", context | reason_context(request, annotator))
    finished = last_training(annotator)
    if finished and not annotator.trainings.filter(finished_at=None).exists():
        return render(request, "annotation/judging/training_done.html", context | {"training": finished})
    training = current_training(annotator, timezone.now())
    return render(request, "annotation/judging/training.html", context | {"statement": next_statement(training)})


def reason_context(request: HttpRequest, annotator: Annotator) -> dict[str, Any]:
    form = TrainingAnswerForm(request.GET)
    if not form.is_valid():
        raise Http404("That is no answer.")
    given = form.cleaned_data
    statement = get_object_or_404(answered(annotator), position=given["position"])
    return {"statement": statement, "given": Label(given["label"]), "is_right": given["label"] == statement.label}


def answered(annotator: Annotator) -> QuerySet[TrainingStatement]:
    """Return the statements whose answers the annotator may see: those before the one to answer next."""
    statements = annotator.round.training_statements.all()
    unfinished = annotator.trainings.filter(finished_at=None).first()
    if unfinished is None and last_training(annotator):
        return statements
    return statements.filter(position__lt=unfinished.n_answered if unfinished else 0)
