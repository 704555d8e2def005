"""Researchers' pages of a round's annotators: how good they are, limits, and decisions about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from annotation.models import Annotator, Exclusion, Judgment, JudgmentTask, Label, Limits, Round
from annotation.quality.adjudication import QUEUES, adjudicate, waiting
from annotation.quality.annotator_statistics import annotator_statistics, statistics_of
from annotation.quality.exclusion import exclude_annotator
from annotation.quality.exclusion_effect import exclusion_effect
from annotation.quality.forms import AdjudicationForm, ExclusionForm, LimitsForm
from annotation.quality.limits import limits_sentence, set_limits
from annotation.quality.statement_lists import (
    MARKS,
    Filters,
    all_page,
    contested_page,
    gold_page,
    marked_page,
    patterns,
    statements_alike,
    with_all_about,
)
from annotation.rounds.progress import OUTCOMES
from annotation.rounds.views import visible_round
from kgharvest.access import researcher_required
from kgharvest.bulk.pagination import page_of, sort_key
from kgharvest.errors import DomainError
from kgharvest.models import Relation

SORTABLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "code": lambda each: each["code"],
    "judged": lambda each: each["n"],
    "gold": lambda each: each["gold"]["value"],
    "agreement": lambda each: each["agreement"],
    "seconds": lambda each: each["median_seconds"],
    "fast": lambda each: each["too_fast"],
    "true": lambda each: each["shares"]["true"],
    "run": lambda each: each["longest_run"],
    "comments": lambda each: each["n_comments"],
    "flags": lambda each: len(each["flags"]),
}
N_COMMENTS = 20


@researcher_required
def annotator_list(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    found = annotator_statistics(round, timezone.now())
    asked = {"q": request.GET.get("q", "").strip(), "flagged": request.GET.get("flagged", "")}
    sort = sort_key(request, SORTABLE, "-judged")
    context = {
        "round": round,
        "page_obj": page_of(request, in_order(matching(found.content, asked), sort)),
        "n_all": len(found.content),
        "counted_at": found.counted_at,
        "asked": asked,
        "sort": sort,
        "limits": limits_sentence(Limits.objects.filter(round=round).first() or Limits()),
        "can_manage": may_manage(request, round),
    }
    return render(request, "annotation/quality/annotator_list.html", context)


def matching(rows: Sequence[dict[str, Any]], asked: dict[str, str]) -> list[dict[str, Any]]:
    wanted = asked["q"].casefold()
    return [
        each
        for each in rows
        if wanted in f"{each['code']} {each['who']}".casefold() and (each["flags"] or not asked["flagged"])
    ]


def in_order(rows: Sequence[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Sort by a column, those without a value last whichever way."""
    value = SORTABLE[sort.removeprefix("-")]
    known = [each for each in rows if value(each) is not None]
    return sorted(known, key=value, reverse=sort.startswith("-")) + [each for each in rows if value(each) is None]


@researcher_required
def annotator_detail(request: HttpRequest, name: str, code: str) -> HttpResponse:
    round = visible_round(request, name)
    annotator = get_object_or_404(round.annotators.select_related("user", "invite"), code=code)
    commented = Judgment.objects.current().filter(annotator=annotator).exclude(comment="").select_related("task")
    context = {
        "round": round,
        "annotator": annotator,
        "statistics": statistics_of(annotator, timezone.now()),
        "comments": commented.order_by("-judged_at")[:N_COMMENTS],
        "reports": annotator.reports.select_related("task")[:N_COMMENTS],
        "exclusions": annotator.exclusions.select_related("excluded_by", "reinstated_by"),
        "events": round.events.filter(annotator=annotator).select_related("by")[:N_COMMENTS],
        "can_manage": may_manage(request, round),
    }
    return render(request, "annotation/quality/annotator_detail.html", context)


@researcher_required
@require_POST
def annotator_change(request: HttpRequest, name: str, code: str, change: Callable[..., Any]) -> HttpResponse:
    """Pause, resume or reinstate: `change` is the service's function."""
    annotator = managed_annotator(request, name, code)
    try:
        done = change(annotator, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        if isinstance(done, Exclusion):
            messages.success(request, reinstated_in_words(done))
    return redirect("annotation:annotator", name, code)


def reinstated_in_words(exclusion: Exclusion) -> str:
    exclusion.refresh_from_db()
    left_out = exclusion.n_left_out
    kept = f"; {left_out} are kept but stay uncounted, because others took their place" if left_out else ""
    return f"{exclusion.annotator} is reinstated: {exclusion.n_counted_again} judgments count again{kept}."


@researcher_required
def annotator_exclude(request: HttpRequest, name: str, code: str) -> HttpResponse:
    """Show what excluding would do; do it once a reason is given."""
    annotator = managed_annotator(request, name, code)
    form = ExclusionForm(request.POST or None)
    effect = exclusion_effect(annotator)
    if form.is_valid():
        try:
            exclusion = exclude_annotator(annotator, form.cleaned_data["reason"], by=request.user, effect=effect)
        except DomainError as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, f"{annotator} is excluded: {exclusion.n_judgments} judgments count no more.")
        return redirect("annotation:annotator", name, code)
    context = {"round": annotator.round, "annotator": annotator, "effect": effect, "form": form}
    return render(request, "annotation/quality/annotator_exclude.html", context)


@researcher_required
def round_limits(request: HttpRequest, name: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    form = LimitsForm(request.POST or None, instance=Limits.objects.filter(round=round).first() or Limits(round=round))
    if form.is_valid():
        limits = set_limits(round, by=request.user, **form.cleaned_data)
        messages.success(request, f"Limits of {round.name}: {limits_sentence(limits)}.")
        return redirect("annotation:annotator_list", name)
    return render(request, "annotation/quality/round_limits.html", {"round": round, "form": form})


def managed_annotator(request: HttpRequest, name: str, code: str) -> Annotator:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    return get_object_or_404(round.annotators.select_related("round", "user"), code=code)


def may_manage(request: HttpRequest, round: Round) -> bool:
    return Round.objects.managed_by(request.user).filter(pk=round.pk).exists()


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


SHOWN = {
    "contested": "where people differ",
    "all": "all",
    "reported": "reported as broken",
    "commented": "commented on",
    "adjudicated": "adjudicated",
    "gold": "gold",
}


@researcher_required
def statement_list(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    asked = {key: request.GET.get(key, "") for key in ("show", "relation", "pattern", "verdict")}
    asked["show"] = asked["show"] if asked["show"] in SHOWN else "contested"
    statements, counted_at = statements_alike(round)
    context = {
        "round": round,
        "asked": asked,
        "is_filtered": asked != dict.fromkeys(asked, "") | {"show": "contested"},
        "shown": SHOWN,
        "relations": Relation.objects.filter(strata__round=round).distinct().order_by("name"),
        "patterns": patterns(statements),
        "counted_at": counted_at,
        "outcomes": OUTCOMES,
        "can_adjudicate": Round.objects.adjudicated_by(request.user).filter(pk=round.pk).exists(),
    }
    return render(
        request, "annotation/quality/statement_list.html", context | page_context(request, round, asked, statements)
    )


def page_context(request: HttpRequest, round: Round, asked: dict[str, str], statements) -> dict[str, Any]:
    """Return the tasks of the page that is asked for, how many the list has, and what leads to its other pages."""
    filters = Filters.of(asked)
    if asked["show"] == "contested":
        page = contested_page(round, filters, statements, request.GET.get("page"))
        return {"tasks": list(page), "n": page.paginator.count, "page_obj": page}
    if asked["show"] == "all":
        ordered = all_page(round, filters, statements, request.GET)
    elif asked["show"] == "gold":
        ordered = gold_page(round, filters, request.GET)
    else:
        ordered = marked_page(round, filters, MARKS[asked["show"]](round), request.GET)
    return {"tasks": ordered.page.rows, "n": ordered.n, "page": ordered.page}


@researcher_required
def statement_detail(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    round = visible_round(request, name)
    task: JudgmentTask = get_object_or_404(with_all_about(round.tasks), pk=pk)
    draws = task.draws.select_related("stratum__language_model", "stratum__relation", "harvested_tuple")
    context = {
        "round": round,
        "task": task,
        "draws": draws.order_by("stratum"),
        "earlier": task.judgments.exclude(superseded_by=None).select_related("annotator"),
        "adjudications": task.adjudications.select_related("by"),
        "can_adjudicate": Round.objects.adjudicated_by(request.user).filter(pk=round.pk).exists(),
    }
    return render(request, "annotation/quality/statement_detail.html", context)
