"""Researcher pages of pay: balance and hourly pay of a panel, one participant's ledger, review, and files."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from annotation.invites.services import return_code
from kgharvest.bulk.pagination import number_in, page_of
from kgharvest.contrib.recruiting.models import LONGEST_MESSAGE, Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.money import BadMoney, decimal_money, money, parse_money
from kgharvest.contrib.recruiting.panels.views import for_panel
from kgharvest.contrib.recruiting.pay import bonuses, commands, floor, ledger
from kgharvest.contrib.recruiting.pay.hourly import HourlyPay, hourly_pay, pay_picture
from kgharvest.contrib.recruiting.platforms import Can, platform_of
from kgharvest.errors import DomainError
from kgharvest.pages.number_format import DASH, counted
from kgharvest.pages.panels import Panel as PagePanel
from kgharvest.pages.refusals import refusal_as_message
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import csv_lines
from kgharvest.tables.table import table_of_records

Kind, State = PlatformCommand.Kind, PlatformCommand.State
LEDGER_COLUMNS = (
    "at", "submission", "annotator", "side", "purpose", "key", "amount", "currency", "reason", "told_by", "by",
)  # fmt: skip
NEXT_STEPS = {
    State.WAITING: "Sent automatically; no action needed.",
    State.UNCERTAIN: "In progress, or unanswered. Check on the platform whether it was paid, and record it here.",
    State.FAILED: "Rejected by the platform. Fix the reported problem and retry, or pay manually.",
}


@for_panel
def panel_pay(request: HttpRequest, panel: Panel) -> HttpResponse:
    pay = hourly_pay(panel)
    submissions = panel.submissions.filter(Q(pay_entries__isnull=False) | Q(commands__isnull=False)).distinct()
    page = page_of(request, submissions.select_related("annotator").order_by("-pk"))
    unsettled = PlatformCommand.objects.filter(submission__panel=panel).exclude(state=State.DONE)
    unsettled = unsettled.select_related("submission__annotator", "submission__panel", "created_by")
    open_bonuses = bonuses.open_bonuses(panel)
    open_sum = sum(bonus.amount for bonus in open_bonuses)
    context = {
        "round": panel.round,
        "panel": panel,
        "page_obj": page,
        "people": person_rows(panel, pay, list(page)),
        "picture": pay_picture(panel, pay),
        "is_by_hand": _is_by_hand(panel),
        "open_bonuses": open_bonuses,
        "open_sum": open_sum,
        "open_in_words": money(open_sum, panel.currency),
        "commands": command_rows(unsettled.order_by("state", "pk")[:50]),
        **pay_facts(panel, pay),
    }
    return render(request, "recruiting/pay/panel_pay.html", context)


def pay_facts(panel: Panel, pay: HourlyPay) -> dict[str, Any]:
    """Return formatted balance, hourly pay, minimum, missing bonuses, and counts of pending work."""
    unsettled = Count("commands", filter=Q(commands__state__in=[State.UNCERTAIN, State.FAILED]), distinct=True)
    missing = floor.floor_bonuses(pay, panel.hourly_floor)
    undecided = commands.to_review(panel)
    return {
        **_balance_in_words(panel, ledger.panel_balance(panel)),
        "median": DASH if pay.median is None else money(int(pay.median), panel.currency),
        "median_reason": pay.reason,
        "n_measured": pay.n,
        "floor": money(panel.hourly_floor, panel.currency) if panel.hourly_floor else "",
        "is_below": floor.is_below_floor(panel, pay),
        "missing": [{"bonus": bonus, "amount": money(bonus.amount, panel.currency)} for bonus in missing],
        "missing_total": money(sum(bonus.amount for bonus in missing), panel.currency),
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
    return render(request, "recruiting/pay/panel_pay_person.html", _person(request, submission, rejection, bonus))


def _execute(
    request: HttpRequest, submission: Submission, verb: str, rejection: RejectionForm, bonus: BonusForm
) -> bool:
    """Execute the posted action; return False if its form has errors. Other errors become messages."""
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


def _person(request: HttpRequest, submission: Submission, rejection: RejectionForm, bonus: BonusForm) -> dict[str, Any]:
    panel = submission.panel
    [row] = person_rows(panel, hourly_pay(panel), [submission])
    entries = submission.pay_entries.select_related("event", "command", "by")
    decided = submission.commands.exclude(kind=Kind.BONUS).exclude(state=State.FAILED)
    allowed = [kind.value for kind, statuses in commands.ALLOWED_STATUSES.items() if submission.status in statuses]
    requests = submission.commands.select_related("submission__panel", "created_by").order_by("-pk")
    annotator, return_link = submission.annotator, ""
    if annotator is not None and annotator.erased_at is None:
        address = reverse("annotation:return_by_code", args=[return_code(annotator)])
        return_link = request.build_absolute_uri(address)  # for another browser
    return {
        "round": panel.round,
        "panel": panel,
        "submission": submission,
        "row": row,
        "entries": [{"entry": entry, "amount": money(entry.amount, panel.currency)} for entry in entries],
        "commands": command_rows(requests),
        "decisions": [] if panel.is_platform_closed or decided.exists() else allowed,
        "rejection": rejection,
        "bonus": bonus,
        "pays_bonuses": Can.BONUS in platform_of(panel).can,
        "is_by_hand": _is_by_hand(panel),
        "return_link": return_link,
    }


def _is_by_hand(panel: Panel) -> bool:
    return Can.APPROVE not in platform_of(panel).can


def _consequence(panel: Panel) -> str:
    """Return a sentence on who carries out a decision."""
    if _is_by_hand(panel):
        return "Repeat it on the platform, which is not notified."
    return "The platform is notified within seconds."


def _posted_submissions(request: HttpRequest) -> list[int]:
    return [pk for text in request.POST.getlist("submission") if (pk := number_in(text)) is not None]


@for_panel
def panel_pay_review(request: HttpRequest, panel: Panel) -> HttpResponse:
    """Places awaiting review and their automatic approval times; approve selected or all."""
    if request.method == "POST":
        selected = None if "all" in request.POST else _posted_submissions(request)
        with refusal_as_message(request):
            n = commands.approve(panel, selected, request.user)
            messages.success(request, f"{counted(n, 'submission')} approved. {_consequence(panel)}")
        return redirect("recruiting:panel_pay_review", panel.round.path, panel.name)
    undecided = commands.to_review(panel)
    page = page_of(request, undecided)
    context = {
        "round": panel.round,
        "panel": panel,
        "page_obj": page,
        "people": person_rows(panel, hourly_pay(panel), list(page)),
        "n_auto_approved": undecided.filter(approves_itself_at__isnull=False).count(),
        "is_by_hand": _is_by_hand(panel),
        "most_at_once": commands.MOST_AT_ONCE,
        "reward": money(panel.reward, panel.currency),
    }
    return render(request, "recruiting/pay/panel_pay_review.html", context)


@for_panel
@require_POST
def panel_pay_floor(request: HttpRequest, panel: Panel) -> HttpResponse:
    with refusal_as_message(request):
        total = floor.make_good(panel, request.user)
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
    """Open bonuses in Prolific's bulk format or as a table. Both contain platform ids of participants.

    `?total=`: sum shown on the page, with which the payment is recorded later; a different sum is refused.
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
    """Yield a panel's ledger as CSV. Annotators are named by code, never by platform id."""
    entries = panel.pay_entries.select_related("submission__annotator", "event", "command", "by").order_by("pk")
    rows = (
        {
            "at": entry.at.isoformat(),
            "submission": entry.submission_id,
            "annotator": str(entry.submission.annotator or ""),
            "side": entry.side,
            "purpose": entry.purpose,
            "key": entry.key,
            "amount": Decimal(decimal_money(entry.amount, panel.currency)),  # text with a minus could be a formula
            "currency": panel.currency,
            "reason": entry.reason,
            "told_by": told_by(entry),
            "by": entry.by.get_username() if entry.by else "",
        }
        for entry in entries.iterator(chunk_size=2000)
    )
    return csv_lines(table_of_records(LEDGER_COLUMNS, rows))


def told_by(entry: PayEntry) -> str:
    """Return the source of an entry, for example "event 3"; empty if a user created it directly."""
    if entry.event_id:
        return f"event {entry.event_id}"
    return f"command {entry.command_id}" if entry.command_id else ""


def pay_summary(request: HttpRequest, panel: Panel) -> Iterator[PagePanel]:
    """Pay section on the panel page: balance, hourly pay, and pending work; omitted for drafts."""
    if panel.status != Panel.Status.DRAFT:
        yield PagePanel("recruiting/pay/_summary.html", pay_facts(panel, hourly_pay(panel)))
