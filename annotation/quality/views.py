"""Researchers' pages of a round's annotators: how good they are, limits, and decisions about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from annotation.models import Annotator, Exclusion, Judgment, Limits, Round
from annotation.quality.exclusion import exclude_annotator
from annotation.quality.exclusion_effect import exclusion_effect
from annotation.quality.forms import ExclusionForm, LimitsForm
from annotation.quality.limits import annotator_statistics, limits_in_words, set_limits, statistics_of
from annotation.rounds.progress_views import visible_round
from kgharvest.access import researcher_required
from kgharvest.bulk.lists import page_of, sort_key
from kgharvest.errors import DomainError

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
        "limits": limits_in_words(Limits.objects.filter(round=round).first() or Limits()),
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
        "theirs": statistics_of(annotator, timezone.now()),
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
        messages.success(request, f"Limits of {round.name}: {limits_in_words(limits)}.")
        return redirect("annotation:annotator_list", name)
    return render(request, "annotation/quality/round_limits.html", {"round": round, "form": form})


def managed_annotator(request: HttpRequest, name: str, code: str) -> Annotator:
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    return get_object_or_404(round.annotators.select_related("round", "user"), code=code)


def may_manage(request: HttpRequest, round: Round) -> bool:
    return Round.objects.managed_by(request.user).filter(pk=round.pk).exists()
