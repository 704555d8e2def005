"""A round's page: what it is, how far it is, what comes next."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache

from annotation.exchange.judgment_export import FORMATS
from annotation.models import Annotator, Round, StatementReport
from annotation.quality.events import event_lines
from annotation.recruiting.capacity import what_blocks
from annotation.rounds.draft_views import draft_page
from annotation.rounds.progress import OUTCOMES, progress
from annotation.templatetags.figures import hours, number, share
from kgharvest.access import researcher_required
from kgharvest.bulk.lists import page_of

N_ANNOTATORS = 10
N_EVENTS = 5
COUNTS = (*OUTCOMES, "complete", "in_hand", "open", "n_judgments", "n_wanted", "n_leased", "n_units")


@researcher_required
def round_detail(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    if round.status == Round.Status.DRAFT:
        return draft_page(request, round)
    found = progress(round, timezone.now())
    cells = page_of(request, found["cells"])
    context = {
        "round": round,
        "progress": found,
        "n_gold": round.n_tasks - found["n_tasks"] if round.gold_share else 0,
        "blocked": what_blocks(round, found["n_left"]),
        "figures": figures(found, cells),
        "page_obj": cells,
        "annotators": round.annotators.select_related("user", "invite").order_by("-n_judged", "code")[:N_ANNOTATORS],
        "n_annotators": round.annotators.count(),
        "n_set_aside": round.annotators.exclude(status=Annotator.Status.ACTIVE).count(),
        "n_reported": StatementReport.objects.filter(task__round=round).values("task").distinct().count(),
        "events": round.events.select_related("by", "annotator")[:N_EVENTS],
        "can_manage": Round.objects.managed_by(request.user).filter(pk=round.pk).exists(),
        "can_adjudicate": Round.objects.adjudicated_by(request.user).filter(pk=round.pk).exists(),
        "join_url": request.build_absolute_uri(reverse("annotation:join", args=[round.join_token])),
        "export_formats": {key: one.name for key, one in FORMATS.items()},
    }
    return render(request, "annotation/rounds/round_detail.html", context)


@never_cache
@researcher_required
def round_progress(request: HttpRequest, name: str) -> JsonResponse:
    """What changes on the round's page, as it is printed there, for the cells of the same page of the list."""
    round = visible_round(request, name)
    found = progress(round, timezone.now())
    return JsonResponse(
        {
            "status": round.status,
            "done": found["n_judgments"],
            "total": found["n_wanted"],
            "figures": figures(found, page_of(request, found["cells"])),
        }
    )


@researcher_required
def round_events(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    page = page_of(request, round.events.select_related("by", "annotator"))
    return render(request, "annotation/quality/round_events.html", {"round": round, "page_obj": page})


@researcher_required
def round_events_file(request: HttpRequest, name: str) -> HttpResponse:
    round = visible_round(request, name)
    response = StreamingHttpResponse(event_lines(round), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{round.name}-events.jsonl"'
    return response


def visible_round(request: HttpRequest, name: str) -> Round:
    rounds = Round.objects.visible_to(request.user).select_related("study", "created_by")
    return get_object_or_404(rounds, name=name)


def figures(found: dict[str, Any], cells) -> dict[str, str]:
    """Return what the page prints and later brings up to date, by name; a cell's by its place in the list."""
    printed = {name: number(found[name]) for name in COUNTS}
    printed |= {name: share(found[name]) for name in ("percent_agreement", "alpha")}
    per_hour = found["judgments_per_hour"]
    printed["per_hour"] = number(None if per_hour is None else round(per_hour))
    printed["time_left"] = hours(found["hours_left"])
    for place, cell in enumerate(cells, start=cells.start_index()):
        printed |= {f"{place}-{outcome}": number(cell[outcome]) for outcome in OUTCOMES}
    return printed
