"""Accuracy against the size of the KG, and against score, from one sample."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from evaluation.rendering.figures.canvas import DASHES, Theme, legend, share_axis, side_name, style
from evaluation.rendering.tables import Document
from evaluation.reports.sections.curves import calibration_curves, side_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (7.2, 4.2)  # inches
MARKED = {"base:10": "base-10", "base:100": "base-100", "share:0.5": "50 %"}
MOST_BANDS = 4  # more of them hide each other


def draw_size_curves(figure: Figure, document: Document, theme: Theme) -> None:
    """A line with its band per LM and setting; the cuts of the paper as marks, estimated on their own."""
    axes = figure.add_subplot()
    curves = side_curves(document)
    in_tuples = all(_population(document, curve) for curve in curves)
    for number, curve in enumerate(curves):
        scale = (_population(document, curve) if in_tuples else None) or 1
        _draw_curve(axes, curve, scale, len(curves) <= MOST_BANDS, number, theme)
    _mark_cuts(axes, document, in_tuples, theme)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.set_xlabel("tuples kept, best first" if in_tuples else "share of each harvest kept, best first")
    axes.set_ylabel("accuracy")
    style(axes, theme)
    share_axis(axes.yaxis, theme)
    if in_tuples:
        axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")
    legend(axes, theme, loc="lower left", ncols=2)


def _population(document: Document, curve: Mapping[str, Any]) -> int | None:
    side = curve["model"], curve["setting"]
    known = (total.get("population") for total in document["totals"] if (total["model"], total["setting"]) == side)
    return next(known, None)


def _draw_curve(axes: Axes, curve: Mapping[str, Any], scale: float, has_band: bool, number: int, theme: Theme) -> None:
    known = [point for point in curve["sizes"] if point["accuracy"] is not None]
    sizes = [point["share"] * scale for point in known]
    hue, dashes = theme.hues[number], DASHES[number % len(DASHES)]
    if has_band:
        low, high = ([point[end] for point in known] for end in ("low", "high"))
        axes.fill_between(sizes, low, high, color=hue, alpha=0.13, linewidth=0)
    axes.plot(
        sizes,
        [point["accuracy"] for point in known],
        color=hue,
        linewidth=1.9,
        linestyle=dashes,
        label=side_name(curve),
    )


def _mark_cuts(axes: Axes, document: Document, in_tuples: bool, theme: Theme) -> None:
    """Mark the cuts where sizes are known; a legend entry for each in no side's hue."""
    hues = {(curve["model"], curve["setting"]): theme.hues[n] for n, curve in enumerate(side_curves(document))}
    cuts = [cut for cut in document.get("cuts", []) if cut["accuracy"] is not None and in_tuples]
    for marker, (name, title) in zip("D^s", MARKED.items(), strict=True):
        marked = [cut for cut in cuts if cut["cut"] == name and (cut["model"], cut["setting"]) in hues]
        for cut in marked:
            hue = hues[cut["model"], cut["setting"]]
            axes.plot(cut["size"], cut["accuracy"], marker, color=hue, markeredgecolor=theme.ground, markersize=7.5)
        if marked:
            axes.plot([], [], marker, color=theme.soft, label=title)


# -- calibration -------------------------------------------------------------------------------------------------------

COLUMNS = 3
PANEL = (2.5, 1.9)  # inches


def calibration_size(document: Document) -> tuple[float, float]:
    n = len(calibration_curves(document))
    return PANEL[0] * min(n, COLUMNS) + 0.2, PANEL[1] * ceil(n / COLUMNS) + 0.2


def draw_calibration(figure: Figure, document: Document, theme: Theme) -> None:
    """A panel per cell: accuracy and its interval in bins of equally many judged tuples."""
    curves = calibration_curves(document)
    rows, columns = ceil(len(curves) / COLUMNS), min(len(curves), COLUMNS)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, curve in zip(panels, curves, strict=False):
        _draw_calibration_panel(axes, curve, theme)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    figure.supxlabel("score (nats, higher is better)", fontsize=9, color=theme.ink)
    figure.supylabel("accuracy", fontsize=9, color=theme.ink)


def _draw_calibration_panel(axes: Axes, curve: Mapping[str, Any], theme: Theme) -> None:
    for point in curve["scores"]:
        middle = (point["score_low"] + point["score_high"]) / 2
        axes.plot([middle, middle], [point["low"], point["high"]], color=theme.hues[0], linewidth=1.4)
        axes.plot([point["score_low"], point["score_high"]], [point["accuracy"]] * 2, color=theme.hues[0], linewidth=1)
        axes.plot(middle, point["accuracy"], "o", color=theme.hues[0], markersize=4.5)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1])
    axes.locator_params(axis="x", nbins=4)
    axes.set_title(f"{curve['relation']}\n{side_name(curve)}", fontsize=8, loc="left", color=theme.ink)
    if cut := curve.get("precision_cut"):
        axes.axvline(cut["score"], color=theme.hues[1], linewidth=1.2, linestyle="--")
    style(axes, theme)
    share_axis(axes.yaxis, theme)
