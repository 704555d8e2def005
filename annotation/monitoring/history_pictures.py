"""Pictures of how a round went: coordinates for SVG. Each repeats a table beside it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from annotation.models import Round, RoundEvent
from annotation.monitoring.cell_tables import interval_picture
from kgharvest.pages.number_format import count, share

WIDTH, HEIGHT = 720, 96
FEWEST_UNITS = 5  # statements of which the picture shows the agreement
# What may change how people judge. Instructions are none of it: they are frozen when the round opens.
MARKED = ("paused", "reopened", "imported", "limits_set", "limit_crossed", "excluded", "reinstated")
MOST_MARKS = 20
FORMATS = {"hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d", "week": "%Y-%m-%d"}


@dataclass(frozen=True)
class HistoryPicture:
    """bars, points, marks: dicts with coordinates in WIDTH x HEIGHT and what they say; line: through the points."""

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
    """Return the picture of what count_history has counted; None where nobody judged."""
    periods = [period | {"begin": datetime.fromisoformat(period["begin"])} for period in history["periods"]]
    if not periods:
        return None
    begins = [period["begin"] for period in periods]
    step, most = WIDTH / len(periods), max(period["n"] for period in periods)
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
            for event in _marked_events(round, begins[0])
        ],
        most=most,
    )


def _marked_events(round: Round, since: datetime) -> list[RoundEvent]:
    events = round.events.filter(kind__in=MARKED, at__gte=since).select_related("by", "annotator")
    return list(events[:MOST_MARKS])[::-1]


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


# -- annotators --------------------------------------------------------------------------------------------------------


def strips(rows: Sequence[Mapping[str, Any]], n_most: int) -> list[dict[str, Any]]:
    """Return the annotators who judged most, with pictures of how many they judged, how much gold right, how fast.

    rows: of annotator_statistics. Bars are parts of the largest among all rows.
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
