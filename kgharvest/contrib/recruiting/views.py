"""Pages and files for researchers: panels with their participants, and pay with its balance, ledger, and review."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import wraps
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from annotation.invites.services import return_code
from annotation.invites.views import managed_round
from annotation.models import Round
from annotation.rounds.forms import option_field
from kgharvest.access import researcher_required
from kgharvest.bulk.pagination import number_in, page_of, sort_key
from kgharvest.contrib.recruiting.models import LONGEST_MESSAGE, Panel, PayEntry, Platform, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels import publishing
from kgharvest.contrib.recruiting.panels.money import BadMoney, decimal_money, money, parse_money
from kgharvest.contrib.recruiting.panels.participants import CSV_COLUMNS, csv_rows, participant_rows, places_of
from kgharvest.contrib.recruiting.panels.presets import PRESETS, default_options, entry_link, link_parameters_note
from kgharvest.contrib.recruiting.panels.services import free_place
from kgharvest.contrib.recruiting.pay import bonuses, commands, ledger
from kgharvest.contrib.recruiting.pay.hourly import HourlyPay, hourly_pay, pay_picture
from kgharvest.contrib.recruiting.platforms import platform_of
from kgharvest.errors import DomainError
from kgharvest.pages.number_format import DASH, counted
from kgharvest.pages.panels import Panel as PagePanel
from kgharvest.pages.panels import button
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import csv_lines
from kgharvest.tables.table import table_of_records

Kind, State = PlatformCommand.Kind, PlatformCommand.State
LEDGER_COLUMNS = (
    "at", "submission", "annotator", "side", "purpose", "key", "amount", "currency", "reason", "told_by", "by",
)  # fmt: skip
NEXT_STEPS = {
    State.WAITING: "Sent automatically; no action needed.",
    State.UNCERTAIN: "In progress or unanswered. Check whether the platform made the payment, and record the result.",
    State.FAILED: "Rejected by the platform. Fix the reported problem and retry, or pay manually.",
}
PARTICIPANT_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {  # sort keys for the rows of `participant_rows`
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


def panel_page(request: HttpRequest, panel: Panel, template: str, status: int = 200, **context: Any) -> HttpResponse:
    """Render a template with the panel. The template variable is_by_hand is True if the platform has no API."""
    context |= {"round": panel.round, "panel": panel, "is_by_hand": not platform_of(panel).has_api}
    return render(request, f"recruiting/{template}.html", context, status=status)


class PanelForm(forms.ModelForm):
    """Form for the options of a panel. The fields in GROUPS are collapsed.

    Amounts are entered as decimals in the form's currency.
    """

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
        """Skip the validation of the model, because the service gives clearer error messages."""

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
            return redirect(publishing.create_panel(round, form.options(), request.user))
    context = {"round": round, "form": form, "platform": platform, "platforms": platforms.items()}
    return render(request, "recruiting/panels/panel_form.html", context, status=400 if form.errors else 200)


@for_panel
def panel_edit(request: HttpRequest, panel: Panel) -> HttpResponse:
    form = PanelForm(request.POST or None, {name: getattr(panel, name) for name in Panel.OPTIONS})
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(publishing.edit_panel(panel, form.options(), request.user))
    return panel_page(request, panel, "panels/panel_form", status=400 if form.errors else 200, form=form)


@for_panel
@require_GET
def panel(request: HttpRequest, panel: Panel) -> HttpResponse:
    filters = {name: request.GET.get(name, "").strip() for name in ("q", "status")}
    sort = sort_key(request, PARTICIPANT_COLUMNS, "-entered")
    rows = participant_rows(panel)
    order, is_descending = PARTICIPANT_COLUMNS[sort.removeprefix("-")], sort.startswith("-")
    found = [
        row
        for row in rows
        if filters["status"] in ("", row["status"])
        and filters["q"].casefold() in f"{row['participant']} {row['session']} {row['annotator']}".casefold()
    ]
    page = page_of(request, sorted(found, key=order, reverse=is_descending))
    for row in page:
        row["owed_in_words"] = money(row["owed"], panel.currency)
        row["paid_in_words"] = money(row["paid"], panel.currency)
    is_unpublished = panel.status == Panel.Status.PUBLISHED and platform_of(panel).has_api and not panel.external_id
    address = reverse("recruiting:panel_enter", args=[panel.token])
    return panel_page(
        request,
        panel,
        "panels/panel",
        entry_link=entry_link(panel, request.build_absolute_uri(address)),
        link_parameters_note=link_parameters_note(panel),
        places=places_of(panel),
        reward=money(panel.reward, panel.currency),
        page_obj=page,
        n_all=len(rows),
        filters=filters,
        statuses=Submission.Status.choices,
        sort=sort,
        is_unpublished=is_unpublished,
    )


@for_panel
@require_GET
def participants_csv(request: HttpRequest, panel: Panel) -> HttpResponse:
    table = table_of_records(CSV_COLUMNS, csv_rows(panel))
    return download(csv_lines(table), f"{panel.round.name}-{panel.name}-participants.csv")


@for_panel
def panel_publish(request: HttpRequest, panel: Panel) -> HttpResponse:
    if request.method == "POST":
        return _changed(request, panel, publishing.publish_panel)
    # Drafts for Prolific need more options.
    if panel.platform == Platform.PROLIFIC and panel.status == Panel.Status.DRAFT:
        return redirect("recruiting:prolific_study", panel.round.path, panel.name)
    return panel_page(request, panel, "panels/panel_publish", cost=publishing.cost_in_words(panel))


@for_panel
def panel_stop(request: HttpRequest, panel: Panel) -> HttpResponse:
    if request.method == "POST":
        return _changed(request, panel, publishing.stop_panel)
    return panel_page(request, panel, "panels/panel_stop", places=places_of(panel))


@for_panel
@require_POST
def panel_change(request: HttpRequest, panel: Panel, change: Callable[..., None]) -> HttpResponse:
    """Pause or resume the panel. change: the service function to call."""
    return _changed(request, panel, change)


def _changed(request: HttpRequest, panel: Panel, change: Callable[..., None]) -> HttpResponse:
    with refusal_as_message(request):
        change(panel, by=request.user)
    return redirect(panel)


@for_panel
@require_POST
def panel_delete(request: HttpRequest, panel: Panel) -> HttpResponse:
    with refusal_as_message(request):
        publishing.delete_panel(panel, request.user)
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
    """Yield a button on a round's page that leads to the round's panels.

    Registered in PANELS of kgharvest.registries.
    """
    if round.source == Round.Source.PEOPLE:
        has_panels = round.panels.exists()
        page, label = ("panel_list", "Panels") if has_panels else ("panel_new", "Recruit people")
        if has_panels or not round.is_archived:
            yield button(label, reverse(f"recruiting:{page}", args=[round.path]))


@for_panel
def panel_pay(request: HttpRequest, panel: Panel) -> HttpResponse:
    pay = hourly_pay(panel)
    submissions = panel.submissions.filter(Q(pay_entries__isnull=False) | Q(commands__isnull=False)).distinct()
    page = page_of(request, submissions.select_related("annotator").order_by("-pk"))
    unsettled = PlatformCommand.objects.filter(submission__panel=panel).exclude(state=State.DONE)
    unsettled = unsettled.select_related("submission__annotator", "submission__panel", "created_by")
    open_bonuses = bonuses.open_bonuses(panel)
    open_sum = sum(bonus.amount for bonus in open_bonuses)
    return panel_page(
        request,
        panel,
        "pay/panel_pay",
        page_obj=page,
        people=person_rows(panel, pay, list(page)),
        picture=pay_picture(panel, pay),
        open_bonuses=open_bonuses,
        open_sum=open_sum,
        open_in_words=money(open_sum, panel.currency),
        commands=command_rows(unsettled.order_by("state", "pk")[:50]),
        **pay_facts(panel, pay),
    )


def pay_facts(panel: Panel, pay: HourlyPay) -> dict[str, Any]:
    """Return the template context on pay: balance, hourly pay, minimum, missing bonuses, and pending work."""
    unsettled = Count("commands", filter=Q(commands__state__in=[State.UNCERTAIN, State.FAILED]), distinct=True)
    missing = bonuses.floor_bonuses(pay, panel.hourly_floor)
    undecided = commands.to_review(panel)
    return {
        **_balance_in_words(panel, ledger.balance_of(panel)),
        "median": DASH if pay.median is None else money(int(pay.median), panel.currency),
        "median_reason": pay.reason,
        "n_measured": pay.n,
        "floor": money(panel.hourly_floor, panel.currency) if panel.hourly_floor else "",
        "is_below": bonuses.is_below_floor(panel, pay),
        "missing": [(work, money(amount, panel.currency)) for work, amount in missing],
        "missing_total": money(sum(amount for _, amount in missing), panel.currency),
        "n_to_review": undecided.count(),
        "next_auto_approval": undecided.filter(approves_itself_at__isnull=False).first(),
        "n_in_trouble": panel.submissions.aggregate(n=unsettled)["n"],
    }


def person_rows(panel: Panel, pay: HourlyPay, submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    balances, works = ledger.balances(panel), {work.submission.pk: work for work in pay.works}
    rows = []
    for submission in submissions:
        work = works.get(submission.pk)
        hourly = work.hourly if work else None
        rows.append(
            {
                "submission": submission,
                **_balance_in_words(panel, balances.get(submission.pk, ledger.Balance())),
                "active_s": work.active_s if work else None,
                "hourly": DASH if hourly is None else money(int(hourly), panel.currency),
                "is_below": hourly is not None and hourly < panel.hourly_floor,
            }
        )
    return rows


def _balance_in_words(panel: Panel, balance: ledger.Balance) -> dict[str, str]:
    return {name: money(getattr(balance, name), panel.currency) for name in ("owed", "paid", "open")}


def command_rows(rows: QuerySet[PlatformCommand]) -> list[dict[str, Any]]:
    now = timezone.now()
    return [
        {
            "command": command,
            "amount": money(command.amount, command.submission.panel.currency) if command.amount else "",
            "next_step": NEXT_STEPS.get(State(command.state), ""),
            "is_final": command.state == State.FAILED and command.submission.panel.is_platform_closed,
            "can_be_denied": command.state == State.UNCERTAIN and command.next_try_at <= now,
        }
        for command in rows
    ]


class RejectionForm(forms.Form):
    category = forms.ChoiceField(
        label="Reason",
        choices=list(commands.GROUNDS.items()),
        help_text="Disagreement with other annotators is not a valid reason, because the round measures disagreement.",
    )
    message = forms.CharField(
        max_length=LONGEST_MESSAGE,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=f"Explanation for the participant, at least {commands.SHORTEST_REJECTION} characters.",
    )


class BonusForm(forms.Form):
    amount = forms.CharField(max_length=20, help_text="In the panel's currency, for example 1.50.")
    message = forms.CharField(
        label="Reason",
        max_length=commands.LONGEST_REASON,
        help_text="Shown to the participant and stored in the ledger.",
    )


@for_panel
def panel_pay_person(request: HttpRequest, panel: Panel, pk: int) -> HttpResponse:
    submissions = panel.submissions.select_related("annotator", "panel__round__project")
    submission = get_object_or_404(submissions, pk=pk)
    posted = request.POST if request.method == "POST" else None
    verb = posted.get("verb", "") if posted else ""
    rejection = RejectionForm(posted if verb == Kind.REJECT else None)
    bonus = BonusForm(posted if verb == Kind.BONUS else None)
    if posted and _execute(request, submission, verb, rejection, bonus):
        return redirect("recruiting:panel_pay_person", panel.round.path, panel.name, pk)
    [row] = person_rows(panel, hourly_pay(panel), [submission])
    entries = submission.pay_entries.select_related("event", "command", "by")
    decided = submission.commands.exclude(kind=Kind.BONUS).exclude(state=State.FAILED)
    allowed = [kind.value for kind, statuses in commands.ALLOWED_STATUSES.items() if submission.status in statuses]
    requests = submission.commands.select_related("submission__panel", "created_by").order_by("-pk")
    annotator, return_link = submission.annotator, ""
    if annotator is not None and annotator.erased_at is None:
        address = reverse("annotation:return_by_code", args=[return_code(annotator)])
        return_link = request.build_absolute_uri(address)  # link with which the participant returns in another browser
    return panel_page(
        request,
        panel,
        "pay/panel_pay_person",
        submission=submission,
        row=row,
        entries=[{"entry": entry, "amount": money(entry.amount, panel.currency)} for entry in entries],
        commands=command_rows(requests),
        decisions=[] if panel.is_platform_closed or decided.exists() else allowed,
        rejection=rejection,
        bonus=bonus,
        return_link=return_link,
    )


def _execute(
    request: HttpRequest, submission: Submission, verb: str, rejection: RejectionForm, bonus: BonusForm
) -> bool:
    """Execute the posted action. Return False if the action's form has errors. Other errors become messages."""
    form = {Kind.REJECT: rejection, Kind.BONUS: bonus}.get(verb)
    if verb not in Kind.values or (form is not None and not form.is_valid()):
        return False
    try:
        if verb == Kind.BONUS:
            amount = parse_money(bonus.cleaned_data["amount"], submission.panel.currency)
            bonuses.grant_bonus(submission, amount, bonus.cleaned_data["message"], request.user)
            messages.success(request, f"Bonus of {money(amount, submission.panel.currency)} granted.")
        else:
            fields = rejection.cleaned_data if verb == Kind.REJECT else {}
            commands.decide(submission, verb, by=request.user, **fields)
            messages.success(request, f"Decision saved. {_consequence(submission.panel)}")
    except BadMoney as refusal:
        bonus.add_error("amount", str(refusal))
    except DomainError as refusal:
        if form is None:
            messages.error(request, str(refusal))
            return True
        form.add_error(None, str(refusal))
    else:
        return True
    return False


def _consequence(panel: Panel) -> str:
    """Return a sentence that says who carries out a decision."""
    if platform_of(panel).has_api:
        return "The platform is notified within seconds."
    return "Repeat the decision on the platform, which is not notified."


def _posted_submissions(request: HttpRequest) -> list[int]:
    return [pk for text in request.POST.getlist("submission") if (pk := number_in(text)) is not None]


@for_panel
def panel_pay_review(request: HttpRequest, panel: Panel) -> HttpResponse:
    """Show the places that await review, with the times of their automatic approval. Approve selected places or all."""
    if request.method == "POST":
        selected = None if "all" in request.POST else _posted_submissions(request)
        with refusal_as_message(request):
            n = commands.approve(panel, selected, request.user)
            messages.success(request, f"{counted(n, 'submission')} approved. {_consequence(panel)}")
        return redirect("recruiting:panel_pay_review", panel.round.path, panel.name)
    undecided = commands.to_review(panel)
    page = page_of(request, undecided)
    return panel_page(
        request,
        panel,
        "pay/panel_pay_review",
        page_obj=page,
        people=person_rows(panel, hourly_pay(panel), list(page)),
        n_auto_approved=undecided.filter(approves_itself_at__isnull=False).count(),
        most_at_once=commands.MOST_AT_ONCE,
        reward=money(panel.reward, panel.currency),
    )


@for_panel
@require_POST
def panel_pay_floor(request: HttpRequest, panel: Panel) -> HttpResponse:
    with refusal_as_message(request):
        total = bonuses.make_good(panel, request.user)
        messages.success(request, f"Bonuses totaling {money(total, panel.currency)} granted.")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
@require_POST
def panel_pay_command(request: HttpRequest, panel: Panel, pk: int) -> HttpResponse:
    """Retry a failed command, or settle an uncertain one."""
    requests = PlatformCommand.objects.filter(submission__panel=panel).select_related("submission__panel__round")
    command = get_object_or_404(requests, pk=pk)
    with refusal_as_message(request):
        if "resend" in request.POST:
            commands.resend(command, request.user)
            messages.success(request, "The request is retried within seconds.")
        else:
            was_done = "was_done" in request.POST
            commands.settle_by_hand(command, was_done, request.user)
            messages.success(request, "Marked as paid." if was_done else "The payment is retried within seconds.")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
@require_POST
def panel_pay_noted(request: HttpRequest, panel: Panel) -> HttpResponse:
    total = number_in(request.POST.get("total")) or 0
    with refusal_as_message(request):
        n = bonuses.note_paid(panel, _posted_submissions(request), total, request.user)
        messages.success(request, f"{money(total, panel.currency)} for {counted(n, 'participant')} marked as paid.")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
def panel_pay_bonus_file(request: HttpRequest, panel: Panel, layout: str) -> HttpResponse:
    """Download open bonuses in Prolific's bulk format or as a table. Both files contain platform ids of participants.

    `?total=` is the sum shown on the page, with which the payment is recorded later. If the sum of the open bonuses has
    changed, no file is returned.
    """
    unpaid = bonuses.open_bonuses(panel)
    total = number_in(request.GET.get("total"))
    if total is not None and total != sum(bonus.amount for bonus in unpaid):
        messages.error(request, "Bonuses were granted or paid in the meantime. The page now shows the current amounts.")
        return redirect("recruiting:panel_pay", panel.round.path, panel.name)
    if layout == "table":
        return download(bonuses.table_lines(unpaid), f"{panel.name}-bonuses.csv")
    with refusal_as_message(request):
        return download([bonuses.bulk_lines(unpaid)], f"{panel.name}-bulk-bonuses.csv")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
def panel_pay_ledger(request: HttpRequest, panel: Panel) -> HttpResponse:
    return download(ledger_csv(panel), f"{panel.name}-ledger.csv")


def ledger_csv(panel: Panel) -> Iterator[str]:
    """Yield a panel's ledger as CSV. Annotators appear under their codes, never under platform ids."""
    entries = panel.pay_entries.select_related("submission__annotator", "event", "command", "by").order_by("pk")
    rows = (
        {
            "at": entry.at.isoformat(),
            "submission": entry.submission_id,
            "annotator": str(entry.submission.annotator or ""),
            "side": entry.side,
            "purpose": entry.purpose,
            "key": entry.key,
            # A number, because a text that starts with a minus could be a formula.
            "amount": Decimal(decimal_money(entry.amount, panel.currency)),
            "currency": panel.currency,
            "reason": entry.reason,
            "told_by": told_by(entry),
            "by": entry.by.get_username() if entry.by else "",
        }
        for entry in entries.iterator(chunk_size=2000)
    )
    return csv_lines(table_of_records(LEDGER_COLUMNS, rows))


def told_by(entry: PayEntry) -> str:
    """Return the source of an entry, for example "event 3". It is empty if a user created the entry directly."""
    if entry.event_id:
        return f"event {entry.event_id}"
    return f"command {entry.command_id}" if entry.command_id else ""


def pay_summary(request: HttpRequest, panel: Panel) -> Iterator[PagePanel]:
    """Yield the section on pay for the panel page: balance, hourly pay, and pending work.

    Drafts have no such section.
    """
    if panel.status != Panel.Status.DRAFT:
        yield PagePanel("recruiting/pay/_summary.html", pay_facts(panel, hourly_pay(panel)))
