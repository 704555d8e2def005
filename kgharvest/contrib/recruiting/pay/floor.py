"""The floor under hourly pay: a panel whose median falls below it pauses, and says which bonuses make it good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import ceil

from django.core.cache import cache
from django.db import IntegrityError, transaction

from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel, PayEntry
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.publishing import LONGEST_REASON, pause_panel, resume_panel
from kgharvest.contrib.recruiting.pay.bonuses import grant_bonus
from kgharvest.contrib.recruiting.pay.hourly import HourlyPay, Work, hourly_pay
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.pages.number_format import counted

logger = logging.getLogger(__name__)

JOB_KIND = "pause_panel"
CHECK_EVERY_S = 60
BONUS_KEY = "bonus:floor:"
PAUSED_BY_FLOOR = "The median pay of "  # how the reason begins


@dataclass(frozen=True)
class FloorBonus:
    """What lifts one person's pay to the floor. amount: in minor units, the least that does."""

    work: Work
    amount: int


def bonus_to_floor(earned: int, active_s: float, floor: int) -> int:
    """Return the least whole number of minor units which, beside `earned`, makes `floor` an hour or more.

    By exact fractions: what is computed in floating point may be a cent short.
    """
    return max(0, ceil(Fraction(active_s) * floor / 3600) - earned)


def floor_bonuses(pay: HourlyPay, floor: int) -> list[FloorBonus]:
    """Return a bonus for each person whose hourly pay is known and below the floor."""
    bonuses = (
        FloorBonus(work, bonus_to_floor(work.earned, work.active_s, floor)) for work in pay.works if work.active_s
    )
    return [bonus for bonus in bonuses if bonus.amount]


def is_below_floor(panel: Panel, pay: HourlyPay) -> bool:
    """Return whether the median is known and below the floor; a floor of 0 is none."""
    return pay.median is not None and pay.median < panel.hourly_floor


def floor_sentence(panel: Panel, pay: HourlyPay, bonuses: Sequence[FloorBonus]) -> str:
    """Say what the median is and which bonuses make it good; each of them, if there is room for all."""
    total = money(sum(bonus.amount for bonus in bonuses), panel.currency)
    head = (
        f"{PAUSED_BY_FLOOR}{counted(pay.n, 'person', 'people')} is {money(int(pay.median or 0), panel.currency)} an "
        f"hour, below the floor of {money(panel.hourly_floor, panel.currency)}. Bonuses of {total} in all make it "
        "good: "
    )
    each = ", ".join(f"{bonus.work.submission.annotator} {money(bonus.amount, panel.currency)}" for bonus in bonuses)
    if len(head) + len(each) < LONGEST_REASON:
        return f"{head}{each}."
    return f"{head}{counted(len(bonuses), 'person', 'people')}, each of whom is on the page of pay."


def pause_underpaid_panels(now: datetime) -> None:
    """Queue a job that pauses each published panel whose median is below its floor. A periodic task of every worker.

    Each panel is looked at once in CHECK_EVERY_S seconds.
    """
    for panel in Panel.objects.filter(status=Panel.Status.PUBLISHED, hourly_floor__gt=0):
        if not cache.add(f"hourly_floor:{panel.pk}", 1, CHECK_EVERY_S) or not is_below_floor(panel, hourly_pay(panel)):
            continue
        new = {"project": panel.project, "unique_key": f"{JOB_KIND}:{panel.pk}", "payload": {"panel": panel.pk}}
        try:
            with transaction.atomic():
                ledger.enqueue(Job.objects.create(kind=JOB_KIND, **new))
        except IntegrityError:
            logger.debug("Another worker has queued the job that pauses panel %s.", panel.pk)


def run_pause_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Pause a panel, here and at its platform, if it still pays too little. The runner of the kind JOB_KIND."""
    panel = Panel.objects.select_related("round__project").get(pk=job.payload["panel"])
    pay = hourly_pay(panel)
    if panel.status == Panel.Status.PUBLISHED and is_below_floor(panel, pay):
        heartbeat(Progress("pausing the panel", 0, None))
        pause_panel(panel, floor_sentence(panel, pay, floor_bonuses(pay, panel.hourly_floor)))
    return lambda: None


def make_good(panel: Panel, by=None) -> int:
    """Grant everybody who is below the floor what they lack, and let a panel that paused for it go on; return the sum.

    Twice is once: it is owed then. Raises NotAllowed, NothingMissing; and what the platform says where it cannot go on.
    """
    check_may(by, Action.WORK, panel.project)
    total = _grant(panel, by)
    panel.refresh_from_db()
    if panel.status == Panel.Status.PAUSED and panel.ended_reason.startswith(PAUSED_BY_FLOOR):
        resume_panel(panel, by)
    return total


@transaction.atomic
def _grant(panel: Panel, by) -> int:
    Panel.objects.select_for_update(of=("self",), no_key=True).get(pk=panel.pk)  # a second click waits
    bonuses = floor_bonuses(hourly_pay(panel), panel.hourly_floor)
    if not bonuses:
        raise DomainError("NothingMissing", "Nobody whose time is known is paid less than the floor.")
    people = panel.submissions.filter(pk__in=[bonus.work.submission.pk for bonus in bonuses])
    # All of them before the first entry in the audit trail, whose lock comes last.
    list(people.select_for_update(of=("self",), no_key=True).order_by("pk"))
    reason = f"Lifts the pay to {money(panel.hourly_floor, panel.currency)} an hour of work."
    for bonus in bonuses:
        submission = bonus.work.submission
        n_before = submission.pay_entries.filter(side=PayEntry.Side.OWED, key__startswith=BONUS_KEY).count()
        grant_bonus(submission, bonus.amount, reason, by, key=f"{BONUS_KEY}{n_before + 1}")
    return sum(bonus.amount for bonus in bonuses)
