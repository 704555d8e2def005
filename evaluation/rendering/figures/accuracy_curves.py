"""Accuracy against the size of the KG, and against score, from one sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from evaluation.rendering.documents import Document, tuples_query
from evaluation.rendering.figures.canvas import DASHES, Theme, legend, series_of, share_axis, side_name, style
from evaluation.reports.sections.curves import calibration_curves, calibration_left_out, side_curves
from kgharvest.pages.number_format import count, number, percent, share_with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (7.2, 4.2)  # inches
MARKED = {"base:10": "base-10", "base:100": "base-100", "share:0.5": "50 %"}
MOST_BANDS = 4  # in one panel; more of them hide each other, and each gets a panel of its own
COLUMNS = 3
PANEL = (2.5, 1.9)  # inches
SCORE_AXIS = "score (nats, higher is better)"

Curves = Sequence[Mapping[str, Any]]


def panels_size(n_panels: int) -> tuple[float, float]:
    return PANEL[0] * min(n_panels, COLUMNS) + 0.2, PANEL[1] * ceil(n_panels / COLUMNS) + 0.2


def panels_of(figure: Figure, n_panels: int, **options: Any) -> list[Axes]:
    rows, columns = ceil(n_panels / COLUMNS), min(n_panels, COLUMNS)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True, **options).ravel()
    for axes in panels[n_panels:]:
        axes.set_visible(False)
    return list(panels[:n_panels])


# -- against size ------------------------------------------------------------------------------------------------------


def sizes_size(document: Document) -> tuple[float, float]:
    n_curves = len(side_curves(document))
    return SIZE if n_curves <= MOST_BANDS else panels_size(n_curves)


def draw_size_curves(figure: Figure, document: Document, theme: Theme) -> None:
    """A line with its band per LM and setting; the cuts of the paper as marks, estimated on their own.

    More than a few lines get a panel each, with the others in grey.
    """
    curves = side_curves(document)
    scales = _scales(document, curves)
    axis = "tuples kept, best first" if scales else "share of each harvest kept, best first"
    if len(curves) <= MOST_BANDS:
        axes = figure.add_subplot()
        for position in range(len(curves)):
            _draw_curve(axes, curves, position, scales, theme)
            _mark_cuts(axes, document, curves, position, theme)
        _style_sizes(axes, bool(scales), theme)
        axes.set_xlabel(axis)
        axes.set_ylabel("accuracy")
        legend(axes, theme, loc="lower left", ncols=2)
        return
    for position, axes in enumerate(panels_of(figure, len(curves), sharex=True)):
        for other in range(len(curves)):
            sizes, accuracies = _line(curves[other], scales[other] if scales else 1)
            axes.plot(sizes, accuracies, color=theme.grid, linewidth=0.9)
        _draw_curve(axes, curves, position, scales, theme)
        _mark_cuts(axes, document, curves, position, theme)
        _style_sizes(axes, bool(scales), theme)
        axes.set_title(side_name(curves[position]), fontsize=8, loc="left", color=theme.ink)
    figure.supxlabel(axis, fontsize=9, color=theme.ink)
    figure.supylabel("accuracy", fontsize=9, color=theme.ink)


def _style_sizes(axes: Axes, in_tuples: bool, theme: Theme) -> None:
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    style(axes, theme)
    share_axis(axes.yaxis, theme)
    if in_tuples:
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")


def _scales(document: Document, curves: Curves) -> list[int]:
    """Return how many tuples the whole of each curve is; nothing unless all are known."""
    populations = {(total["model"], total["setting"]): total.get("population") for total in document["totals"]}
    scales = [populations.get((curve["model"], curve["setting"])) or 0 for curve in curves]
    return scales if all(scales) else []


def _line(curve: Mapping[str, Any], scale: float) -> tuple[list[float], list[float]]:
    known = _known(curve)
    return [point["share"] * scale for point in known], [point["accuracy"] for point in known]


def _known(curve: Mapping[str, Any]) -> Curves:
    return [point for point in curve["sizes"] if point["accuracy"] is not None]


def _draw_curve(axes: Axes, curves: Curves, position: int, scales: Sequence[int], theme: Theme) -> None:
    curve = curves[position]
    sizes, accuracies = _line(curve, scales[position] if scales else 1)
    known = _known(curve)
    hue, dashes = _look(position, theme)
    axes.fill_between(
        sizes, [point["low"] for point in known], [point["high"] for point in known], color=hue, alpha=0.13, linewidth=0
    )
    axes.plot(sizes, accuracies, color=hue, linewidth=1.9, linestyle=dashes, label=side_name(curve))


def _look(position: int, theme: Theme) -> tuple[str, Any]:
    return theme.hues[position % len(theme.hues)], DASHES[position % len(DASHES)]


def _mark_cuts(axes: Axes, document: Document, curves: Curves, position: int, theme: Theme) -> None:
    """Mark the cuts of a curve where sizes are known; a legend entry for each in no side's hue, with the last curve."""
    if not _scales(document, curves):
        return
    hue, _ = _look(position, theme)
    is_last = position == len(curves) - 1
    for marker, (name, title) in zip("D^s", MARKED.items(), strict=True):
        for cut in _cuts_of(document, curves[position], name):
            axes.plot(cut["size"], cut["accuracy"], marker, color=hue, markeredgecolor=theme.ground, markersize=7.5)
        if is_last and any(_cuts_of(document, curve, name) for curve in curves):
            axes.plot([], [], marker, color=theme.soft, label=title)


def _cuts_of(document: Document, curve: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    side = curve["model"], curve["setting"]
    known = (cut for cut in document.get("cuts", []) if cut["accuracy"] is not None and cut["cut"] == name)
    return [cut for cut in known if (cut["model"], cut["setting"]) == side]


def plot_sizes(document: Document) -> dict[str, Any]:
    """Return what the interactive figure draws: a point per size, which leads to the best tuples up to it."""
    curves = side_curves(document)
    scales = _scales(document, curves)
    numbers = _series_numbers(document)
    return {
        "kind": "curves",
        "series": series_of(document),
        "unit": "number" if scales else "share",
        "axis": "tuples kept, best first" if scales else "share of each harvest kept, best first",
        "curves": [
            {
                "series": numbers[curve["model"], curve["setting"]],
                "name": side_name(curve),
                "points": [_size_point(curve, point, scale) for point in _known(curve)],
                "cuts": [
                    _cut_mark(curve, cut, title)
                    for name, title in MARKED.items()
                    if scales
                    for cut in _cuts_of(document, curve, name)
                ],
            }
            for curve, scale in zip(curves, scales or [1] * len(curves), strict=True)
        ],
    }


def _series_numbers(document: Document) -> dict[tuple[Any, Any], int]:
    return {(total["model"], total["setting"]): position for position, total in enumerate(document["totals"])}


def _size_point(curve: Mapping[str, Any], point: Mapping[str, Any], scale: int) -> dict[str, Any]:
    kept = f"best {percent(point['share'])}" + (f", {count(round(point['share'] * scale))} tuples" if scale > 1 else "")
    return {
        "x": point["share"] * scale,
        **_estimate(point),
        "name": f"{side_name(curve)}, {kept}",
        "address": f"../tuples/?{tuples_query(curve, best=round(point['share'], 6))}",
    }


def _cut_mark(curve: Mapping[str, Any], cut: Mapping[str, Any], title: str) -> dict[str, Any]:
    name = f"{side_name(curve)}, cut {title}, {count(cut['size'])} tuples"
    address = f"../tuples/?{tuples_query(curve, cut=cut['cut'])}"
    return {"x": cut["size"], **_estimate(cut), "name": name, "address": address}


def _estimate(point: Mapping[str, Any]) -> dict[str, Any]:
    value, low, high = (point[key] for key in ("accuracy", "low", "high"))
    text = f"{share_with_interval(value, low, high)}, n = {count(point['n'])}"
    return {"value": value, "low": low, "high": high, "text": text}


# -- against score -----------------------------------------------------------------------------------------------------


def calibration_size(document: Document) -> tuple[float, float]:
    return panels_size(len(calibration_curves(document)))


def draw_calibration(figure: Figure, document: Document, theme: Theme) -> None:
    """A panel per cell: accuracy and its interval in bins of equally many judged tuples."""
    curves = calibration_curves(document)
    for axes, curve in zip(panels_of(figure, len(curves)), curves, strict=True):
        _draw_calibration_panel(axes, curve, theme)
    axis = " · ".join(filter(None, [SCORE_AXIS, calibration_left_out(document)]))
    figure.supxlabel(axis, fontsize=9, color=theme.ink)
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


def plot_calibration(document: Document) -> dict[str, Any]:
    """Return what the interactive figure draws: a point per bin of scores, which leads to its tuples."""
    numbers = _series_numbers(document)
    return {
        "kind": "calibration",
        "series": series_of(document),
        "axis": SCORE_AXIS,
        "left_out": calibration_left_out(document),
        "panels": [
            {
                "series": numbers[curve["model"], curve["setting"]],
                "lines": [curve["relation"], side_name(curve)],
                "cut": (curve.get("precision_cut") or {}).get("score"),
                "points": [_score_point(curve, point) for point in curve["scores"]],
            }
            for curve in calibration_curves(document)
        ],
    }


def _score_point(curve: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    ends = point["score_low"], point["score_high"]
    part = dict(zip(("score_from", "score_to"), ends, strict=True))
    return {
        "x": list(ends),
        **_estimate(point),
        "name": f"{curve['relation']}, {side_name(curve)}, scores {number(ends[0])} to {number(ends[1])}",
        "address": f"../tuples/?{tuples_query(curve, **part)}",
    }
