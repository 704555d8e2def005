"""Prolific's events as they come in, and the page on which a panel becomes a study there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from kgharvest.accounts.throttle import count_attempt, is_exhausted, network_of
from kgharvest.contrib.recruiting.events.inbox import store
from kgharvest.contrib.recruiting.models import Panel, PanelEvent, Platform
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.publishing import Status, cost_in_words, edit_panel, publish_panel
from kgharvest.contrib.recruiting.panels.views import for_panel
from kgharvest.contrib.recruiting.platforms import Can, platform_of
from kgharvest.contrib.recruiting.prolific.events import event_id, event_type, is_genuine
from kgharvest.contrib.recruiting.prolific.study import (
    CONTENT_WARNINGS,
    DEVICES,
    LONGEST_ALLOWED,
    MOST_SLOTS,
    codes,
    filter_problems,
    hourly_pay,
    least_allowed_minutes,
    screen_out_slots,
    what_is_missing,
)
from kgharvest.contrib.recruiting.reconciliation import ask_reconciliation
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import Panel as PagePanel
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form

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


@for_panel
@require_http_methods(["GET", "POST"])
def study(request: HttpRequest, panel: Panel) -> HttpResponse:
    """The study as participants will see it, what it costs, and the button that publishes it."""
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
            return redirect("recruiting:prolific_study", panel.round.path, panel.name)
    return render(request, "recruiting/prolific/study.html", _context(panel, form))


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


@for_panel
@require_POST
def panel_reconcile(request: HttpRequest, panel: Panel) -> HttpResponse:
    """Have a worker compare the panel with what its platform has."""
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
    yield PagePanel("recruiting/prolific/_panel.html", context)


OF_THE_FORM = ("age", "approval_rate")  # filters that have fields of their own
EXAMPLE = '[{"filter_id": "fluent-languages", "selected_values": ["19"]}]'


class StudyForm(forms.Form):
    """The options of a study; `options` are those that panel.platform_options keep."""

    title = forms.CharField(
        max_length=120, help_text="Participants see it in the list of studies: what they will do, in plain words."
    )
    description = forms.CharField(
        max_length=6000,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="What they read before they begin. Simple HTML is shown: p, b, i, ul, ol, li, h1, h2.",
    )
    devices = forms.MultipleChoiceField(
        choices=list(DEVICES.items()), widget=forms.CheckboxSelectMultiple, initial=list(DEVICES)
    )
    content_warning = forms.ChoiceField(
        choices=list(CONTENT_WARNINGS.items()),
        required=False,
        help_text="Statements come from a language model: some may be sensitive.",
    )
    content_warning_details = forms.CharField(max_length=500, required=False)
    youngest = forms.IntegerField(min_value=18, max_value=100, required=False, label="Youngest age")
    oldest = forms.IntegerField(min_value=18, max_value=100, required=False, label="Oldest age")
    least_approved = forms.IntegerField(
        min_value=0,
        max_value=100,
        required=False,
        label="Least approval rate",
        help_text="In percent of what somebody has submitted before.",
    )
    filters = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label="More filters",
        help_text=f"As JSON, in the names and values that Prolific's list of filters has: {EXAMPLE}",
    )
    maximum_minutes = forms.IntegerField(
        min_value=1,
        max_value=LONGEST_ALLOWED,
        required=False,
        label="Minutes that people may take",
        help_text="Then their place goes to somebody else. Empty: as few as Prolific allows for the estimated time.",
    )
    screen_out_slots = forms.IntegerField(
        min_value=1,
        max_value=MOST_SLOTS,
        required=False,
        label="Most paid screen-outs",
        help_text="So many are paid for being turned away by a check before Prolific pauses the study. Empty: as many "
        "as there are places.",
    )
    project = forms.CharField(
        max_length=50, required=False, help_text="Id of the project at Prolific; empty for the account's first one."
    )
    signs_entry = forms.BooleanField(
        required=False,
        label="Prolific signs the entry link",
        help_text="Only for workspaces that have it. Nobody comes in by a link that Prolific has not signed.",
    )

    def __init__(self, panel: Panel, data: Any = None):
        self.panel = panel
        super().__init__(data, initial=_initial(panel))

    def clean_filters(self) -> list[dict[str, Any]]:
        return read_filters(self.cleaned_data["filters"])

    def clean_maximum_minutes(self) -> int | None:
        minutes, least = self.cleaned_data["maximum_minutes"], least_allowed_minutes(self.panel.estimated_minutes)
        if minutes is not None and minutes < least:
            raise ValidationError(f"Prolific lets people have {least} minutes or more for this.")
        return minutes

    def clean(self) -> dict[str, Any]:
        youngest, oldest = self.cleaned_data.get("youngest"), self.cleaned_data.get("oldest")
        if youngest and oldest and youngest > oldest:
            self.add_error("oldest", "The oldest age is below the youngest.")
        return self.cleaned_data

    @property
    def options(self) -> dict[str, Any]:
        """What the form says, as panel.platform_options keep it. Of a valid form."""
        options = {name: value for name, value in self.cleaned_data.items() if value not in (None, "", [], False)}
        youngest, oldest, least = (options.pop(name, None) for name in ("youngest", "oldest", "least_approved"))
        filters = options.pop("filters", [])
        if youngest or oldest:
            filters = [*filters, _range("age", youngest, oldest)]
        if least is not None:
            filters = [*filters, _range("approval_rate", least, 100)]
        return options | ({"filters": filters} if filters else {})


def _range(name: str, lower: int | None, upper: int | None) -> dict[str, Any]:
    bounds = {"lower": lower, "upper": upper}
    selected = {end: bound for end, bound in bounds.items() if bound is not None}
    return {"filter_id": name, "selected_range": selected}


def _initial(panel: Panel) -> dict[str, Any]:
    options = dict(panel.platform_options)
    filters = options.pop("filters", [])
    ranges = {each["filter_id"]: each["selected_range"] for each in filters if "selected_range" in each}
    ranges = {name: ranges[name] for name in OF_THE_FORM if name in ranges}
    more = [each for each in filters if each["filter_id"] not in ranges]
    n, minutes = counted(panel.statements_per_place, "short statement"), counted(panel.estimated_minutes, "minute")
    return {
        "title": f"Say whether {n} are true",
        "description": f"<p>You read {n}, one at a time, and say of each whether it is true. It takes about {minutes}. "
        "Instructions come first.</p>",
        **options,
        "youngest": ranges.get("age", {}).get("lower"),
        "oldest": ranges.get("age", {}).get("upper"),
        "least_approved": ranges.get("approval_rate", {}).get("lower"),
        "filters": json.dumps(more) if more else "",
    }


def read_filters(text: str) -> list[dict[str, Any]]:
    """Return the filters in a JSON text, an empty one for none. Raises ValidationError."""
    if not text.strip():
        return []
    try:
        filters = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"This is no JSON ({error}). Write them as {EXAMPLE}") from None
    for problem in filter_problems(filters):
        raise ValidationError(f"{problem} Write them as {EXAMPLE}")
    return filters
