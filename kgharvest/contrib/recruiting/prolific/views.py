"""Prolific webhook endpoint, study page, and platform status on the panel page."""

import json
import time
from collections.abc import Iterator
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, RawPostDataException
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from kgharvest.accounts.throttle import count_attempt, is_exhausted, network_of
from kgharvest.contrib.recruiting.models import Panel, PanelEvent, Platform
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.publishing import Status, cost_in_words, edit_panel, publish_panel
from kgharvest.contrib.recruiting.platforms import platform_of
from kgharvest.contrib.recruiting.prolific import platform as prolific
from kgharvest.contrib.recruiting.prolific.events import is_genuine, store
from kgharvest.contrib.recruiting.reconciliation import ask_reconciliation
from kgharvest.contrib.recruiting.views import for_panel, panel_page
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import Panel as PagePanel
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form

LARGEST_EVENT = 64 << 10  # maximum bytes of an event
EXAMPLE = '[{"filter_id": "fluent-languages", "selected_values": ["19"]}]'


@csrf_exempt
@require_POST
def take_event(request: HttpRequest) -> HttpResponse:
    """Answer 204 after the event has been committed. Prolific retries after any other answer."""
    address, now = network_of(request), timezone.now()
    if is_exhausted("forged_events", address, now):
        return HttpResponse(status=429, headers={"Retry-After": str(settings.LIMITS["forged_events"][1])})
    if int(request.headers.get("Content-Length") or 0) > LARGEST_EVENT:
        return HttpResponse(status=413)
    try:
        body = request.body
    except RawPostDataException:  # the body is a form, but events are JSON
        return HttpResponse(status=415)
    if not is_genuine(request.headers, body, time.time()):
        count_attempt("forged_events", address, now)
        return HttpResponse(status=403)
    store(request.headers, body)
    return HttpResponse(status=204)


@for_panel
@require_http_methods(["GET", "POST"])
def study(request: HttpRequest, panel: Panel) -> HttpResponse:
    """Show the study's description and cost, and publish the study on Prolific."""
    if panel.platform != Platform.PROLIFIC:
        raise Http404
    if panel.status != Status.DRAFT:
        messages.info(request, f"Panel {panel.name} is already published.")
        return redirect(panel)
    form = StudyForm(panel, request.POST if request.method == "POST" else None)
    if form.is_valid():
        with refusal_in_form(form):
            panel = edit_panel(panel, {"platform_options": form.options}, request.user)
            if request.POST.get("action") == "publish":
                publish_panel(panel, request.user)
                messages.success(request, "Study published on Prolific. Participants can enter within minutes.")
                return redirect(panel)
            messages.success(request, "Draft saved. The study is not published yet.")
            return redirect("recruiting:prolific_study", panel.round.path, panel.name)
    screen_out_cost = panel.screen_out_reward * prolific.screen_out_slots(panel)
    folded_fields = [field for field in form if field.name in StudyForm.FOLDED]
    return panel_page(
        request,
        panel,
        "prolific/study",
        form=form,
        first_fields=[field for field in form if field.name not in StudyForm.FOLDED],
        folded_fields=folded_fields,
        has_folded_errors=any(field.errors for field in folded_fields),
        cost=cost_in_words(panel),
        screen_out_cost=money(screen_out_cost, panel.currency) if screen_out_cost else "",
        hourly=money(panel.hourly_reward, panel.currency),
        reward=money(panel.reward, panel.currency),
        codes=list(prolific.codes(panel)),
        missing=[problem for problem in prolific.publication_problems(panel) if "title" not in problem],
        has_events=bool(settings.PROLIFIC["webhook_secret"]),
    )


@for_panel
@require_POST
def panel_reconcile(request: HttpRequest, panel: Panel) -> HttpResponse:
    with refusal_as_message(request):
        ask_reconciliation(panel, request.user)
        messages.success(request, "Sync requested. Reload the page in a few seconds to see the result.")
    return redirect(panel)


def platform_state(request: HttpRequest, panel: Panel) -> Iterator[PagePanel]:
    """Yield the section on the sync with Prolific for the panel page, once the panel has a study."""
    if not platform_of(panel).has_api or not panel.external_id:
        return
    failed = PanelEvent.objects.filter(platform=panel.platform, handled_at=None, n_tries__gt=1).order_by("-pk")
    newest = failed.first()
    context = {"panel": panel, "n_waiting_events": failed.count(), "event_error": newest.error if newest else ""}
    yield PagePanel("recruiting/prolific/_panel.html", context)


class StudyForm(forms.Form):
    """Form for the options of a study. `options` returns the value for panel.platform_options."""

    FOLDED = (
        "youngest", "oldest", "least_approved", "filters", "maximum_minutes", "screen_out_slots", "project",
        "signs_entry",
    )  # fmt: skip

    title = forms.CharField(
        max_length=120, help_text="Title in Prolific's list of studies: describe the task in plain words."
    )
    description = forms.CharField(
        max_length=6000,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text="Description shown before the study starts. Allowed HTML tags: p, b, i, ul, ol, li, h1, h2.",
    )
    devices = forms.MultipleChoiceField(
        choices=list(prolific.DEVICES.items()), widget=forms.CheckboxSelectMultiple, initial=list(prolific.DEVICES)
    )
    content_warning = forms.ChoiceField(
        choices=list(prolific.CONTENT_WARNINGS.items()),
        required=False,
        help_text="Statements come from a language model, so some may be sensitive.",
    )
    content_warning_details = forms.CharField(max_length=500, required=False)
    youngest = forms.IntegerField(min_value=18, max_value=100, required=False, label="Minimum age")
    oldest = forms.IntegerField(min_value=18, max_value=100, required=False, label="Maximum age")
    least_approved = forms.IntegerField(
        min_value=0,
        max_value=100,
        required=False,
        label="Minimum approval rate",
        help_text="Percentage of the participant's previous submissions.",
    )
    filters = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label="Additional filters",
        help_text=f"JSON with names and values from Prolific's list of filters: {EXAMPLE}",
    )
    maximum_minutes = forms.IntegerField(
        min_value=1,
        max_value=prolific.LONGEST_ALLOWED,
        required=False,
        label="Maximum allowed time (minutes)",
        help_text="After this time, the place is released. Default: Prolific's minimum for the estimated time.",
    )
    screen_out_slots = forms.IntegerField(
        min_value=1,
        max_value=prolific.MOST_SLOTS,
        required=False,
        label="Maximum paid screen-outs",
        help_text="Maximum number of paid screen-outs before Prolific pauses the study. Default: the number of places.",
    )
    project = forms.CharField(
        max_length=50, required=False, help_text="Prolific project id. Default: the account's first project."
    )
    signs_entry = forms.BooleanField(
        required=False,
        label="Require signed entry links",
        help_text="Only for workspaces with this feature. Links that Prolific has not signed are refused.",
    )

    def __init__(self, panel: Panel, data: Any = None):
        self.panel = panel
        options = dict(panel.platform_options)
        filters = options.pop("filters", [])
        ranges = {row["filter_id"]: row["selected_range"] for row in filters if "selected_range" in row}
        # Filters that have separate fields.
        ranges = {name: ranges[name] for name in ("age", "approval_rate") if name in ranges}
        additional = [row for row in filters if row["filter_id"] not in ranges]
        n, minutes = counted(panel.statements_per_place, "short statement"), counted(panel.estimated_minutes, "minute")
        initial = {
            "title": f"Judge {n}",
            "description": f"<p>You read {n}, one at a time, and decide for each one whether it is true. The study "
            f"starts with instructions and takes about {minutes}.</p>",
            **options,
            "youngest": ranges.get("age", {}).get("lower"),
            "oldest": ranges.get("age", {}).get("upper"),
            "least_approved": ranges.get("approval_rate", {}).get("lower"),
            "filters": json.dumps(additional) if additional else "",
        }
        super().__init__(data, initial=initial)

    def clean_filters(self) -> list[dict[str, Any]]:
        text = self.cleaned_data["filters"]
        try:
            filters = json.loads(text) if text.strip() else []
        except (ValueError, RecursionError) as error:
            raise ValidationError(f"Invalid JSON ({error}). Example: {EXAMPLE}") from None
        for problem in prolific.filter_problems(filters):
            raise ValidationError(f"{problem} Example: {EXAMPLE}")
        return filters

    def clean_maximum_minutes(self) -> int | None:
        minutes = self.cleaned_data["maximum_minutes"]
        least = prolific.least_allowed_minutes(self.panel.estimated_minutes)
        if minutes is not None and minutes < least:
            raise ValidationError(prolific.too_few_minutes(least))
        return minutes

    def clean(self) -> dict[str, Any]:
        youngest, oldest = self.cleaned_data.get("youngest"), self.cleaned_data.get("oldest")
        if youngest and oldest and youngest > oldest:
            self.add_error("oldest", "The maximum age is below the minimum age.")
        return self.cleaned_data

    @property
    def options(self) -> dict[str, Any]:
        """Options of the study in a valid form, in the format of panel.platform_options."""
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
    return {"filter_id": name, "selected_range": {end: bound for end, bound in bounds.items() if bound is not None}}
