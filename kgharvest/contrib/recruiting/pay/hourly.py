"""Hourly pay based on active time: numbers, figure, and sentences for papers.

The judging page measures active time: the seconds for which each statement was visible, with a maximum per statement.
For an answer without a measurement, the mean time of the participant's other answers is used. Training counts as active
time from its start to its end, with the same maximum per statement.
"""

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
from kgharvest.contrib.recruiting.pay.ledger import Balance, balance_of, balances
from kgharvest.pages.number_format import counted

FEWEST_PEOPLE = 5  # minimum number of measured participants for a median
LEAST_MEASURED = 0.5  # minimum share of a participant's answers whose time was measured
PAID_FOR = (Submission.Status.COMPLETED, Submission.Status.APPROVED)
# Figure
WIDTH, HEIGHT = 720, 96
N_COLUMNS = 72  # dots in the same column are stacked
MARGIN = 6  # half the width of a dot
FURTHEST = 4  # maximum rate shown, in multiples of the larger of median and floor


@dataclass(frozen=True)
class Work:
    """Work on one completed place. active_s: active seconds, None if too few answers were timed.

    earned: the larger of the amounts owed and paid.
    """

    submission: Submission
    active_s: float | None
    balance: Balance

    @property
    def earned(self) -> int:
        return max(self.balance.owed, self.balance.paid)

    @property
    def hourly(self) -> Fraction | None:
        """The exact hourly rate in minor units, or None if the active time is unknown."""
        return Fraction(self.earned) * 3600 / Fraction(self.active_s) if self.active_s else None


@dataclass(frozen=True)
class HourlyPay:
    """Hourly pay of a panel.

    median: median in minor units per hour. If it is undefined, it is None, and `reason` says why. n: number of
    participants with measured time.
    """

    works: Sequence[Work]
    median: float | None
    n: int
    reason: str = ""


def hourly_pay(panel: Panel) -> HourlyPay:
    """Return the completed places of a panel in order of entry, and their median hourly rate."""
    submissions = panel.submissions.filter(status__in=PAID_FOR, annotator__isnull=False)
    times, pay = active_times(panel), balances(panel)
    works = [
        Work(submission, times.get(submission.pk), pay.get(submission.pk, Balance()))
        for submission in submissions.select_related("annotator").order_by("pk")
    ]
    hourly = [work.hourly for work in works if work.hourly is not None]
    if len(hourly) >= FEWEST_PEOPLE:
        return HourlyPay(works, float(median(hourly)), len(hourly))
    reason = f"{len(works)} completed so far; the median requires {FEWEST_PEOPLE} participants"
    if len(works) >= FEWEST_PEOPLE:
        reason = f"active time is known for only {len(hourly)} participants; the median requires {FEWEST_PEOPLE}"
    return HourlyPay(works, None, len(hourly), reason)


def active_times(panel: Panel) -> Mapping[int, float]:
    """Return active seconds by submission id. Submissions with too few measurements are absent.

    A judgment belongs to the place that its annotator entered last before the judgment. Superseded judgments count,
    too.
    """
    later = Submission.objects.filter(
        annotator=OuterRef("annotator"),
        entered_at__gt=OuterRef("entered_at"),
        entered_at__lte=OuterRef("annotator__judgments__judged_at"),
    )
    judged = panel.submissions.filter(~Exists(later), annotator__judgments__judged_at__gte=F("entered_at"))
    seconds = "annotator__judgments__seconds"
    measured = Sum(Least(seconds, LONGEST_TIME_S), filter=Q(**{f"{seconds}__isnull": False}))
    rows = (
        judged.order_by()
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
    """Return training seconds by submission id."""
    # All submissions of the panel's annotators, including those in other panels, by annotator and in order of entry.
    annotators = panel.submissions.filter(annotator__isnull=False).order_by().values("annotator")
    submissions: dict[int, list[Submission]] = defaultdict(list)
    for submission in Submission.objects.filter(annotator__in=annotators).order_by("entered_at", "pk"):
        submissions[submission.annotator_id].append(submission)
    times: dict[int, float] = defaultdict(float)
    for training in Training.objects.filter(annotator__in=submissions, finished_at__isnull=False):
        earlier = [row for row in submissions[training.annotator_id] if row.entered_at <= training.started_at]
        if earlier and earlier[-1].panel_id == panel.pk:
            duration_s = (training.finished_at - training.started_at).total_seconds()
            times[earlier[-1].pk] += min(duration_s, training.n_answered * LONGEST_TIME_S)
    return times


def pay_picture(panel: Panel, pay: HourlyPay) -> dict[str, Any] | None:
    """Return the dot plot of the hourly rates of participants with measured time, or None if there are none.

    dots, lines: titles of the marks, and their coordinates within width x height. most: formatted hourly rate at the
    right end. n_beyond: number of participants beyond the right end.
    """
    rates = sorted(
        (float(work.hourly), str(work.submission.annotator)) for work in pay.works if work.hourly is not None
    )
    if not rates:
        return None
    center = max(median(hourly for hourly, _ in rates), panel.hourly_floor, 1)
    most = min(1.1 * max(rates[-1][0], center), FURTHEST * center)
    step = WIDTH / N_COLUMNS
    columns = [min(N_COLUMNS - 1, int(hourly / most * N_COLUMNS)) for hourly, _ in rates]
    rise = min(step, (HEIGHT - 2 * MARGIN) / max(Counter(columns).values()))
    stacked: Counter[int] = Counter()
    dots = []
    for column, (hourly, code) in zip(columns, rates, strict=True):
        y = HEIGHT - MARGIN - rise * stacked[column]
        stacked[column] += 1
        title = f"{code}: {money(int(hourly), panel.currency)} per hour"
        dots.append({"x": f"{(column + 0.5) * step:.1f}", "y": f"{y:.1f}", "title": title})
    lines = [
        {
            "name": name,
            "x": f"{WIDTH * value / most:.1f}",
            "title": f"{name} {money(int(value), panel.currency)} per hour",
        }
        for name, value in (("minimum", panel.hourly_floor or None), ("median", pay.median))
        if value is not None
    ]
    n_beyond = sum(hourly > most for hourly, _ in rates)
    size = {"width": WIDTH, "height": HEIGHT}
    return {"dots": dots, "lines": lines, "most": money(int(most), panel.currency), "n_beyond": n_beyond, **size}


def pay_in_words(round: Round) -> str:
    """Return two sentences for each panel of the round that paid participants, or "" if no panel did."""
    return " ".join(sentence for panel in round.panels.order_by("pk") for sentence in _sentences(panel))


def _sentences(panel: Panel) -> Iterator[str]:
    balance, pay = balance_of(panel), hourly_pay(panel)
    total = max(balance.owed, balance.paid)
    # Participants of MTurk's sandbox were not paid.
    if not total or (panel.is_sandbox and panel.platform == Platform.MTURK):
        return
    source = "by a link" if panel.platform == Platform.LINK else f"on {Platform(panel.platform).product_name}"
    yield (
        f"{counted(len(pay.works), 'participant')} recruited {source} completed the work, at "
        f"{money(panel.reward, panel.currency)} for {counted(panel.statements_per_place, 'statement')} each; total "
        f"pay, including bonuses and participants who left early, was {money(total, panel.currency)}."
    )
    if pay.median is None:
        yield "Too few participants were timed to report a median hourly rate."
        return
    floor = f"; the minimum was set to {money(panel.hourly_floor, panel.currency)}" if panel.hourly_floor else ""
    rate = money(int(pay.median), panel.currency)
    yield f"The median pay of {counted(pay.n, 'participant')} was {rate} per hour of active time{floor}."
