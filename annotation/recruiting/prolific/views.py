"""Prolific's events as they come in, and the page on which a panel becomes a study there."""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from annotation.models import Panel, PanelEvent, Platform
from annotation.recruiting.events.inbox import store
from annotation.recruiting.panels.money import money
from annotation.recruiting.panels.publishing import Status, cost_in_words, edit_panel, publish_panel
from annotation.recruiting.panels.views import managed_panel
from annotation.recruiting.platforms import Can, platform_of
from annotation.recruiting.prolific.events import event_id, event_type, is_genuine
from annotation.recruiting.prolific.forms import StudyForm
from annotation.recruiting.prolific.study import codes, hourly_pay, screen_out_slots, what_is_missing
from annotation.recruiting.reconciliation import ask_reconciliation
from annotation.refusals import refusal_as_message, refusal_in_form
from kgharvest.access import researcher_required
from kgharvest.accounts.throttle import count_attempt, is_exhausted, network_of
from kgharvest.pages.panels import Panel as PagePanel

LARGEST_EVENT = 64 << 10  # bytes


@csrf_exempt
@require_POST
def take_event(request: HttpRequest) -> HttpResponse:
    """Answer 204 once the event is committed; Prolific sends again what is answered otherwise."""
    address, now = network_of(request), timezone.now()
    if is_exhausted("forged_events", address, now):
        return HttpResponse(status=429, headers={"Retry-After": str(settings.LIMITS["forged_events"][1])})
    if int(request.headers.get("Content-Length") or 0) > LARGEST_EVENT:
        return HttpResponse(status=413)
    try:
        body = request.body
    except RawPostDataException:  # a form, which no event is
        return HttpResponse(status=415)
    if not is_genuine(request.headers, body, time.time()):
        count_attempt("forged_events", address, now)
        return HttpResponse(status=403)
    store(Platform.PROLIFIC, event_id(request.headers, body), event_type(body), body.decode(errors="replace"))
    return HttpResponse(status=204)


@never_cache
@researcher_required
@require_http_methods(["GET", "POST"])
def study(request: HttpRequest, path: str, name: str) -> HttpResponse:
    """The study as participants will see it, what it costs, and the button that publishes it."""
    panel = managed_panel(request, path, name)
    if panel.platform != Platform.PROLIFIC:
        raise Http404
    if panel.status != Status.DRAFT:
        messages.info(request, f"{panel.name} is published already.")
        return redirect(panel)
    form = StudyForm(panel, request.POST if request.method == "POST" else None)
    if form.is_valid():
        with refusal_in_form(form):
            panel = edit_panel(panel, {"platform_options": form.options}, request.user)
            if request.POST.get("action") == "publish":
                publish_panel(panel, request.user)
                messages.success(request, "The study is published at Prolific; people come within minutes.")
                return redirect(panel)
            messages.success(request, "Saved. Nothing is published yet.")
            return redirect("annotation:prolific_study", panel.round.path, panel.name)
    return render(request, "annotation/recruiting/prolific/study.html", _context(panel, form))


def _context(panel: Panel, form: StudyForm) -> dict:
    paid_screen_outs = panel.screen_out_reward * screen_out_slots(panel)
    folded = ("youngest", "oldest", "least_approved", "filters", "maximum_minutes", "screen_out_slots", "project")
    return {
        "panel": panel,
        "round": panel.round,
        "form": form,
        "first_fields": [field for field in form if field.name not in (*folded, "signs_entry")],
        "folded_fields": [field for field in form if field.name in (*folded, "signs_entry")],
        "has_folded_errors": any(name in form.errors for name in folded),
        "cost": cost_in_words(panel),
        "screen_out_cost": money(paid_screen_outs, panel.currency) if paid_screen_outs else "",
        "hourly": money(hourly_pay(panel), panel.currency),
        "reward": money(panel.reward, panel.currency),
        "codes": list(codes(panel)),
        "missing": [reason for reason in what_is_missing(panel) if "title" not in reason],
        "has_events": bool(settings.PROLIFIC["webhook_secret"]),
    }


@researcher_required
@require_POST
def panel_reconcile(request: HttpRequest, path: str, name: str) -> HttpResponse:
    """Have a worker compare the panel with what its platform has."""
    panel = managed_panel(request, path, name)
    with refusal_as_message(request):
        ask_reconciliation(panel, request.user)
        messages.success(request, "A worker compares it with the platform within seconds; reload the page then.")
    return redirect(panel)


# Panel on the page of a recruiting panel


def platform_state(request: HttpRequest, panel: Panel) -> Iterator[PagePanel]:
    """How far the platform and we agree, once it has a study."""
    if Can.RECONCILE not in platform_of(panel).can or not panel.external_id:
        return
    failed = PanelEvent.objects.filter(platform=panel.platform, handled_at=None, n_tries__gt=1).order_by("-pk")
    newest = failed.first()
    context = {"panel": panel, "n_waiting_events": failed.count(), "event_error": newest.error if newest else ""}
    yield PagePanel("annotation/recruiting/prolific/_panel.html", context)
