"""Bonuses: granting them, the files by which they are paid by hand, and noting what was paid there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from django.db import transaction

from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.money import decimal_money, money
from kgharvest.contrib.recruiting.pay import commands, ledger
from kgharvest.contrib.recruiting.platforms import Can, check_not_closed, platform_of
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.tables.formats import csv_lines
from kgharvest.tables.table import table_of_records

KEY = "bonus:"
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # what may stand in a line without quotes
COLUMNS = ("submission", "participant", "session", "amount", "currency", "reason")

Side, Purpose = PayEntry.Side, PayEntry.Purpose


@transaction.atomic
def grant_bonus(submission: Submission, amount: int, reason: str, by=None, key: str = "") -> PayEntry:
    """Owe a person a bonus and return the line; where the platform pays bonuses by itself, have it pay.

    amount: in minor units. key: such as bonus:floor:1, the same one twice is once; the next free one if empty. Raises
    NotAllowed, BadAmount, BadReason, PlatformRefused.
    """
    panel = submission.panel
    check_may(by, Action.WORK, panel.project)
    check_not_closed(panel)
    reason = reason.strip()[: commands.LONGEST_REASON]
    if not reason:
        raise DomainError("BadReason", "Say what the bonus is for: the person reads it, and the ledger keeps it.")
    Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=submission.pk)
    n = submission.pay_entries.filter(side=Side.OWED, purpose=Purpose.BONUS).count()
    key = key or f"{KEY}{n + 1}"
    if Can.BONUS in platform_of(panel).can:
        commands.ask(submission, PlatformCommand.Kind.BONUS, key, amount=amount, message=reason, by=by)
    else:
        commands.check_bonus(submission, amount)
        if ledger.owe(submission, Purpose.BONUS, key, amount, reason, by=by):
            facts = {"submission": submission.pk, "panel": panel.name, "amount": money(amount, panel.currency)}
            record("bonus.granted", submission, by, panel.project.pk, **facts)
    return submission.pay_entries.get(side=Side.OWED, key=key)


@dataclass
class OpenBonus:
    """What one person is to be paid by hand, as bonuses or for a screen-out. lines: of the ledger, not paid."""

    submission: Submission
    lines: list[PayEntry] = field(default_factory=list)

    @property
    def amount(self) -> int:
        return sum(line.amount for line in self.lines)

    @property
    def in_decimals(self) -> str:
        return decimal_money(self.amount, self.submission.panel.currency)

    @property
    def reason(self) -> str:
        return " ".join(dict.fromkeys(line.reason for line in self.lines))


def open_bonuses(panel: Panel) -> list[OpenBonus]:
    """Return what is to be paid by hand besides rewards: owed, not paid, and no command is going to pay it.

    A bonus that the platform refused is among it. One that is uncertain is not: it may have been paid. Where we tell
    no platform of anything, what people are owed for a screen-out is among it, too.
    """
    purposes = [Purpose.BONUS]
    if Can.APPROVE not in platform_of(panel).can:
        purposes.append(Purpose.SCREEN_OUT)
    paid = set(panel.pay_entries.filter(side=Side.PAID).values_list("submission", "key"))
    sent = PlatformCommand.objects.unfinished().filter(submission__panel=panel)
    going = set(sent.values_list("submission", "key"))
    owed = panel.pay_entries.filter(side=Side.OWED, purpose__in=purposes).order_by("submission", "pk")
    by_submission: dict[int, OpenBonus] = {}
    for line in owed.select_related("submission__annotator", "submission__panel__round__project"):
        if (line.submission_id, line.key) not in paid | going:
            by_submission.setdefault(line.submission_id, OpenBonus(line.submission)).lines.append(line)
    return [bonus for bonus in by_submission.values() if bonus.amount > 0]


def bulk_lines(bonuses: Iterable[OpenBonus]) -> str:
    """Return lines "id,amount", as Prolific takes them for a bulk payment: no heading, a submission's id where there is
    one, else a participant's.

    Raises NotPayable for an id that would need quotes, or that was deleted.
    """
    lines = []
    for bonus in bonuses:
        name = bonus.submission.session_id or bonus.submission.participant_id
        if not PLAIN_ID.fullmatch(name):
            raise DomainError(
                "NotPayable",
                f"Submission {bonus.submission.pk} has no id that this format takes: it was deleted, or is not of "
                "letters, digits, - and _. Download the table with headings instead and pay this one by itself.",
            )
        lines.append(f"{name},{bonus.in_decimals}\n")
    return "".join(lines)


def table_lines(bonuses: Iterable[OpenBonus]) -> Iterator[str]:
    """Yield a CSV table of open bonuses, for any other platform."""
    return csv_lines(table_of_records(COLUMNS, map(_row, bonuses)))


def _row(bonus: OpenBonus) -> dict[str, str | int]:
    submission = bonus.submission
    return {
        "submission": submission.pk,
        "participant": submission.participant_id,
        "session": submission.session_id,
        "amount": bonus.in_decimals,
        "currency": submission.panel.currency,
        "reason": bonus.reason,
    }


@transaction.atomic
def note_paid(panel: Panel, submissions: Sequence[int], total: int, by=None) -> int:
    """Note that the open bonuses of these submissions were paid by hand; return how many people that is.

    total: what was paid in all, as the file said, so that nothing that was granted since is taken for paid.
    Raises NotAllowed, NothingOpen.
    """
    check_may(by, Action.WORK, panel.project)
    wanted = panel.submissions.filter(pk__in=submissions)
    list(wanted.select_for_update(of=("self",), no_key=True).order_by("pk"))  # whoever sends one again waits
    paid = set(submissions)
    bonuses = [bonus for bonus in open_bonuses(panel) if bonus.submission.pk in paid]
    found = sum(bonus.amount for bonus in bonuses)
    if not bonuses or found != total:
        raise DomainError(
            "NothingOpen",
            f"Open are {money(found, panel.currency)} and not {money(total, panel.currency)}: something was granted or "
            "paid meanwhile. Look at the page again.",
        )
    for line in (line for bonus in bonuses for line in bonus.lines):
        reason = f"Paid by hand: {line.reason}"[: commands.LONGEST_REASON]
        ledger.record_paid(line.submission, line.purpose, line.key, line.amount, reason, by=by)
    return len(bonuses)
