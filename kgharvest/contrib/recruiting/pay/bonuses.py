"""Bonuses: granting, files for manual payment, and recording manual payments."""

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
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # ids that need no quotes in a bulk payment file
COLUMNS = ("submission", "participant", "session", "amount", "currency", "reason")

Side, Purpose = PayEntry.Side, PayEntry.Purpose


@transaction.atomic
def grant_bonus(submission: Submission, amount: int, reason: str, by=None, key: str = "") -> PayEntry:
    """Record a bonus as owed and return the entry. A platform that supports bonuses is asked to pay it.

    amount: in minor units. key: for example bonus:floor:1; a repeated key has no effect. Default: the next free key.
    Raises NotAllowed, BadAmount, BadReason, PlatformRefused.
    """
    panel = submission.panel
    check_may(by, Action.WORK, panel.project)
    check_not_closed(panel)
    reason = reason.strip()[: commands.LONGEST_REASON]
    if not reason:
        raise DomainError(
            "BadReason", "Reason missing. Enter a reason; it is stored in the ledger for the participant."
        )
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
    """Unpaid bonuses and screen-out rewards of one participant, to be paid manually. entries: of the ledger."""

    submission: Submission
    entries: list[PayEntry] = field(default_factory=list)

    @property
    def amount(self) -> int:
        return sum(entry.amount for entry in self.entries)

    @property
    def in_decimals(self) -> str:
        return decimal_money(self.amount, self.submission.panel.currency)

    @property
    def reason(self) -> str:
        return " ".join(dict.fromkeys(entry.reason for entry in self.entries))


def open_bonuses(panel: Panel) -> list[OpenBonus]:
    """Return amounts other than rewards to be paid manually: owed, unpaid, and without an unfinished command.

    Includes bonuses that the platform refused. Excludes uncertain ones, which may have been paid. On platforms without
    an API, screen-out rewards are included.
    """
    purposes = [Purpose.BONUS]
    if Can.APPROVE not in platform_of(panel).can:
        purposes.append(Purpose.SCREEN_OUT)
    paid = set(panel.pay_entries.filter(side=Side.PAID).values_list("submission", "key"))
    unfinished = PlatformCommand.objects.unfinished().filter(submission__panel=panel)
    settled = paid.union(unfinished.values_list("submission", "key"))
    owed = panel.pay_entries.filter(side=Side.OWED, purpose__in=purposes).order_by("submission", "pk")
    by_submission: dict[int, OpenBonus] = {}
    for entry in owed.select_related("submission__annotator", "submission__panel__round__project"):
        if (entry.submission_id, entry.key) not in settled:
            by_submission.setdefault(entry.submission_id, OpenBonus(entry.submission)).entries.append(entry)
    return [bonus for bonus in by_submission.values() if bonus.amount > 0]


def bulk_lines(bonuses: Iterable[OpenBonus]) -> str:
    """Return Prolific's bulk payment format: lines "id,amount" without a header.

    The id is the submission's, or the participant's if there is none. Raises NotPayable for an id that was deleted or
    would need quotes.
    """
    lines = []
    for bonus in bonuses:
        name = bonus.submission.session_id or bonus.submission.participant_id
        if not PLAIN_ID.fullmatch(name):
            raise DomainError(
                "NotPayable",
                f"Submission {bonus.submission.pk} has no id that fits this format: the id was deleted or contains "
                "characters other than letters, digits, - and _. Download the CSV and pay this submission separately.",
            )
        lines.append(f"{name},{bonus.in_decimals}\n")
    return "".join(lines)


def table_lines(bonuses: Iterable[OpenBonus]) -> Iterator[str]:
    """Yield a CSV table of open bonuses, for any platform."""
    rows = (
        {
            "submission": bonus.submission.pk,
            "participant": bonus.submission.participant_id,
            "session": bonus.submission.session_id,
            "amount": bonus.in_decimals,
            "currency": bonus.submission.panel.currency,
            "reason": bonus.reason,
        }
        for bonus in bonuses
    )
    return csv_lines(table_of_records(COLUMNS, rows))


@transaction.atomic
def note_paid(panel: Panel, submissions: Sequence[int], total: int, by=None) -> int:
    """Record that the open bonuses of these submissions were paid manually; return the number of participants.

    total: amount paid according to the file; a mismatch means that bonuses changed since. Raises NotAllowed,
    NothingOpen.
    """
    check_may(by, Action.WORK, panel.project)
    selected = panel.submissions.filter(pk__in=submissions)
    list(selected.select_for_update(of=("self",), no_key=True).order_by("pk"))  # a concurrent retry waits
    paid = set(submissions)
    bonuses = [bonus for bonus in open_bonuses(panel) if bonus.submission.pk in paid]
    open_total = sum(bonus.amount for bonus in bonuses)
    if not bonuses or open_total != total:
        raise DomainError(
            "NothingOpen",
            f"Outstanding: {money(open_total, panel.currency)}, not {money(total, panel.currency)}. Bonuses were "
            "granted or paid in the meantime. Reload the page.",
        )
    for entry in (entry for bonus in bonuses for entry in bonus.entries):
        reason = f"Paid manually: {entry.reason}"[: commands.LONGEST_REASON]
        ledger.record_paid(entry.submission, entry.purpose, entry.key, entry.amount, reason, by=by)
    return len(bonuses)
