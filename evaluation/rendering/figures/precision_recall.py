"""Precision and recall of scores on known facts and negative samples: the paper's Figs 4 and 5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluation.rendering.figures.drawing import (
    DASHES,
    LINE,
    N_HUES,
    Drawing,
    Off,
    Shape,
    Sheet,
    circle,
    grid,
    hue,
    legend,
    line,
    mark,
    paper_width,
    sample_line,
    target,
    text,
)
from kgharvest.pages.number_format import share, share_tick

MOST_POINTS = 60  # of a curve that are marks on a page


def names_of(scores: Mapping[str, Any]) -> list[str]:
    """Return the scorers with their average precision, of which good ones differ in the third digit."""
    return [f"{scorer['scorer']} ({share(scorer['average_precision'], 3)})" for scorer in scores["scorers"]]


def thinned(curve: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return at most MOST_POINTS of a curve, evenly spaced, with both ends."""
    if len(curve) <= MOST_POINTS:
        return curve
    step = (len(curve) - 1) / (MOST_POINTS - 1)
    return [curve[round(number * step)] for number in range(MOST_POINTS)]


def draw(scores: Mapping[str, Any], width: float | None = None, off: Off = ()) -> Drawing:
    """Draw a line per scorer over all relations, and the share of facts, which a random order reaches.

    A point has no statements, so its mark leads to the table of scorers.
    """
    is_file, width = width is None, width or paper_width(3.4)
    numbers = [number for number in range(len(scores["scorers"])) if number not in set(off)]
    [panel], height = grid(1, width, least=width, height=min(420, 0.7 * width), top=LINE + 6)
    chance = scores["n_positive"] / (scores["n_positive"] + scores["n_negative"])
    entries = [(names_of(scores)[number], sample_line(hue(number), _dash(number))) for number in numbers]
    key, key_height = legend(entries if is_file else [], width, height + LINE)

    def shapes() -> Iterator[Shape]:
        yield text(0, LINE - 4, "precision", fill="soft")
        yield from panel.x_axis(share_tick, "recall")
        yield panel.y_axis()
        y = panel.y(chance)
        yield line([(panel.left, y), (panel.right, y)], "soft", 1.2, "2 3")
        yield text(panel.left + 6, y + LINE - 2, f"random order {share(chance)}", fill="soft")
        for row, number in enumerate(numbers):
            scorer = scores["scorers"][number]
            places = [(panel.x(point["recall"]), panel.y(point["precision"])) for point in scorer["curve"]]
            yield line(places, hue(number), 2, _dash(number))
            for column, point in enumerate(() if is_file else thinned(scorer["curve"])):
                x, y = panel.x(point["recall"]), panel.y(point["precision"])
                words = f"recall {share(point['recall'])}, precision {share(point['precision'])}"
                dot = target(x - 8, y - 8, 16, 16), circle(x, y, 2, hue(number))
                yield mark((row, column), scorer["scorer"], words, "#scorers", *dot)
        if key:
            yield text(0, height + 8, "scores (average precision)", fill="soft")
        yield from key

    return [Sheet(width, height + (LINE + key_height if key else 0), shapes())]


def _dash(number: int) -> str | None:
    return DASHES[(number + number // N_HUES) % len(DASHES)]
