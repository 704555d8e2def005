"""Hourly pay: the pay of people over their time at work, as numbers, as a picture, and in sentences for papers.

Active time is what the judging page measures: the seconds that a statement was looked at in a visible tab, each capped.
Answers that nobody measured count as long as the person's others do. Training counts from its start to its end, capped
by as much a statement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, Sum
from django.db.models.functions import Least

from annotation.judging.judgments import LONGEST_TIME_S
from annotation.models import Round, Training
from kgharvest.contrib.recruiting.models import Panel, Platform, Submission
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.pay.ledger import Balance, balances, panel_balance
from kgharvest.pages.number_format import counted

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
    # All places that the panel's people ever entered, by annotator, the first entered first.
    people = panel.submissions.filter(annotator__isnull=False).order_by().values("annotator")
    places: dict[int, list[Submission]] = defaultdict(list)
    for submission in Submission.objects.filter(annotator__in=people).order_by("entered_at", "pk"):
        places[submission.annotator_id].append(submission)
    times: dict[int, float] = defaultdict(float)
    trainings = Training.objects.filter(annotator__in=places, finished_at__isnull=False)
    for training in trainings:
        before = [place for place in places[training.annotator_id] if place.entered_at <= training.started_at]
        if before and before[-1].panel_id == panel.pk:
            took = (training.finished_at - training.started_at).total_seconds()
            times[before[-1].pk] += min(took, training.n_answered * LONGEST_TIME_S)
    return times


# Picture of hourly pay


WIDTH, HEIGHT = 720, 96
N_COLUMNS = 72  # dots of one column are stacked
MARGIN = 6  # of half a dot
FURTHEST = 4  # times the median or floor: a few who were very fast do not press the others together


@dataclass(frozen=True)
class PayPicture:
    """dots, lines: with coordinates in WIDTH x HEIGHT and what they say. most: at the right end, in words.

    n_beyond: dots that would be further right.
    """

    dots: Sequence[dict[str, Any]]
    lines: Sequence[dict[str, Any]]
    most: str
    n_beyond: int
    width: int = WIDTH
    height: int = HEIGHT


def pay_picture(panel: Panel, pay: HourlyPay) -> PayPicture | None:
    """Return the picture of those whose time is known; None without any."""
    people = sorted(
        (float(work.hourly), str(work.submission.annotator)) for work in pay.works if work.hourly is not None
    )
    if not people:
        return None
    usual = max(median(hourly for hourly, _ in people), panel.hourly_floor, 1)
    most = min(1.1 * max(people[-1][0], usual), FURTHEST * usual)
    step = WIDTH / N_COLUMNS
    columns = [min(N_COLUMNS - 1, int(hourly / most * N_COLUMNS)) for hourly, _ in people]
    rise = min(step, (HEIGHT - 2 * MARGIN) / max(Counter(columns).values()))
    stacked: Counter[int] = Counter()
    dots = []
    for column, (hourly, code) in zip(columns, people, strict=True):
        y = HEIGHT - MARGIN - rise * stacked[column]
        stacked[column] += 1
        title = f"{code}: {money(int(hourly), panel.currency)} an hour"
        dots.append({"x": f"{(column + 0.5) * step:.1f}", "y": f"{y:.1f}", "title": title})
    n_beyond = sum(hourly > most for hourly, _ in people)
    return PayPicture(dots, _lines(panel, pay, most), money(int(most), panel.currency), n_beyond)


def _lines(panel: Panel, pay: HourlyPay, most: float) -> list[dict[str, Any]]:
    marked = [("floor", panel.hourly_floor or None), ("median", pay.median)]
    return [
        {
            "name": name,
            "x": f"{WIDTH * value / most:.1f}",
            "title": f"{name} {money(int(value), panel.currency)} an hour",
        }
        for name, value in marked
        if value is not None
    ]


# Pay in sentences, for papers


def pay_in_words(round: Round) -> str:
    """Return what the people of a round's panels got, in two sentences for each panel that paid; empty without any."""
    return " ".join(sentence for panel in round.panels.order_by("pk") for sentence in _sentences(panel))


def _sentences(panel: Panel) -> Iterator[str]:
    balance, pay = panel_balance(panel), hourly_pay(panel)
    total = max(balance.owed, balance.paid)
    if not total or (panel.is_sandbox and panel.platform == Platform.MTURK):  # MTurk's sandbox paid nobody
        return
    where = "by a link" if panel.platform == Platform.LINK else f"on {Platform(panel.platform).product_name}"
    yield (
        f"{counted(len(pay.works), 'person', 'people')} recruited {where} completed the work, at "
        f"{money(panel.reward, panel.currency)} for {counted(panel.statements_per_place, 'statement')} each; they and "
        f"those who left early got {money(total, panel.currency)} in all, bonuses included."
    )
    if pay.median is None:
        yield "Too few were timed for a median of hourly pay."
        return
    floor = f"; the floor that was set is {money(panel.hourly_floor, panel.currency)}" if panel.hourly_floor else ""
    median = money(int(pay.median), panel.currency)
    yield f"The median pay of {counted(pay.n, 'person', 'people')} was {median} an hour of active time{floor}."
