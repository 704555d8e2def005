"""Precision and recall of scores on known facts and negative samples: the paper's Figs 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluation.rendering.figures.canvas import DASHES, Theme, share_axis, style
from kgharvest.pages.number_format import share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 60  # of a curve, in a page
WIDTH, HEIGHT, LINE = 3.4, 3.1, 0.165  # inches: of a column of a paper, and as wide as a phone


def size(scores: Mapping[str, Any]) -> tuple[float, float]:
    return WIDTH, HEIGHT + LINE * len(scores["scorers"])


def plot(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the interactive figure draws; a point has no statements, so it leads to the table of its scorer."""
    chance = scores["n_positive"] / (scores["n_positive"] + scores["n_negative"])
    names = [f"{scorer['scorer']} ({share(scorer['average_precision'], 3)})" for scorer in scores["scorers"]]
    return {
        "kind": "precision_recall",
        "series": [{"name": name, "query": ""} for name in names],
        "chance": {"value": chance, "name": f"random order {share(chance)}"},
        "curves": [
            {"series": number, "points": [_point(scorer["scorer"], point) for point in thinned(scorer["curve"])]}
            for number, scorer in enumerate(scores["scorers"])
        ],
    }


def thinned(curve: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return MOST_POINTS of a curve at most, evenly, with both ends: more are not told apart."""
    if len(curve) <= MOST_POINTS:
        return curve
    step = (len(curve) - 1) / (MOST_POINTS - 1)
    return [curve[round(number * step)] for number in range(MOST_POINTS)]


def _point(scorer: str, point: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "x": point["recall"],
        "value": point["precision"],
        "name": scorer,
        "text": f"recall {share(point['recall'])}, precision {share(point['precision'])}",
        "address": "./#scorers",
    }


def draw(figure: Figure, scores: Mapping[str, Any], theme: Theme) -> None:
    """One line per scorer, over all relations; the share of facts, which a random order reaches, as a dotted line."""
    axes = figure.add_subplot()
    for number, scorer in enumerate(scores["scorers"]):
        curve = scorer["curve"]
        name = f"{scorer['scorer']} ({share(scorer['average_precision'], 3)})"  # good scores differ in the third digit
        line: dict[str, Any] = {
            "color": theme.hues[number % len(theme.hues)],
            "linestyle": DASHES[(number + number // len(theme.hues)) % len(DASHES)],
            "linewidth": 1.9,
        }
        axes.plot([point["recall"] for point in curve], [point["precision"] for point in curve], label=name, **line)
    chance = scores["n_positive"] / (scores["n_positive"] + scores["n_negative"])
    axes.axhline(chance, color=theme.soft, linewidth=1, linestyle=":", label="random order")
    axes.set_xlim(0, 1.01)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("recall")
    axes.set_ylabel("precision")
    style(axes, theme)
    share_axis(axes.xaxis, theme)
    share_axis(axes.yaxis, theme)
    figure.legend(
        loc="outside lower left", title="scores (average precision)", alignment="left", labelcolor=theme.ink,
        fontsize=8.5, title_fontproperties={"size": 8.5}, handlelength=3,
    ).get_title().set_color(theme.ink)  # fmt: skip
