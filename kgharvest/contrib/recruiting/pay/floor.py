"""Minimum hourly rate ("floor"): a panel whose median falls below it pauses and lists the missing bonuses."""

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
PAUSED_BY_FLOOR = "The median pay of "  # prefix of the stored reason


@dataclass(frozen=True)
class FloorBonus:
    """Smallest bonus that raises one participant's pay to the floor, in minor units."""

    work: Work
    amount: int


def bonus_to_floor(earned: int, active_s: float, floor: int) -> int:
    """Return the smallest bonus in whole minor units with which an hour pays at least `floor`.

    Uses exact fractions, as floating point could be a cent short.
    """
    return max(0, ceil(Fraction(active_s) * floor / 3600) - earned)


def floor_bonuses(pay: HourlyPay, floor: int) -> list[FloorBonus]:
    """Return a bonus for each participant whose hourly rate is known and below the floor."""
    bonuses = (
        FloorBonus(work, bonus_to_floor(work.earned, work.active_s, floor)) for work in pay.works if work.active_s
    )
    return [bonus for bonus in bonuses if bonus.amount]


def is_below_floor(panel: Panel, pay: HourlyPay) -> bool:
    """Return whether the median is known and below the floor; a floor of 0 means no minimum."""
    return pay.median is not None and pay.median < panel.hourly_floor


def floor_sentence(panel: Panel, pay: HourlyPay, bonuses: Sequence[FloorBonus]) -> str:
    """Return the reason for pausing: median, floor, and the missing bonuses, itemized if they fit LONGEST_REASON."""
    total = money(sum(bonus.amount for bonus in bonuses), panel.currency)
    head = (
        f"{PAUSED_BY_FLOOR}{counted(pay.n, 'participant')} is {money(int(pay.median or 0), panel.currency)} per hour, "
        f"below the minimum of {money(panel.hourly_floor, panel.currency)}. Bonuses totaling {total} make up the "
        "difference: "
    )
    amounts = ", ".join(f"{bonus.work.submission.annotator} {money(bonus.amount, panel.currency)}" for bonus in bonuses)
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
                ledger.enqueue(Job.objects.create(kind=JOB_KIND, **fields))
        except IntegrityError:
            logger.debug("Another worker has queued the job to pause panel %s.", panel.pk)


def run_pause_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Pause a panel, here and on its platform, if it is still below the floor. The runner of JOB_KIND."""
    panel = Panel.objects.select_related("round__project").get(pk=job.payload["panel"])
    pay = hourly_pay(panel)
    if panel.status == Panel.Status.PUBLISHED and is_below_floor(panel, pay):
        heartbeat(Progress("pausing the panel", 0, None))
        pause_panel(panel, floor_sentence(panel, pay, floor_bonuses(pay, panel.hourly_floor)))
    return lambda: None


def make_good(panel: Panel, by=None) -> int:
    """Grant the bonuses missing to the floor, and resume a panel that was paused by it; return their sum.

    A bonus counts as pay once it is owed, so a repeated call grants nothing. Raises NotAllowed, NothingMissing, and the
    platform's errors on resuming.
    """
    check_may(by, Action.WORK, panel.project)
    with transaction.atomic():
        Panel.objects.select_for_update(of=("self",), no_key=True).get(pk=panel.pk)  # a second click waits
        bonuses = floor_bonuses(hourly_pay(panel), panel.hourly_floor)
        if not bonuses:
            raise DomainError("NothingMissing", "No participant with a measured active time is below the minimum rate.")
        submissions = panel.submissions.filter(pk__in=[bonus.work.submission.pk for bonus in bonuses])
        # Lock all submissions before the first audit log entry, whose lock comes last.
        list(submissions.select_for_update(of=("self",), no_key=True).order_by("pk"))
        reason = f"Raises the pay to {money(panel.hourly_floor, panel.currency)} per hour of active time."
        for bonus in bonuses:
            submission = bonus.work.submission
            n_before = submission.pay_entries.filter(side=PayEntry.Side.OWED, key__startswith=BONUS_KEY).count()
            grant_bonus(submission, bonus.amount, reason, by, key=f"{BONUS_KEY}{n_before + 1}")
    panel.refresh_from_db()
    if panel.status == Panel.Status.PAUSED and panel.ended_reason.startswith(PAUSED_BY_FLOOR):
        resume_panel(panel, by)
    return sum(bonus.amount for bonus in bonuses)
