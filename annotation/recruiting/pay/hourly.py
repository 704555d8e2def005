"""Hourly pay: what people get, over the time they were at work.

Active time is what the judging page measures: the seconds that a statement was looked at in a visible tab, each capped.
Answers that nobody measured count as long as the person's others do. Training counts from its start to its end, capped
by as much a statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from django.db.models import Count, Exists, F, OuterRef, Q, Sum
from django.db.models.functions import Least

from annotation.judging.judgments import LONGEST_TIME_S
from annotation.models import Panel, Submission, Training
from annotation.recruiting.pay.ledger import Balance, balances

FEWEST_PEOPLE = 5  # who completed, before a median says something about a panel
LEAST_MEASURED = 0.5  # share of a person's answers whose time is known, before it stands for the others
PAID_FOR = (Submission.Status.COMPLETED, Submission.Status.APPROVED)


@dataclass(frozen=True)
class Work:
    """One completed place. active_s: None where too little was measured. balance: in minor units.

    earned: what is owed for it or was paid, whichever is more.
    """

    submission: Submission
    active_s: float | None
    balance: Balance

    @property
    def earned(self) -> int:
        return max(self.balance.owed, self.balance.paid)

    @property
    def hourly(self) -> Fraction | None:
        """What an hour of it brings, in minor units, exactly; None where the time is not known."""
        return Fraction(self.earned) * 3600 / Fraction(self.active_s) if self.active_s else None


@dataclass(frozen=True)
class HourlyPay:
    """Of a panel. median: in minor units an hour, None for `reason`. n: people it is of."""

    works: Sequence[Work]
    median: float | None
    n: int
    reason: str = ""


def hourly_pay(panel: Panel) -> HourlyPay:
    """Return what completed places of a panel bring an hour, and the median of it."""
    works = completed_works(panel)
    hourly = [work.hourly for work in works if work.hourly is not None]
    if len(hourly) >= FEWEST_PEOPLE:
        return HourlyPay(works, float(median(hourly)), len(hourly))
    reason = f"{len(works)} completed so far; a median is told from {FEWEST_PEOPLE} people on"
    if len(works) >= FEWEST_PEOPLE:
        reason = f"the active time of only {len(hourly)} people is known; a median is told from {FEWEST_PEOPLE} on"
    return HourlyPay(works, None, len(hourly), reason)


def completed_works(panel: Panel) -> list[Work]:
    """Return the completed places of a panel, in the order people entered."""
    submissions = panel.submissions.filter(status__in=PAID_FOR, annotator__isnull=False)
    times, ledger = active_times(panel), balances(panel)
    return [
        Work(submission, times.get(submission.pk), ledger.get(submission.pk, Balance()))
        for submission in submissions.select_related("annotator").order_by("pk")
    ]


# -- active time -------------------------------------------------------------------------------------------------------


def active_times(panel: Panel) -> Mapping[int, float]:
    """Return the active seconds of each submission of a panel, by its id; of those where they are known.

    A judgment belongs to the last place that its annotator had entered when they gave it. One that was superseded took
    time, too.
    """
    later = Submission.objects.filter(
        annotator=OuterRef("annotator"),
        entered_at__gt=OuterRef("entered_at"),
        entered_at__lte=OuterRef("annotator__judgments__judged_at"),
    )
    judged_in_it = panel.submissions.filter(~Exists(later), annotator__judgments__judged_at__gte=F("entered_at"))
    seconds = "annotator__judgments__seconds"
    measured = Sum(Least(seconds, LONGEST_TIME_S), filter=Q(**{f"{seconds}__isnull": False}))
    rows = (
        judged_in_it.order_by()
        .values_list("pk")
        .annotate(n=Count("annotator__judgments"), n_measured=Count(seconds), total=measured)
    )
    training = _training_times(panel)
    return {
        submission: total * n / n_measured + training.get(submission, 0.0)
        for submission, n, n_measured, total in rows
        if n_measured and n_measured >= LEAST_MEASURED * n and total > 0
    }


def _training_times(panel: Panel) -> Mapping[int, float]:
    """Return the seconds of training in each submission, by its id."""
    places = _places(panel)
    times: dict[int, float] = defaultdict(float)
    trainings = Training.objects.filter(annotator__in=places, finished_at__isnull=False)
    for training in trainings:
        before = [place for place in places[training.annotator_id] if place.entered_at <= training.started_at]
        if before and before[-1].panel_id == panel.pk:
            took = (training.finished_at - training.started_at).total_seconds()
            times[before[-1].pk] += min(took, training.n_answered * LONGEST_TIME_S)
    return times


def _places(panel: Panel) -> Mapping[int, list[Submission]]:
    """Return all places that the panel's people ever entered, by annotator, the first entered first."""
    people = panel.submissions.filter(annotator__isnull=False).order_by().values("annotator")
    places: dict[int, list[Submission]] = defaultdict(list)
    entered: Iterable[Submission] = Submission.objects.filter(annotator__in=people).order_by("entered_at", "pk")
    for submission in entered:
        places[submission.annotator_id].append(submission)
    return places
