"""The page on which experts say what is right where annotators differ, without seeing who said what."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from annotation.models import JudgmentTask, Label, Round
from annotation.quality.adjudication import QUEUES, adjudicate, waiting
from annotation.quality.forms import AdjudicationForm
from annotation.quality.statement_lists import with_all_about
from kgharvest.access import researcher_required

IN_WORDS = {"undecided": "without a majority", "contested": "where people differ"}


@never_cache
@researcher_required
def adjudication(request: HttpRequest, name: str) -> HttpResponse:
    """One statement at a time; `?task=` returns to one, `?after=` goes on behind a position, `?votes=1` shows votes."""
    round = get_object_or_404(Round.objects.adjudicated_by(request.user).select_related("study"), name=name)
    queue = request.GET.get("queue")
    asked = {"queue": queue if queue in QUEUES else "undecided", "votes": request.GET.get("votes", "") and "1"}
    if request.method == "POST":
        return _store(request, round, asked)
    tasks = waiting(round, asked["queue"])
    context = {
        "round": round,
        "task": _task(request, round, tasks),
        "n_left": tasks.count(),
        "asked": asked,
        "queues": IN_WORDS,
        "asked_words": IN_WORDS[asked["queue"]],
        "labels": Label,
        "client_uuid": uuid4(),
    }
    return render(request, "annotation/quality/adjudication.html", context)


def _task(request: HttpRequest, round: Round, tasks) -> JudgmentTask | None:
    """Return the task that is asked for, else the next one of the queue behind a position, else its first."""
    if _number(request, "task"):
        return get_object_or_404(with_all_about(round.tasks.without_gold()), pk=_number(request, "task"))
    tasks = with_all_about(tasks)
    after = _number(request, "after")
    behind = tasks.filter(position__gt=after).first() if after is not None else None
    return behind or tasks.first()


def _number(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _store(request: HttpRequest, round: Round, asked: dict[str, Any]) -> HttpResponse:
    form = AdjudicationForm(request.POST)
    if not form.is_valid():
        raise BadRequest("The adjudication is not valid; reload the page and answer again.")
    given = form.cleaned_data
    task = get_object_or_404(round.tasks.without_gold(), pk=given.pop("task"))
    done = adjudicate(task, by=request.user, is_blind=not asked["votes"], **given)
    said = done.get_label_display()
    messages.success(request, f"Adjudicated as {said}: {task.statement}")
    page = reverse("annotation:adjudication", args=[round.name])
    return redirect(f"{page}?{urlencode(asked | {'after': task.position})}")
