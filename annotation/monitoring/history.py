"""Round history: judgments per hour, day, or week, agreement on the statements completed in each, and charts."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from django.db.models import Max, Min
from django.utils import timezone

from annotation.judging.third_judgments import LabelCounts, third_judgments, without_label
from annotation.models import Judgment, Round
from annotation.monitoring.cells import interval_picture
from annotation.monitoring.progress import CachedCount, cached_count, is_counted_live, rows_of
from kgharvest.pages.number_format import share
from kgharvest.statistics.agreement import agreement_of_rows
from kgharvest.statistics.rates import rate

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
    first = None if is_counted_live(round, MOST_AT_A_LOOK) else lambda _: []
    return cached_count(round, "history", count_history, now, first=first)


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
    # Without third judgments, as agreement uses the first two.
    columns = ("pk", "n_true", "n_false", "n_unjudgeable")
    complete = round.tasks.without_gold().exclude(verdict="").order_by().values_list(*columns)
    labels_by_task: dict[int, LabelCounts] = {pk: tuple(counts) for pk, *counts in complete}
    if round.third_only_if_split:
        for task, third in third_judgments(round):
            if task in labels_by_task:
                labels_by_task[task] = without_label(labels_by_task[task], third.label)
    patterns: defaultdict[datetime, Counter[LabelCounts]] = defaultdict(Counter)
    for task, labels in labels_by_task.items():
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
    line: str
    width: int = WIDTH
    height: int = HEIGHT


def history_picture(round: Round, history: Mapping[str, Any]) -> HistoryPicture | None:
    """Return the chart data of a count_history result, or None without judgments."""
    periods = [period | {"begin": datetime.fromisoformat(period["begin"])} for period in history["periods"]]
    if not periods:
        return None
    begins = [period["begin"] for period in periods]
    step, most = WIDTH / len(periods), max(period["n"] for period in periods)
    bars, points = [], []
    for number, row in enumerate(periods):
        row["when"] = timezone.localtime(row["begin"]).strftime(FORMATS[history["unit"]])
        height = HEIGHT * row["n"] / most
        bars.append(
            {
                "x": f"{(number + 0.1) * step:.1f}",
                "y": f"{HEIGHT - height:.1f}",
                "width": f"{0.8 * step:.1f}",
                "height": f"{height:.1f}",
                "title": f"{row['when']}: {row['n']:,} judgments, {row['n_completed']:,} statements completed",
            }
        )
        if row["alpha"] is not None and row["n_units"] >= FEWEST_UNITS:
            x, y = (number + 0.5) * step, HEIGHT * (1 - max(0.0, row["alpha"]))
            title = f"{row['when']}: alpha {share(row['alpha'])} of {row['n_units']:,} statements"
            points.append({"x": f"{x:.1f}", "y": f"{y:.1f}", "title": title})
    events = round.events.filter(kind__in=MARKED, at__gte=begins[0])[:MOST_MARKS]
    return HistoryPicture(
        unit=history["unit"],
        rows=periods,
        bars=bars,
        points=points,
        marks=[
            {"x": f"{(bisect_right(begins, event.at) - 0.5) * step:.1f}", "event": event} for event in reversed(events)
        ],
        most=most,
        line=" ".join(f"{point['x']},{point['y']}" for point in points),
    )


# Annotators


def strips(round: Round, now: datetime, n_most: int) -> list[dict[str, Any]]:
    """Return the `n_most` annotators with most judgments, with charts of their judgments, gold accuracy, and speed.

    Bar lengths are relative to the maximum over all annotators. Empty during the first background count.
    """
    first = None if is_counted_live(round, MOST_AT_A_LOOK) else lambda _: []
    rows = cached_count(round, "strips", count_strips, now, first=first).content
    status = dict(round.annotators.values_list("pk", "status"))
    most = max((row["n"] for row in rows), default=0) or 1
    slowest = max((row["median_seconds"] or 0 for row in rows), default=0) or 1
    return [
        {
            **row,
            "status": status[row["pk"]],
            "judged_width": f"{100 * row['n'] / most:.1f}",
            "seconds_width": f"{100 * (row['median_seconds'] or 0) / slowest:.1f}",
            "gold_picture": interval_picture(*(row["gold"][key] for key in ("value", "low", "high"))),
        }
        for row in sorted(rows, key=lambda row: (-row["n"], row["code"]))[:n_most]
    ]


def count_strips(round: Round) -> list[dict[str, Any]]:
    """Return judgments, gold accuracy, and median active seconds (None if not measured) of each annotator."""
    judgments = Judgment.objects.current().filter(annotator__round=round).order_by("annotator")
    columns = judgments.values_list("annotator", "label", "seconds", "task__gold_label").iterator(ROWS_AT_ONCE)
    counts: dict[int, tuple[int, list[bool], float | None]] = {}
    for pk, rows in groupby(columns, key=itemgetter(0)):  # one annotator at a time, as there may be millions of rows
        answers = list(rows)
        seconds = [seconds for _, _, seconds, _ in answers if seconds is not None]
        is_right = [label == gold_label for _, label, _, gold_label in answers if gold_label]
        counts[pk] = len(answers), is_right, median(seconds) if seconds else None
    strips = []
    for annotator in round.annotators.select_related("user", "invite"):
        n, is_right, median_seconds = counts.get(annotator.pk, (0, [], None))
        gold = rate(sum(is_right), len(is_right))
        strips.append(
            {
                "pk": annotator.pk,
                "code": annotator.code,
                "who": annotator.who,
                "n": n,
                "n_gold": len(is_right),
                "n_gold_right": sum(is_right),
                "gold": {"value": gold.value, "low": gold.low, "high": gold.high},
                "median_seconds": median_seconds,
            }
        )
    return strips
