"""Bonuses: granting, manual payment, and bonuses that raise the pay to the minimum hourly rate, the "floor".

If the median rate of a panel falls below its floor, the panel pauses and lists the missing bonuses.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from math import ceil

from django.core.cache import cache
from django.db import IntegrityError, transaction

from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.money import decimal_money, money
from kgharvest.contrib.recruiting.panels.publishing import LONGEST_REASON, pause_panel, resume_panel
from kgharvest.contrib.recruiting.pay import commands, ledger
from kgharvest.contrib.recruiting.pay.hourly import HourlyPay, Work, hourly_pay
from kgharvest.contrib.recruiting.platforms import check_not_closed, platform_of
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.jobs.ledger import Heartbeat, Store, enqueue
from kgharvest.models import Job
from kgharvest.pages.number_format import counted
from kgharvest.tables.formats import csv_lines
from kgharvest.tables.table import table_of_records

logger = logging.getLogger(__name__)

KEY, FLOOR_KEY = "bonus:", "bonus:floor:"
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # ids that need no quotes in a bulk payment file
COLUMNS = ("submission", "participant", "session", "amount", "currency", "reason")

JOB_KIND = "pause_panel"
CHECK_EVERY_S = 60
PAUSED_BY_FLOOR = "The median pay of "  # prefix of the stored reason for the pause

Side, Purpose = PayEntry.Side, PayEntry.Purpose


@transaction.atomic
def grant_bonus(submission: Submission, amount: int, reason: str, by=None, key: str = "") -> PayEntry:
    """Record a bonus as owed and return the entry. A platform that supports bonuses is asked to pay it.

    amount: amount in minor units. key: for example bonus:floor:1; a bonus with this key is granted only once. It
    defaults to the next free key. Raises NotAllowed, BadAmount, BadReason, or PlatformRefused.
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
    if platform_of(panel).has_api:
        commands.ask(submission, PlatformCommand.Kind.BONUS, key, amount=amount, message=reason, by=by)
    else:
        commands.check_bonus(submission, amount)
        if ledger.owe(submission, Purpose.BONUS, key, amount, reason, by=by):
            facts = {"submission": submission.pk, "panel": panel.name, "amount": money(amount, panel.currency)}
            record("bonus.granted", submission, by, panel.project.pk, **facts)
    return submission.pay_entries.get(side=Side.OWED, key=key)


@dataclass
class OpenBonus:
    """Unpaid bonuses and screen-out rewards of one participant, to be paid manually. entries: their ledger entries."""

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
    """Return the bonuses to pay manually, by participant.

    These bonuses are owed and unpaid, and have no unfinished command.

    Includes bonuses that the platform refused. Excludes uncertain bonuses, which may have been paid. On platforms
    without an API, screen-out rewards are included.
    """
    purposes = [Purpose.BONUS]
    if not platform_of(panel).has_api:
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

    The id is the submission id, or the participant id if the submission has none. Raises NotPayable for an id that was
    erased or would need quotes.
    """
    lines = []
    for bonus in bonuses:
        name = bonus.submission.session_id or bonus.submission.participant_id
        if not PLAIN_ID.fullmatch(name):
            raise DomainError(
                "NotPayable",
                f"Submission {bonus.submission.pk} has no id that fits this format: the id was deleted or contains "
                "characters other than letters, digits, -, and _. Download the CSV and pay this submission separately.",
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
    """Record that the open bonuses of these submissions were paid manually. Return the number of participants.

    total: sum of the bonuses in the downloaded file. If the open bonuses have another sum, they have changed since the
    download. Raises NotAllowed or NothingOpen.
    """
    check_may(by, Action.WORK, panel.project)
    selected = panel.submissions.filter(pk__in=submissions)
    list(selected.select_for_update(of=("self",), no_key=True).order_by("pk"))  # a concurrent retry waits for the lock
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


# Minimum hourly rate


def bonus_to_floor(earned: int, active_s: float, floor: int) -> int:
    """Return the smallest bonus, in whole minor units, that raises the hourly rate to at least `floor`.

    Uses exact fractions, because floating-point results could be a cent short.
    """
    return max(0, ceil(Fraction(active_s) * floor / 3600) - earned)


def floor_bonuses(pay: HourlyPay, floor: int) -> list[tuple[Work, int]]:
    """Return the places with a known rate below the floor, with the smallest bonuses that raise it to the floor."""
    bonuses = ((work, bonus_to_floor(work.earned, work.active_s, floor)) for work in pay.works if work.active_s)
    return [(work, amount) for work, amount in bonuses if amount]


def is_below_floor(panel: Panel, pay: HourlyPay) -> bool:
    """Return whether the median is known and below the floor. A floor of 0 means that there is no minimum."""
    return pay.median is not None and pay.median < panel.hourly_floor


def floor_sentence(panel: Panel, pay: HourlyPay, bonuses: Sequence[tuple[Work, int]]) -> str:
    """Return the reason for pausing the panel: median, floor, and missing bonuses.

    The bonuses are itemized if the list fits.
    """
    total = money(sum(amount for _, amount in bonuses), panel.currency)
    head = (
        f"{PAUSED_BY_FLOOR}{counted(pay.n, 'participant')} is {money(int(pay.median or 0), panel.currency)} per hour, "
        f"below the minimum of {money(panel.hourly_floor, panel.currency)}. Bonuses totaling {total} make up the "
        "difference: "
    )
    amounts = ", ".join(f"{work.submission.annotator} {money(amount, panel.currency)}" for work, amount in bonuses)
    if len(head) + len(amounts) < LONGEST_REASON:
        return f"{head}{amounts}."
    return f"{head}{counted(len(bonuses), 'participant')}, listed on the pay page."


def pause_underpaid_panels(now: datetime) -> None:
    """Queue a job that pauses each published panel whose median is below its floor. A periodic task of every worker.

    Each panel is checked once per CHECK_EVERY_S seconds.
    """
    for panel in Panel.objects.filter(status=Panel.Status.PUBLISHED, hourly_floor__gt=0):
        if not cache.add(f"hourly_floor:{panel.pk}", 1, CHECK_EVERY_S) or not is_below_floor(panel, hourly_pay(panel)):
            continue
        fields = {"project": panel.project, "unique_key": f"{JOB_KIND}:{panel.pk}", "payload": {"panel": panel.pk}}
        try:
            with transaction.atomic():
                enqueue(Job.objects.create(kind=JOB_KIND, **fields))
        except IntegrityError:
            logger.debug("Another worker has queued the job to pause panel %s.", panel.pk)


def run_pause_job(job: Job, heartbeat: Heartbeat) -> Store:
    """Pause a panel, here and on its platform, if its pay is still below the floor. Runs jobs of JOB_KIND."""
    panel = Panel.objects.select_related("round__project").get(pk=job.payload["panel"])
    pay = hourly_pay(panel)
    if panel.status == Panel.Status.PUBLISHED and is_below_floor(panel, pay):
        heartbeat(Progress("pausing the panel", 0, None))
        pause_panel(panel, floor_sentence(panel, pay, floor_bonuses(pay, panel.hourly_floor)))
    return lambda: None


def make_good(panel: Panel, by=None) -> int:
    """Grant the bonuses required to reach the floor and return their sum. Resume the panel if the floor paused it.

    A bonus counts as pay once it is owed, so a repeated call grants nothing. Raises NotAllowed, NothingMissing, and the
    platform's errors if the panel cannot be resumed.
    """
    check_may(by, Action.WORK, panel.project)
    with transaction.atomic():
        Panel.objects.select_for_update(of=("self",), no_key=True).get(pk=panel.pk)  # a second click waits for the lock
        bonuses = floor_bonuses(hourly_pay(panel), panel.hourly_floor)
        if not bonuses:
            raise DomainError("NothingMissing", "No participant with a measured active time is below the minimum rate.")
        submissions = panel.submissions.filter(pk__in=[work.submission.pk for work, _ in bonuses])
        # Lock all submissions before the first entry of the audit log is written, because that entry locks the audit
        # log.
        list(submissions.select_for_update(of=("self",), no_key=True).order_by("pk"))
        reason = f"Raises the pay to {money(panel.hourly_floor, panel.currency)} per hour of active time."
        for work, amount in bonuses:
            n_before = work.submission.pay_entries.filter(side=Side.OWED, key__startswith=FLOOR_KEY).count()
            grant_bonus(work.submission, amount, reason, by, key=f"{FLOOR_KEY}{n_before + 1}")
    panel.refresh_from_db()
    if panel.status == Panel.Status.PAUSED and panel.ended_reason.startswith(PAUSED_BY_FLOOR):
        resume_panel(panel, by)
    return sum(amount for _, amount in bonuses)
