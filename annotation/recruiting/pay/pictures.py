"""The picture of hourly pay: a dot for each person, with the floor and the median as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from annotation.models import Panel
from annotation.recruiting.panels.money import money
from annotation.recruiting.pay.hourly import HourlyPay

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
