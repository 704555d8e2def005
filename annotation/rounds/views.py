"""Round pages for researchers."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from annotation.exchange.judgment_export import FILE_FORMATS, judgments_file
from annotation.invites.access import session_annotators
from annotation.models import Annotator, Round, StatementReport
from annotation.monitoring.cells import cell_tables, round_cells
from annotation.monitoring.progress import (
    OUTCOMES,
    capacity_warning,
    history_picture,
    holders,
    last_look,
    progress,
    release_assigned,
    strips,
)
from annotation.rounds.api import RoundFilters
from annotation.rounds.draft_views import draft_page
from annotation.rounds.services import close_round
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404
from kgharvest.bulk.pagination import page_of
from kgharvest.models import HarvestJob
from kgharvest.pages.lists import ListPage
from kgharvest.pages.number_format import count, counted, hours, share
from kgharvest.pages.refusals import refusal_as_message
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, NDJSON


class RoundList(ListPage):
    template_name = "annotation/rounds/round_list.html"
    filters = RoundFilters
    searched = ("name", "project__name")
    columns = {
        "name": "name",
        "project": "project__name",
        "status": "status",
        "statements": "n_tasks",
        "opened": "opened_at",
    }
    order = "-opened"

    def rows(self):
        rounds = Round.objects.visible_to(self.request.user).select_related("project")
        return rounds.annotate(n_annotators=Count("annotators", distinct=True))

    def context(self, page):
        harvests = HarvestJob.objects.visible_to(self.request.user).succeeded()
        return {"statuses": Round.Status.choices, "has_harvests": harvests.filter(n_tuples__gt=0).exists()}


@researcher_required
@require_POST
def round_change(request: HttpRequest, path: str, change: Callable[..., None]) -> HttpResponse:
    round = visible_round(request, path, Action.WORK)
    with refusal_as_message(request):
        change(round, by=request.user)
    return redirect(round)


@researcher_required
def round_close(request: HttpRequest, path: str) -> HttpResponse:
    """Show the confirmation page, or close the round."""
    round = visible_round(request, path, Action.WORK)
    if request.method == "POST":
        with refusal_as_message(request):
            n = close_round(round, by=request.user)
            released = f" {n} assigned statement{pluralize(n)} released." if n else ""
            messages.success(request, f"Round {round.name} closed.{released}")
        return redirect(round)
    context = {"round": round, "progress": progress(round, timezone.now())}
    return render(request, "annotation/rounds/round_close.html", context)


@researcher_required
def round_export(request: HttpRequest, path: str, file_format: str) -> HttpResponse:
    return judgments_file(visible_round(request, path), file_format)


N_ANNOTATORS = 10
N_EVENTS = 5
COUNTS = (*OUTCOMES, "complete", "assigned", "open", "n_judgments", "n_wanted", "n_leased", "n_units")


@cache
def export_formats() -> dict[str, str]:
    return {name: FORMATS[name].title for name in FILE_FORMATS}


@researcher_required
def round_detail(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path)
    if round.status == Round.Status.DRAFT:
        return draft_page(request, round)
    now = timezone.now()
    counts, cells = progress(round, now), round_cells(round, now)
    next_step = "report"
    if round.source == Round.Source.PEOPLE and counts["complete"] < counts["n_tasks"]:
        if round.is_open:
            next_step = "invite"
        elif round.status == Round.Status.PAUSED:
            next_step = "reopen"
    context = {
        "round": round,
        "progress": counts,
        "n_gold": round.n_tasks - counts["n_tasks"] if round.gold_share else 0,
        "capacity_warning": capacity_warning(round, counts["n_left"]),
        "look": last_look(round) if round.closes_at_half_width is not None else None,
        "figures": figures(counts),
        "cells": cell_tables(cells.content, request.GET),
        "cells_counted_at": cells.counted_at,
        "history": history_picture(round, now),
        "strips": strips(round, now, N_ANNOTATORS),
        "n_annotators": round.annotators.count(),
        "holders": holders(round),
        "n_set_aside": round.annotators.exclude(status=Annotator.Status.ACTIVE).count(),
        "n_reported": StatementReport.objects.filter(task__round=round).values("task").distinct().count(),
        "events": round.events[:N_EVENTS],
        "may": allowed_actions(request.user, round.project),
        "next_step": next_step,
        "join_url": request.build_absolute_uri(reverse("annotation:join", args=[round.join_token])),
        "export_formats": export_formats(),
    }
    return render(request, "annotation/rounds/round_detail.html", context)


@never_cache
@researcher_required
def round_progress(request: HttpRequest, path: str) -> JsonResponse:
    """Return the formatted figures that the round page updates. For other changes, the script reloads the page."""
    round = visible_round(request, path)
    counts = progress(round, timezone.now())
    return JsonResponse(
        {
            "status": round.status,
            "done": counts["n_judgments"],
            "total": counts["n_wanted"],
            "figures": figures(counts),
        }
    )


@researcher_required
def round_events(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path)
    page = page_of(request, round.events)
    return render(request, "annotation/quality/round_events.html", {"round": round, "page_obj": page})


@researcher_required
def round_events_file(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path)
    return download(round.events.json_lines(), f"{round.name}-events.jsonl", NDJSON)


def visible_round(request: HttpRequest, path: str, action: Action = Action.VIEW) -> Round:
    """Return the round. Raises Http404 if the user cannot see it, or NotAllowed if they may not perform `action`."""
    return visible_or_404(request.user, Round.objects.select_related("project", "created_by").at(path), action)


def figures(counts: dict[str, Any]) -> dict[str, str]:
    """Return the formatted figures that the page updates, by name."""
    texts = {name: count(counts[name]) for name in COUNTS}
    texts |= {name: share(counts[name]) for name in ("percent_agreement", "alpha")}
    per_hour = counts["judgments_per_hour"]
    texts["per_hour"] = count(None if per_hour is None else round(per_hour))
    texts["time_left"] = hours(counts["hours_left"])
    return texts


# Redirects from old URLs (round name without project)

JUDGING = re.compile(r"(judge|training|device)/")


def old_address(request: HttpRequest, name: str, rest: str = "") -> HttpResponse:
    """Redirect an old URL without a project to the round of this name that the visitor can see or has joined.

    POST requests keep their body (307), so a page that was open during the upgrade can still send its answers.
    """
    if not JUDGING.match(rest):
        return researcher_required(_old_page)(request, name, rest)
    rounds = session_annotators(request).filter(round__name=name).order_by("pk").values_list("round", flat=True)
    if (round_id := rounds.last()) is not None:
        return _redirect_to(request, reverse("annotation:judge", args=[round_id]) + rest.removeprefix("judge/"))
    if request.user.is_authenticated:
        raise Http404("You have not joined this round.")
    return redirect(f"{reverse('annotation:return_by_code')}?{urlencode({'next': request.path})}")


def _old_page(request: HttpRequest, name: str, rest: str) -> HttpResponse:
    rounds = list(Round.objects.visible_to(request.user).filter(name=name).select_related("project")[:2])
    if not rounds:
        raise Http404("Round not found.")
    if len(rounds) > 1:
        return redirect(f"{reverse('annotation:round_list')}?{urlencode({'q': name})}")
    return _redirect_to(request, rounds[0].get_absolute_url() + rest)


def _redirect_to(request: HttpRequest, url: str) -> HttpResponse:
    query = request.META.get("QUERY_STRING", "")
    return HttpResponseRedirect(f"{url}?{query}" if query else url, preserve_request=request.method == "POST")


@researcher_required
@require_POST
def round_release(request: HttpRequest, path: str) -> HttpResponse:
    """Release the statements assigned to the annotators in the parameter `annotator`, or to all if it is missing."""
    round = visible_round(request, path, Action.WORK)
    with refusal_as_message(request):
        n = release_assigned(round, request.POST.getlist("annotator") or None, by=request.user)
        reason = "" if n else "; they were answered or released in the meantime"
        messages.success(request, f"{counted(n, 'assigned statement')} released{reason}.")
    return redirect(round)
