"""Researcher pages of panels: list, form, detail page with participants, and CSV."""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from annotation.invites.views import managed_round
from annotation.models import Round
from annotation.rounds.forms import option_field
from kgharvest.access import researcher_required
from kgharvest.bulk.pagination import number_in, page_of, sort_key
from kgharvest.contrib.recruiting.models import Panel, Platform, Submission
from kgharvest.contrib.recruiting.panels.money import BadMoney, decimal_money, money, parse_money
from kgharvest.contrib.recruiting.panels.participants import CSV_COLUMNS, csv_rows, participant_rows, places_of
from kgharvest.contrib.recruiting.panels.presets import PRESETS, default_options, entry_link, link_parameters_note
from kgharvest.contrib.recruiting.panels.publishing import (
    cost_in_words,
    create_panel,
    delete_panel,
    edit_panel,
    publish_panel,
    stop_panel,
)
from kgharvest.contrib.recruiting.panels.services import free_place
from kgharvest.contrib.recruiting.platforms import Can, platform_of
from kgharvest.pages.panels import Panel as PagePanel
from kgharvest.pages.panels import button
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import csv_lines
from kgharvest.tables.table import table_of_records

ParticipantRow = dict[str, Any]  # as returned by participant_rows

PARTICIPANT_COLUMNS: dict[str, Callable[[ParticipantRow], Any]] = {
    "entered": lambda row: row["entered_at"],
    "participant": lambda row: row["participant"],
    "status": lambda row: row["status_in_words"],
    "time": lambda row: row["active_s"] or 0.0,
    "judged": lambda row: row["n_judged"],
    "gold": lambda row: row["n_gold_right"] / row["n_gold"] if row["n_gold"] else -1,
    "owed": lambda row: row["owed"],
    "paid": lambda row: row["paid"],
}


def for_panel(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Call a view with the panel named in the URL, for members who can work in its project."""

    @never_cache
    @researcher_required
    @wraps(view)
    def view_of_panel(request: HttpRequest, path: str, name: str, **arguments: Any) -> HttpResponse:
        panels = managed_round(request, path).panels.select_related("round__project")
        return view(request, get_object_or_404(panels, name=name), **arguments)

    return view_of_panel


class PanelForm(forms.ModelForm):
    """Options of a panel. GROUPS are collapsed. Amounts are entered as decimals in the form's currency."""

    FIRST = ("name", "places", "statements_per_place", "estimated_minutes", "currency", "reward")
    GROUPS = (
        ("Codes and return URLs", (
            "completion_code", "completion_url", "screen_out_code", "screen_out_url", "quota_full_code",
            "quota_full_url",
        )),
        ("Entry link parameters", ("participant_parameter", "study_parameter", "session_parameter")),
        ("Additional pay options", ("hourly_floor", "screen_out_reward")),
    )  # fmt: skip
    AMOUNTS = {
        "reward": "Pay per completed place, for example 3.00.",
        "screen_out_reward": "Pay for the time of a participant who fails the comprehension check.",
        "hourly_floor": "Per hour of active time. If the median falls below it, the panel pauses and lists the missing "
        "bonuses. 0: no minimum.",
    }

    class Meta:
        model = Panel
        fields = [name for name in Panel.OPTIONS if name != "is_sandbox"]
        formfield_callback = option_field
        widgets = {"platform": forms.HiddenInput}

    def __init__(self, data: Any, initial: dict[str, Any]):
        amounts = {name: decimal_money(initial.get(name, 0), initial.get("currency", "USD")) for name in self.AMOUNTS}
        super().__init__(data, initial={**initial, **amounts})
        for name, help_text in self.AMOUNTS.items():
            self.fields[name] = forms.CharField(label=self.fields[name].label, required=False, help_text=help_text)
        preset = PRESETS[Platform(initial["platform"])]
        self.fields["completion_url"].widget.attrs["placeholder"] = preset.return_address

    def _post_clean(self) -> None:
        """Skip model validation: the service validates with clearer messages."""

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        currency = values.get("currency") or "USD"
        for name in self.AMOUNTS:
            try:
                values[name] = parse_money(values.get(name) or "0", currency)
            except BadMoney as refusal:
                self.add_error(name, str(refusal))
        return values

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value is not None}

    def first_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("platform", *self.FIRST)]

    def groups(self) -> list[tuple[str, list[forms.BoundField], bool]]:
        """Return (heading, fields, is open) per group. Groups that may contain an error are open."""
        is_refused = bool(self.non_field_errors())
        groups = [(heading, [self[name] for name in names]) for heading, names in self.GROUPS]
        return [(heading, fields, is_refused or any(field.errors for field in fields)) for heading, fields in groups]


@never_cache
@researcher_required
@require_GET
def panel_list(request: HttpRequest, path: str) -> HttpResponse:
    round = managed_round(request, path)
    page = page_of(request, round.panels.order_by("-pk"))
    context = {
        "round": round,
        "page_obj": page,
        "panels": [(panel, places_of(panel), money(panel.reward, panel.currency)) for panel in page],
    }
    return render(request, "recruiting/panels/panel_list.html", context)


@never_cache
@researcher_required
def panel_new(request: HttpRequest, path: str) -> HttpResponse:
    """Show the form with the defaults for the round, or create the draft. `?platform=` selects the platform."""
    round = managed_round(request, path)
    platforms = {platform: platform.label for platform in Platform if not platform.is_closed}
    selected = request.POST.get("platform") or request.GET.get("platform")
    platform = Platform(selected) if selected in platforms else Platform.LINK
    form = PanelForm(request.POST or None, {"platform": platform, **default_options(round, platform)})
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(create_panel(round, form.options(), request.user))
    context = {"round": round, "form": form, "platform": platform, "platforms": platforms.items()}
    return render(request, "recruiting/panels/panel_form.html", context, status=400 if form.errors else 200)


@for_panel
def panel_edit(request: HttpRequest, panel: Panel) -> HttpResponse:
    form = PanelForm(request.POST or None, {name: getattr(panel, name) for name in Panel.OPTIONS})
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(edit_panel(panel, form.options(), request.user))
    context = {"round": panel.round, "panel": panel, "form": form}
    return render(request, "recruiting/panels/panel_form.html", context, status=400 if form.errors else 200)


@for_panel
@require_GET
def panel(request: HttpRequest, panel: Panel) -> HttpResponse:
    filters = {name: request.GET.get(name, "").strip() for name in ("q", "status")}
    sort = sort_key(request, PARTICIPANT_COLUMNS, "-entered")
    rows = participant_rows(panel)
    order, is_descending = PARTICIPANT_COLUMNS[sort.removeprefix("-")], sort.startswith("-")
    page = page_of(request, sorted(filtered_participants(rows, **filters), key=order, reverse=is_descending))
    for row in page:
        row["owed_in_words"] = money(row["owed"], panel.currency)
        row["paid_in_words"] = money(row["paid"], panel.currency)
    can = platform_of(panel).can
    address = reverse("recruiting:panel_enter", args=[panel.token])
    context = {
        "round": panel.round,
        "panel": panel,
        "entry_link": entry_link(panel, request.build_absolute_uri(address)),
        "link_parameters_note": link_parameters_note(panel),
        "places": places_of(panel),
        "reward": money(panel.reward, panel.currency),
        "page_obj": page,
        "n_all": len(rows),
        "filters": filters,
        "statuses": Submission.Status.choices,
        "sort": sort,
        "is_by_hand": Can.PUBLISH not in can,
        "frees_places": Can.RECONCILE not in can,
        "is_unpublished": panel.status == Panel.Status.PUBLISHED and Can.PUBLISH in can and not panel.external_id,
    }
    return render(request, "recruiting/panels/panel.html", context)


def filtered_participants(rows: Sequence[ParticipantRow], q: str, status: str) -> list[ParticipantRow]:
    """Return rows with this status (empty: any) whose participant id, session id, or annotator code contains `q`."""
    return [
        row
        for row in rows
        if status in ("", row["status"])
        and q.casefold() in f"{row['participant']} {row['session']} {row['annotator']}".casefold()
    ]


@for_panel
@require_GET
def participants_csv(request: HttpRequest, panel: Panel) -> HttpResponse:
    table = table_of_records(CSV_COLUMNS, csv_rows(panel))
    return download(csv_lines(table), f"{panel.round.name}-{panel.name}-participants.csv")


@for_panel
def panel_publish(request: HttpRequest, panel: Panel) -> HttpResponse:
    if request.method == "POST":
        return _changed(request, panel, publish_panel)
    if panel.platform == Platform.PROLIFIC and panel.status == Panel.Status.DRAFT:  # Prolific needs more options
        return redirect("recruiting:prolific_study", panel.round.path, panel.name)
    context = {"round": panel.round, "panel": panel, "cost": cost_in_words(panel)}
    context["is_by_hand"] = Can.PUBLISH not in platform_of(panel).can
    return render(request, "recruiting/panels/panel_publish.html", context)


@for_panel
def panel_stop(request: HttpRequest, panel: Panel) -> HttpResponse:
    if request.method == "POST":
        return _changed(request, panel, stop_panel)
    context = {"round": panel.round, "panel": panel, "places": places_of(panel)}
    return render(request, "recruiting/panels/panel_stop.html", context)


@for_panel
@require_POST
def panel_change(request: HttpRequest, panel: Panel, change: Callable[..., None]) -> HttpResponse:
    """Pause or resume. change: the service function."""
    return _changed(request, panel, change)


def _changed(request: HttpRequest, panel: Panel, change: Callable[..., None]) -> HttpResponse:
    with refusal_as_message(request):
        change(panel, by=request.user)
    return redirect(panel)


@for_panel
@require_POST
def panel_delete(request: HttpRequest, panel: Panel) -> HttpResponse:
    with refusal_as_message(request):
        delete_panel(panel, request.user)
        messages.success(request, f"Draft {panel.name} deleted.")
        return redirect("recruiting:panel_list", panel.round.path)
    return redirect(panel)


@for_panel
@require_POST
def panel_free(request: HttpRequest, panel: Panel) -> HttpResponse:
    submission = get_object_or_404(panel.submissions, pk=number_in(request.POST.get("submission")))
    with refusal_as_message(request):
        if free_place(submission, timezone.now(), request.user):
            messages.success(request, "Place released. Its judgments are kept.")
    return redirect(panel)


def recruit(request: HttpRequest, round: Round) -> Iterator[PagePanel]:
    """Link the round page to its panels (PANELS of kgharvest.registries)."""
    if round.source == Round.Source.PEOPLE:
        has_panels = round.panels.exists()
        page, label = ("panel_list", "Panels") if has_panels else ("panel_new", "Recruit people")
        yield button(label, reverse(f"recruiting:{page}", args=[round.path]))
