"""Where annotators differ: a round's statements with what each of them said."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from annotation.models import JudgmentTask, Round
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
from annotation.rounds.progress_views import visible_round
from kgharvest.access import researcher_required
from kgharvest.models import Relation

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
