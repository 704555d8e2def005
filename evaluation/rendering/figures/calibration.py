"""Calibration plots: accuracy against score."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from evaluation.rendering.figures.canvas import Theme, share_axis, side_name, style
from evaluation.rendering.tables import Document
from evaluation.reports.sections.curves import calibration_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
PANEL = (2.5, 1.9)  # inches


def size(document: Document) -> tuple[float, float]:
    n = len(calibration_curves(document))
    return PANEL[0] * min(n, COLUMNS) + 0.2, PANEL[1] * ceil(n / COLUMNS) + 0.2


def draw(figure: Figure, document: Document, theme: Theme) -> None:
    """A panel per cell: accuracy and its interval in bins of equally many judged tuples."""
    curves = calibration_curves(document)
    rows, columns = ceil(len(curves) / COLUMNS), min(len(curves), COLUMNS)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, curve in zip(panels, curves, strict=False):
        _draw_panel(axes, curve, theme)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    figure.supxlabel("score (nats, higher is better)", fontsize=9, color=theme.ink)
    figure.supylabel("accuracy", fontsize=9, color=theme.ink)


def _draw_panel(axes: Axes, curve: Mapping[str, Any], theme: Theme) -> None:
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
