"""Forest plots: macro averages of LMs and settings, and their differences, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluation.rendering.documents import Document, tuples_query
from evaluation.rendering.figures.canvas import Theme, series_of, share_axis, short_model, side_name, style
from evaluation.reports.sections.comparisons import common_of, sides_of
from evaluation.reports.sections.rates import interval_of_average
from kgharvest.pages.number_format import counted, p_value, points_tick, points_with_interval, share_with_interval
from kgharvest.statistics.rates import SIGNIFICANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


AVERAGES_AXIS = "accuracy, mean over relations, 95 % interval"
DIFFERENCES_AXIS = "difference in percentage points, 95 % interval; filled: p after Holm below .05"


class Estimate(NamedTuple):
    """A row of a forest plot. is_firm: told apart from nothing, by a test.

    For interactive ones, basis: what it rests on, in words. series: numbers of the LMs and settings that it is about.
    address: of what is behind it, from the figure's own.
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
            address=f"../tuples/?{tuples_query(total)}",
        )
        for number, total in enumerate(document["totals"])
        if total["macro_accuracy"] is not None
    ]


def differences(document: Document) -> list[Estimate]:
    numbers = {(total["model"], total["setting"]): number for number, total in enumerate(document["totals"])}
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
            f"../comparisons/{position}/",
        )
        for position, comparison in enumerate(document["comparisons"], start=1)
    ]


def plot_averages(document: Document) -> dict[str, Any]:
    """Return what the interactive figure draws; `unit` says how its axis is printed."""
    return _plot(document, averages(document), unit="share", axis=AVERAGES_AXIS)


def plot_differences(document: Document) -> dict[str, Any]:
    return _plot(document, differences(document), unit="points", axis=DIFFERENCES_AXIS)


def _plot(document: Document, estimates: Sequence[Estimate], **axis: str) -> dict[str, Any]:
    rows = [estimate._asdict() for estimate in estimates]
    return {"kind": "forest", "series": series_of(document), "rows": rows, **axis}


def averages_size(document: Document) -> tuple[float, float]:
    return size_of(averages(document))


def differences_size(document: Document) -> tuple[float, float]:
    return size_of(differences(document))


def size_of(estimates: Sequence[Estimate]) -> tuple[float, float]:
    return 7.2, 0.9 + 0.3 * len(estimates)


def draw_averages(figure: Figure, document: Document, theme: Theme) -> None:
    axes = draw_estimates(figure, averages(document), theme)
    axes.set_xlim(0, 1)
    axes.set_xlabel(AVERAGES_AXIS)


def draw_differences(figure: Figure, document: Document, theme: Theme) -> None:
    draw_paired(figure, differences(document), theme)


def draw_paired(figure: Figure, estimates: Sequence[Estimate], theme: Theme) -> None:
    axes = draw_estimates(figure, estimates, theme)
    axes.axvline(0, color=theme.ink, linewidth=0.9)
    axes.xaxis.set_major_formatter(lambda difference, _: points_tick(difference))
    axes.set_xlabel(DIFFERENCES_AXIS)


def draw_estimates(figure: Figure, estimates: Sequence[Estimate], theme: Theme) -> Axes:
    """Return the axes, one row per estimate, the first one on top, with its text beside it."""
    axes, hue = figure.add_subplot(), theme.hues[0]
    for row, estimate in enumerate(estimates):
        if estimate.low is not None and estimate.high is not None:
            axes.plot([estimate.low, estimate.high], [row, row], color=hue, linewidth=1.8, solid_capstyle="butt")
        fill = hue if estimate.is_firm else theme.ground
        axes.plot(estimate.value, row, "o", markersize=6.5, color=hue, markerfacecolor=fill, clip_on=False)
        beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.5}
        axes.text(1.02, row, estimate.text, color=theme.ink, **beside)
    axes.set_yticks(range(len(estimates)), [estimate.name for estimate in estimates])
    axes.set_ylim(len(estimates) - 0.4, -0.6)
    style(axes, theme)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    share_axis(axes.xaxis, theme)
    return axes
