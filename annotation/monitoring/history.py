"""Round history: judgments per hour, day, or week, agreement on the statements completed in each, and charts."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Max, Min
from django.utils import timezone

from annotation.judging.third_judgments import LabelCounts, third_judgments, without_label
from annotation.models import Judgment, Round
from annotation.monitoring.cells import interval_picture
from annotation.monitoring.progress import CachedCount, CountRound, cached_count, rows_of
from annotation.quality.annotator_statistics import count_annotators
from kgharvest.pages.number_format import count, share
from kgharvest.statistics.agreement import agreement_of_rows

MOST_AT_A_LOOK = 5_000  # judgments; for more, counting runs in the background
ROWS_AT_ONCE = 10_000


class Unit(NamedTuple):
    """Time unit for histories of up to `longest`. step: less than half a unit, even when daylight saving time changes.

    begin_of: start of the period that contains a time, in the installation's time zone.
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
    """Return the result of count_history, empty during the first background count."""
    return _counted(round, "history", count_history, now)


def annotator_strips(round: Round, now: datetime) -> CachedCount:
    """Return the statistics of all annotators, empty during the first background count."""
    strips = _counted(round, "strips", count_annotators, now)
    status = dict(round.annotators.values_list("pk", "status"))
    return replace(strips, content=[row | {"status": status[row["pk"]]} for row in strips.content])


def _counted(round: Round, subject: str, count: CountRound, now: datetime) -> CachedCount:
    is_quick = round.n_tasks * round.judgments_per_task <= MOST_AT_A_LOOK
    return cached_count(round, subject, count, now, first=None if is_quick else lambda _: [])


def count_history(round: Round) -> dict[str, Any]:
    """Return the time unit and all its periods from the first to the last judgment, including empty ones.

    periods: begin, n judgments (including gold and late ones), n_completed statements, and the agreement on these.
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
    """Return the label counts of each complete statement, without third judgments as agreement uses the first two."""
    columns = ("pk", "n_true", "n_false", "n_unjudgeable")
    complete = round.tasks.without_gold().complete().order_by().values_list(*columns)
    labels = {pk: tuple(counts) for pk, *counts in complete}
    for task, third in third_judgments(round):
        if task in labels:
            labels[task] = without_label(labels[task], third.label)
    return labels


def _periods(first: datetime, last: datetime, unit: Unit) -> list[datetime]:
    """Return the start of each period from `first` to `last`."""
    begins, end = [unit.begin_of(first)], unit.begin_of(last)
    at = begins[0]
    while begins[-1] < end:
        at += unit.step
        if unit.begin_of(at) != begins[-1]:
            begins.append(unit.begin_of(at))
    return begins


# Charts


WIDTH, HEIGHT = 720, 96
FEWEST_UNITS = 5  # minimum number of statements for a point of agreement
# Events that may change how people judge. Instructions are frozen when the round opens.
MARKED = ("paused", "reopened", "imported", "limits_set", "limit_crossed", "excluded", "reinstated")
MOST_MARKS = 20
FORMATS = {"hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d", "week": "%Y-%m-%d"}


@dataclass(frozen=True)
class HistoryPicture:
    """Data of the history chart.

    bars, points, marks: coordinates in WIDTH x HEIGHT and texts. line: SVG points.
    """

    unit: str
    rows: Sequence[Mapping[str, Any]]
    bars: Sequence[Mapping[str, Any]]
    points: Sequence[Mapping[str, Any]]
    marks: Sequence[Mapping[str, Any]]
    most: int
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def line(self) -> str:
        return " ".join(f"{point['x']},{point['y']}" for point in self.points)


def history_picture(round: Round, history: Mapping[str, Any]) -> HistoryPicture | None:
    """Return the chart data of a count_history result, or None without judgments."""
    periods = [period | {"begin": datetime.fromisoformat(period["begin"])} for period in history["periods"]]
    if not periods:
        return None
    begins = [period["begin"] for period in periods]
    step, most = WIDTH / len(periods), max(period["n"] for period in periods)
    events = round.events.filter(kind__in=MARKED, at__gte=begins[0])
    rows = [period | {"when": when(period["begin"], history["unit"])} for period in periods]
    return HistoryPicture(
        unit=history["unit"],
        rows=rows,
        bars=[_bar(row, number * step, step, most) for number, row in enumerate(rows)],
        points=[
            _point(row, (number + 0.5) * step)
            for number, row in enumerate(rows)
            if row["alpha"] is not None and row["n_units"] >= FEWEST_UNITS
        ],
        marks=[
            {"x": _tenth((bisect_right(begins, event.at) - 0.5) * step), "event": event}
            for event in reversed(list(events[:MOST_MARKS]))
        ],
        most=most,
    )


def when(begin: datetime, unit: str) -> str:
    return timezone.localtime(begin).strftime(FORMATS[unit])


def _bar(row: Mapping[str, Any], x: float, step: float, most: int) -> dict[str, Any]:
    height = HEIGHT * row["n"] / most
    return {
        "x": _tenth(x + 0.1 * step),
        "y": _tenth(HEIGHT - height),
        "width": _tenth(0.8 * step),
        "height": _tenth(height),
        "title": f"{row['when']}: {count(row['n'])} judgments, {count(row['n_completed'])} statements completed",
    }


def _point(row: Mapping[str, Any], x: float) -> dict[str, Any]:
    y = HEIGHT * (1 - max(0.0, row["alpha"]))
    title = f"{row['when']}: alpha {share(row['alpha'])} of {count(row['n_units'])} statements"
    return {"x": _tenth(x), "y": _tenth(y), "title": title}


def _tenth(number: float) -> str:
    return f"{number:.1f}"


def strips(rows: Sequence[Mapping[str, Any]], n_most: int) -> list[dict[str, Any]]:
    """Return the `n_most` annotators with most judgments, with charts of their judgments, gold accuracy, and speed.

    rows: of annotator_statistics. Bar lengths are relative to the maximum over all rows.
    """
    most = max((row["n"] for row in rows), default=0)
    slowest = max((row["median_seconds"] or 0 for row in rows), default=0)
    return [
        {
            **row,
            "judged_width": _tenth(100 * row["n"] / most) if most else "0",
            "seconds_width": _tenth(100 * (row["median_seconds"] or 0) / slowest) if slowest else "0",
            "gold_picture": interval_picture(*(row["gold"][key] for key in ("value", "low", "high"))),
        }
        for row in sorted(rows, key=lambda row: (-row["n"], row["code"]))[:n_most]
    ]
