"""Forest plots: macro averages of LMs and settings, and their differences, with intervals."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluation.rendering.documents import Document, short_model, side_name, side_numbers, tuples_query
from evaluation.rendering.figures import drawing
from evaluation.rendering.figures.drawing import FOOT, LINE, MIDDLE, RIGHT, Drawing, Off, Panel, Shape, Sheet, hue, text
from evaluation.reports.sections.comparisons import common_of, sides_of
from evaluation.reports.sections.rates import interval_of_average
from kgharvest.pages.number_format import (
    counted,
    p_value,
    points_tick,
    points_with_interval,
    share_tick,
    share_with_interval,
)
from kgharvest.statistics.rates import SIGNIFICANCE

AVERAGES_AXIS = "accuracy, mean over these relations, 95 % interval"
DIFFERENCES_AXIS = "difference in percentage points, 95 % interval; filled: Holm-adjusted p below .05"
NARROW = 520  # pixels; in narrower figures, each name is above its row
GAP = 12


class Estimate(NamedTuple):
    """A row of a forest plot. is_firm: True if the mark is filled. basis: description of the underlying data.

    series: numbers of the compared LMs and settings. address: URL of the estimate's evidence, relative to the report.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    text: str
    is_firm: bool = True
    basis: str = ""
    series: Sequence[int] = ()
    address: str = ""


def averages(document: Document) -> list[Estimate]:
    return [
        Estimate(
            side_name(total),
            total["macro_accuracy"],
            *(interval := interval_of_average(total)),
            share_with_interval(total["macro_accuracy"], *interval),
            basis=f"{counted(total['n_relations'], 'relation')}, {counted(total['n'], 'statement')}",
            series=(number,),
            address=f"tuples/?{tuples_query(total)}",
        )
        for number, total in enumerate(document["totals"])
        if total["macro_accuracy"] is not None
    ]


def differences(document: Document) -> list[Estimate]:
    numbers = side_numbers(document)
    return [
        Estimate(
            f"{short_model(common_of(comparison))}: {short_model(comparison['a'])} − {short_model(comparison['b'])}",
            comparison["difference"],
            comparison["low"],
            comparison["high"],
            points_with_interval(comparison["difference"], comparison["low"], comparison["high"]),
            comparison["p_holm"] < SIGNIFICANCE,
            f"{counted(comparison['n_relations'], 'relation')}, p (Holm) {p_value(comparison['p_holm'])}",
            [numbers[side] for side in sides_of(comparison)],
            f"comparisons/{position}/",
        )
        for position, comparison in enumerate(document["comparisons"], start=1)
    ]


def draw_averages(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    return draw(averages(document), AVERAGES_AXIS, width, off)


def draw_differences(document: Document, width: float | None = None, off: Off = ()) -> Drawing:
    return draw(differences(document), DIFFERENCES_AXIS, width, off, is_difference=True)


def draw(
    estimates: Sequence[Estimate],
    axis: str,
    width: float | None = None,
    off: Off = (),
    *,
    is_difference: bool = False,
    line_below: int = 0,
) -> Drawing:
    """Draw a row per estimate with its text, from top to bottom. line_below: number of rows above a separating line."""
    width = width or drawing.paper_width(7.2)
    shown = [estimate for estimate in estimates if not set(off) & set(estimate.series)]
    is_narrow = width < NARROW
    step = 46 if is_narrow else 30
    left, right = 10.0, width - 16
    if not is_narrow:
        left = min(0.4 * width, GAP + drawing.widest(estimate.name for estimate in estimates))
        right = width - GAP - drawing.widest(estimate.text for estimate in estimates)
    domain = _domain(estimates) if is_difference else (0.0, 1.0)
    panel = Panel(left, 0, right - left, step * len(shown), domain)

    titles = [axis] if drawing.text_width(axis) <= width else axis.split("; ")

    def shapes() -> Iterator[Shape]:
        yield from panel.x_axis(points_tick if is_difference else share_tick)
        start = left if drawing.text_width(axis) <= width - left else 0
        for place, words in enumerate(titles):
            yield text(start, panel.bottom + FOOT - 8 + LINE * place, drawing.clipped(words, width), fill="ink-soft")
        if is_difference:
            yield drawing.line([(panel.x(0), 0), (panel.x(0), panel.bottom)], "ink")
        if line_below:
            yield drawing.line([(0, step * line_below), (width, step * line_below)], "ink-soft")
        for row, estimate in enumerate(shown):
            y = step * (row + (0.7 if is_narrow else 0.5))
            if is_narrow:
                yield text(0, y - 14, drawing.clipped(estimate.name, width))
            else:
                yield text(left - GAP, y + MIDDLE, drawing.clipped(estimate.name, left - GAP), **RIGHT)
                yield text(right + GAP, y + MIDDLE, estimate.text)
            words = ", ".join(filter(None, (estimate.text, estimate.basis)))
            yield drawing.mark((row, 0), estimate.name, words, estimate.address, *_dot(estimate, panel, y))

    return [Sheet(width, panel.height + FOOT + LINE * (len(titles) - 1), shapes())]


def _dot(estimate: Estimate, panel: Panel, y: float) -> Iterator[Shape]:
    color = hue(estimate.series[0] if len(estimate.series) == 1 else 0)
    yield drawing.target(panel.left, y - LINE + 3, panel.width, 2 * LINE - 6)
    if estimate.low is not None and estimate.high is not None:
        yield drawing.line([(panel.x(estimate.low), y), (panel.x(estimate.high), y)], color, 2)
    yield drawing.circle(panel.x(estimate.value), y, 5, color, None if estimate.is_firm else "paper")


def _domain(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Return the range of all values, their intervals, and 0, with a margin."""
    ends = [end for row in estimates for end in (row.value, row.low, row.high) if end is not None]
    low, high = min(0, *ends), max(0, *ends)
    margin = 0.04 * (high - low or 0.1)
    return low - margin, high + margin
