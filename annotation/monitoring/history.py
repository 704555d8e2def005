"""How a round went: judgments by hour, day or week, and the agreement on what was completed in each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Max, Min
from django.utils import timezone

from annotation.judging.third_judgments import LabelCounts, third_judgments, without_label
from annotation.models import Judgment, Round
from annotation.monitoring.progress import CachedCount, CountRound, cached_count, rows_of
from annotation.quality.annotator_statistics import count_annotators
from kgharvest.statistics.agreement import agreement_of_rows

MOST_AT_A_LOOK = 5_000  # judgments that are gone through for a look; more are counted aside
ROWS_AT_ONCE = 10_000


class Unit(NamedTuple):
    """Of time, for histories of up to `longest`. step: less than half of it, whatever season it is.

    begin_of: the begin of the period of a moment, in the installation's time zone.
    """

    name: str
    longest: timedelta
    step: timedelta
    begin_of: Callable[[datetime], datetime]


def _hour(at: datetime) -> datetime:
    return timezone.localtime(at).replace(minute=0, second=0, microsecond=0)


def _day(at: datetime) -> datetime:
    return _hour(at).replace(hour=0)


def _week(at: datetime) -> datetime:
    return _day(_day(at) - timedelta(days=_day(at).weekday()) + timedelta(hours=12))


UNITS = (
    Unit("hour", timedelta(days=2), timedelta(minutes=25), _hour),
    Unit("day", timedelta(days=90), timedelta(hours=10), _day),
    Unit("week", timedelta.max, timedelta(days=3), _week),
)


def round_history(round: Round, now: datetime) -> CachedCount:
    """Return what count_history does, nothing while it is counted for the first time."""
    return _counted(round, "history", count_history, now)


def annotator_strips(round: Round, now: datetime) -> CachedCount:
    """Return what annotator_statistics does for all annotators, nothing while it is counted for the first time."""
    strips = _counted(round, "strips", count_annotators, now)
    status = dict(round.annotators.values_list("pk", "status"))
    return replace(strips, content=[row | {"status": status[row["pk"]]} for row in strips.content])


def _counted(round: Round, subject: str, count: CountRound, now: datetime) -> CachedCount:
    is_quick = round.n_tasks * round.judgments_per_task <= MOST_AT_A_LOOK
    return cached_count(round, subject, count, now, first=None if is_quick else lambda _: [])


def count_history(round: Round) -> dict[str, Any]:
    """Return the unit of time and its periods, with those between the first and last judgment in which nobody judged.

    periods: begin, n judgments (gold and late ones too), n_completed statements and the agreement on these.
    """
    current = Judgment.objects.current().filter(annotator__round=round).order_by()
    first, last = current.aggregate(first=Min("judged_at"), last=Max("judged_at")).values()
    if first is None:
        return {"unit": "", "periods": []}
    unit = next(unit for unit in UNITS if last - first <= unit.longest)
    n_by_period: Counter[datetime] = Counter()
    completed: dict[int, datetime] = {}
    for task, judged_at, is_counted in current.values_list("task", "judged_at", "is_counted").iterator(ROWS_AT_ONCE):
        n_by_period[unit.begin_of(judged_at)] += 1
        if is_counted:
            completed[task] = max(judged_at, completed.get(task, judged_at))
    patterns: defaultdict[datetime, Counter[LabelCounts]] = defaultdict(Counter)
    for task, labels in _labels_of_complete(round).items():
        if task in completed:
            patterns[unit.begin_of(completed[task])][labels] += 1
    return {
        "unit": unit.name,
        "periods": [
            {
                "begin": begin.isoformat(),
                "n": n_by_period[begin],
                "n_completed": patterns[begin].total(),
                **agreement_of_rows(rows_of(patterns[begin])),
            }
            for begin in _periods(first, last, unit)
        ],
    }


def _labels_of_complete(round: Round) -> Mapping[int, LabelCounts]:
    """Return the labels of each complete statement, without third judgments, as agreement goes by the first two."""
    columns = ("pk", "n_true", "n_false", "n_unjudgeable")
    complete = round.tasks.without_gold().complete().order_by().values_list(*columns)
    labels = {pk: tuple(counts) for pk, *counts in complete}
    for task, third in third_judgments(round):
        if task in labels:
            labels[task] = without_label(labels[task], third.label)
    return labels


def _periods(first: datetime, last: datetime, unit: Unit) -> list[datetime]:
    """Return the begins of all periods from that of the first moment to that of the last."""
    begins, end = [unit.begin_of(first)], unit.begin_of(last)
    at = begins[0]
    while begins[-1] < end:
        at += unit.step
        if unit.begin_of(at) != begins[-1]:
            begins.append(unit.begin_of(at))
    return begins
