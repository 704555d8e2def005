"""Researchers' pages of pay: a panel's balance and hourly pay, one person's lines, what is to be reviewed, files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from kgharvest.contrib.recruiting.models import Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.money import BadMoney, decimal_money, money, parse_money
from kgharvest.contrib.recruiting.panels.views import for_panel
from kgharvest.contrib.recruiting.pay import bonuses, commands, floor, ledger
from kgharvest.contrib.recruiting.pay.hourly import HourlyPay, Work, hourly_pay, pay_picture
from kgharvest.contrib.recruiting.pay.models import LONGEST_MESSAGE
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
WHAT_TO_DO = {
    State.WAITING: "It is sent by itself; nothing is to be done.",
    State.UNCERTAIN: "It is being sent, or no answer came. Look at the platform whether it was paid, and say so here.",
    State.FAILED: "The platform refused. Put right what it says, then send it again; or pay it by hand.",
}


@for_panel
def panel_pay(request: HttpRequest, panel: Panel) -> HttpResponse:
    pay = hourly_pay(panel)
    people = panel.submissions.filter(Q(pay_entries__isnull=False) | Q(commands__isnull=False)).distinct()
    page = page_of(request, people.select_related("annotator").order_by("-pk"))
    undone = PlatformCommand.objects.filter(submission__panel=panel).exclude(state=State.DONE)
    unsettled = undone.select_related("submission__annotator", "submission__panel", "created_by")
    context = {
        "round": panel.round,
        "panel": panel,
        "page_obj": page,
        "people": person_rows(panel, pay, list(page)),
        "picture": pay_picture(panel, pay),
        "is_by_hand": _is_by_hand(panel),
        "open_bonuses": bonuses.open_bonuses(panel),
        "commands": command_rows(unsettled.order_by("state", "pk")[:50]),
        **pay_facts(panel, pay),
    }
    context["open_sum"] = sum(bonus.amount for bonus in context["open_bonuses"])
    context["open_in_words"] = money(context["open_sum"], panel.currency)
    return render(request, "recruiting/pay/panel_pay.html", context)


def pay_facts(panel: Panel, pay: HourlyPay) -> dict[str, Any]:
    """Return what a panel pays, in words: its balance, hourly pay, floor, and what waits for somebody."""
    balance = ledger.panel_balance(panel)
    states = Count("commands", filter=Q(commands__state__in=[State.UNCERTAIN, State.FAILED]), distinct=True)
    lacks = floor.floor_bonuses(pay, panel.hourly_floor)
    waiting = commands.to_review(panel)
    return {
        **_balance_in_words(panel, balance),
        "median": DASH if pay.median is None else money(int(pay.median), panel.currency),
        "median_reason": pay.reason,
        "n_measured": pay.n,
        "floor": money(panel.hourly_floor, panel.currency) if panel.hourly_floor else "",
        "is_below": floor.is_below_floor(panel, pay),
        "lacks": [{"bonus": lack, "amount": money(lack.amount, panel.currency)} for lack in lacks],
        "lacks_in_all": money(sum(lack.amount for lack in lacks), panel.currency),
        "n_to_review": waiting.count(),
        "next_by_itself": waiting.filter(approves_itself_at__isnull=False).first(),
        "n_in_trouble": panel.submissions.aggregate(n=states)["n"],
    }


def person_rows(panel: Panel, pay: HourlyPay, submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    balances, works = ledger.balances(panel), {work.submission.pk: work for work in pay.works}
    return [
        {
            "submission": submission,
            **_balance_in_words(panel, balances.get(submission.pk, ledger.Balance())),
            **_work_in_words(panel, works.get(submission.pk)),
        }
        for submission in submissions
    ]


def _balance_in_words(panel: Panel, balance: ledger.Balance) -> dict[str, str]:
    return {name: money(getattr(balance, name), panel.currency) for name in ("owed", "paid", "open")}


def _work_in_words(panel: Panel, work: Work | None) -> dict[str, Any]:
    if work is None or work.hourly is None:
        return {"active_s": None, "hourly": DASH, "is_below": False}
    is_below = work.hourly < panel.hourly_floor
    return {"active_s": work.active_s, "hourly": money(int(work.hourly), panel.currency), "is_below": is_below}


def command_rows(rows: QuerySet[PlatformCommand]) -> list[dict[str, Any]]:
    now = timezone.now()
    return [
        {
            "command": command,
            "amount": money(command.amount, command.submission.panel.currency) if command.amount else "",
            "what_to_do": WHAT_TO_DO.get(State(command.state), ""),
            "is_final": command.state == State.FAILED and command.submission.panel.is_platform_closed,
            "can_be_denied": command.state == State.UNCERTAIN and command.next_try_at <= now,
        }
        for command in rows
    ]


class RejectionForm(forms.Form):
    category = forms.ChoiceField(
        label="Ground",
        choices=[(name, words) for name, words in commands.GROUNDS.items()],
        help_text="Disagreement with others is no ground: it is what the round measures.",
    )
    message = forms.CharField(
        max_length=LONGEST_MESSAGE,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=f"The person reads it: what was wrong, in {commands.SHORTEST_REJECTION} characters or more.",
    )


class BonusForm(forms.Form):
    amount = forms.CharField(max_length=20, help_text="Such as 1.50, in the panel's currency.")
    message = forms.CharField(
        label="What for", max_length=commands.LONGEST_REASON, help_text="The person reads it, and the ledger keeps it."
    )


@for_panel
def panel_pay_person(request: HttpRequest, panel: Panel, pk: int) -> HttpResponse:
    submissions = panel.submissions.select_related("annotator", "panel__round__project")
    submission = get_object_or_404(submissions, pk=pk)
    posted = request.POST if request.method == "POST" else None
    verb = posted.get("verb", "") if posted else ""
    rejection = RejectionForm(posted if verb == Kind.REJECT else None)
    bonus = BonusForm(posted if verb == Kind.BONUS else None)
    if posted and _is_done(request, submission, verb, rejection, bonus):
        return redirect("recruiting:panel_pay_person", panel.round.path, panel.name, pk)
    return render(request, "recruiting/pay/panel_pay_person.html", _person(request, submission, rejection, bonus))


def _is_done(request: HttpRequest, submission: Submission, verb: str, *filled: forms.Form) -> bool:
    """Do what was asked for; return whether that went well. What is wrong is said in the form, or above the page."""
    rejection, bonus = filled
    form = {Kind.REJECT: rejection, Kind.BONUS: bonus}.get(verb)
    if verb not in Kind.values or (form is not None and not form.is_valid()):
        return False
    try:
        if verb == Kind.BONUS:
            amount = parse_money(bonus.cleaned_data["amount"], submission.panel.currency)
            bonuses.grant_bonus(submission, amount, bonus.cleaned_data["message"], request.user)
            messages.success(request, f"A bonus of {money(amount, submission.panel.currency)} is granted.")
        else:
            fields = rejection.cleaned_data if verb == Kind.REJECT else {}
            commands.decide(submission, verb, by=request.user, **fields)
            messages.success(request, f"Noted{_what_follows(submission.panel)}")
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
    lines = submission.pay_entries.select_related("event", "command", "by")
    decided = submission.commands.exclude(kind=Kind.BONUS).exclude(state=State.FAILED)
    askable = [kind.value for kind, states in commands.ASKED_OF.items() if submission.status in states]
    asked = submission.commands.select_related("submission__panel", "created_by").order_by("-pk")
    annotator, return_link = submission.annotator, ""
    if annotator is not None and annotator.erased_at is None:
        address = reverse("annotation:return_by_code", args=[return_code(annotator)])
        return_link = request.build_absolute_uri(address)  # for another browser
    return {
        "round": panel.round,
        "panel": panel,
        "submission": submission,
        "row": row,
        "lines": [{"line": line, "amount": money(line.amount, panel.currency)} for line in lines],
        "commands": command_rows(asked),
        "may_be_asked": [] if panel.is_platform_closed or decided.exists() else askable,
        "rejection": rejection,
        "bonus": bonus,
        "pays_by_itself": Can.BONUS in platform_of(panel).can,
        "is_by_hand": _is_by_hand(panel),
        "return_link": return_link,
    }


def _is_by_hand(panel: Panel) -> bool:
    return Can.APPROVE not in platform_of(panel).can


def _what_follows(panel: Panel) -> str:
    """Return the end of a sentence on a decision: who carries it out."""
    if _is_by_hand(panel):
        return " here; do the same at the platform, which nobody else tells."
    return "; the platform is told within seconds."


@for_panel
def panel_pay_review(request: HttpRequest, panel: Panel) -> HttpResponse:
    """What waits for review, with when the platform approves it by itself; approve the ticked, or all."""
    if request.method == "POST":
        ticked = [pk for text in request.POST.getlist("submission") if (pk := number_in(text)) is not None]
        with refusal_as_message(request):
            n = commands.approve(panel, None if "all" in request.POST else ticked, request.user)
            messages.success(request, f"{counted(n, 'submission')} approved{_what_follows(panel)}")
        return redirect("recruiting:panel_pay_review", panel.round.path, panel.name)
    waiting = commands.to_review(panel)
    page = page_of(request, waiting)
    context = {
        "round": panel.round,
        "panel": panel,
        "page_obj": page,
        "people": person_rows(panel, hourly_pay(panel), list(page)),
        "n_by_themselves": waiting.filter(approves_itself_at__isnull=False).count(),
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
        messages.success(request, f"Bonuses of {money(total, panel.currency)} in all are granted.")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
@require_POST
def panel_pay_command(request: HttpRequest, panel: Panel, pk: int) -> HttpResponse:
    """Send a command again that failed, or say of an uncertain one whether it was done."""
    unsettled = PlatformCommand.objects.filter(submission__panel=panel).select_related("submission__panel__round")
    command = get_object_or_404(unsettled, pk=pk)
    with refusal_as_message(request):
        if "resend" in request.POST:
            commands.resend(command, request.user)
            messages.success(request, "It is sent again within seconds.")
        else:
            commands.settle_by_hand(command, "was_done" in request.POST, request.user)
            messages.success(request, "Noted.")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
@require_POST
def panel_pay_noted(request: HttpRequest, panel: Panel) -> HttpResponse:
    paid = [pk for text in request.POST.getlist("submission") if (pk := number_in(text)) is not None]
    total = number_in(request.POST.get("total")) or 0
    with refusal_as_message(request):
        n = bonuses.note_paid(panel, paid, total, request.user)
        messages.success(request, f"Noted as paid: {money(total, panel.currency)} to {counted(n, 'person', 'people')}.")
    return redirect("recruiting:panel_pay", panel.round.path, panel.name)


@for_panel
def panel_pay_bonus_file(request: HttpRequest, panel: Panel, layout: str) -> HttpResponse:
    """The open bonuses, as Prolific takes them in bulk or as a table. Participants' ids are in both.

    `?total=`: of the page that the link is on, with which what was paid is noted later; no file has other bonuses.
    """
    unpaid = bonuses.open_bonuses(panel)
    total = number_in(request.GET.get("total"))
    if total is not None and total != sum(bonus.amount for bonus in unpaid):
        messages.error(request, "Something was granted or paid meanwhile; this is what is open now.")
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
    """Yield a panel's ledger as CSV. It names annotators by code, never by platform id."""
    return csv_lines(table_of_records(LEDGER_COLUMNS, _ledger_rows(panel)))


def _ledger_rows(panel: Panel) -> Iterator[Mapping[str, Any]]:
    lines = panel.pay_entries.select_related("submission__annotator", "event", "command", "by").order_by("pk")
    for line in lines.iterator(chunk_size=2000):
        yield {
            "at": line.at.isoformat(),
            "submission": line.submission_id,
            "annotator": str(line.submission.annotator or ""),
            "side": line.side,
            "purpose": line.purpose,
            "key": line.key,
            "amount": Decimal(decimal_money(line.amount, panel.currency)),  # a number: no formula, if negative
            "currency": panel.currency,
            "reason": line.reason,
            "told_by": told_by(line),
            "by": line.by.get_username() if line.by else "",
        }


def told_by(line: PayEntry) -> str:
    """Return which event or command a line follows from, such as "event 3"; empty for a person's own deed."""
    if line.event_id:
        return f"event {line.event_id}"
    return f"command {line.command_id}" if line.command_id else ""


def pay_summary(request: HttpRequest, panel: Panel) -> Iterator[PagePanel]:
    """How much is owed, paid and open, what an hour brings, and whether something waits; nothing of a draft."""
    if panel.status != Panel.Status.DRAFT:
        yield PagePanel("recruiting/pay/_summary.html", pay_facts(panel, hourly_pay(panel)))
