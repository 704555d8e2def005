"""Researchers' pages of rounds."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.defaultfilters import pluralize
from django.utils import timezone
from django.views.decorators.http import require_POST

from annotation.exchange.judgment_export import FORMATS, judgment_rows
from annotation.models import Round
from annotation.rounds.progress import progress
from annotation.rounds.services import close_round
from kgharvest.access import researcher_required
from kgharvest.bulk.lists import page_of, sort_key, sorted_by
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob

ROUND_COLUMNS = {
    "name": "name",
    "study": "study__name",
    "status": "status",
    "statements": "n_tasks",
    "opened": "opened_at",
}


@researcher_required
def round_list(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "status")}
    rounds = Round.objects.visible_to(request.user).select_related("study")
    rounds = rounds.annotate(n_annotators=Count("annotators", distinct=True))
    if asked["q"]:
        rounds = rounds.filter(Q(name__icontains=asked["q"]) | Q(study__name__icontains=asked["q"]))
    if asked["status"]:
        rounds = rounds.filter(status=asked["status"])
    sort = sort_key(request, ROUND_COLUMNS, "-opened")
    context = {
        "page_obj": page_of(request, sorted_by(rounds, sort, ROUND_COLUMNS)),
        "asked": asked,
        "is_filtered": any(asked.values()),
        "statuses": Round.Status.choices,
        "sort": sort,
        "has_harvests": HarvestJob.objects.succeeded().filter(n_tuples__gt=0).exists(),
    }
    return render(request, "annotation/rounds/round_list.html", context)


@researcher_required
@require_POST
def round_change(request: HttpRequest, name: str, change: Callable[..., None]) -> HttpResponse:
    """Pause or reopen: `change` is the service's function."""
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    try:
        change(round, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect(round)


@researcher_required
def round_close(request: HttpRequest, name: str) -> HttpResponse:
    """Ask first: what is still open stays incomplete."""
    round = get_object_or_404(Round.objects.managed_by(request.user), name=name)
    if request.method == "POST":
        return _close(request, round)
    return render(
        request, "annotation/rounds/round_close.html", {"round": round, "progress": progress(round, timezone.now())}
    )


def _close(request: HttpRequest, round: Round) -> HttpResponse:
    try:
        n = close_round(round, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        came_back = f" {n} statement{pluralize(n)} that people had in hand came back." if n else ""
        messages.success(request, f"The round {round.name} is closed.{came_back}")
    return redirect(round)


@researcher_required
def round_export(request: HttpRequest, name: str, file_format: str) -> HttpResponse:
    round = get_object_or_404(Round.objects.visible_to(request.user), name=name)
    if file_format not in FORMATS:
        raise Http404(f"Judgments come as {', '.join(FORMATS)}.")
    chosen = FORMATS[file_format]
    response = StreamingHttpResponse(chosen.write(judgment_rows(round)), content_type=chosen.content_type)
    response["Content-Disposition"] = f'attachment; filename="{round.name}-judgments.{file_format}"'
    return response
