"""Table 5 as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from evaluation.rendering.documents import Document, name_of
from evaluation.rendering.figures.canvas import Theme, series_of, short_model
from evaluation.reports.sections.rates import cells_by_relation, interval_of_average
from kgharvest.pages.number_format import counted, share, share_with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELLED = 80  # rows; of more there is only their shade
LONGEST_LEVEL = 11  # letters of a column's name that fit over it


def size(document: Document) -> tuple[float, float]:
    n_rows = len(cells_by_relation(document))
    row = 0.27 if n_rows <= MOST_LABELLED else 0.03
    return 2.2 + 0.85 * len(document["totals"]), 1.0 + row * (n_rows + 1)


def plot(document: Document) -> dict[str, Any]:
    """Return what the interactive figure draws: rows of cells as [accuracy, printed, in words], None without a rate."""
    rows = [
        {"name": relation, "query": urlencode({"relation": relation}), "cells": [_cell(cell) for cell in cells]}
        for relation, cells in cells_by_relation(document)
    ]
    average = {"name": "average", "query": "", "cells": [_average(total) for total in document["totals"]]}
    columns = [[short_model(total["model"]), name_of(total["setting"])] for total in document["totals"]]
    return {"kind": "heat_map", "series": series_of(document), "columns": columns, "rows": [*rows, average]}


def _cell(cell: Mapping[str, Any] | None) -> list[Any] | None:
    if cell is None or cell["accuracy"] is None:
        return None
    counts = [(cell[name], name) for name in ("accepted", "rejected", "undecided", "incomplete")]
    known = ", ".join(f"{n:,} {name}" for n, name in counts if n)
    return _printed(cell["accuracy"], cell["accuracy_low"], cell["accuracy_high"], f"n = {cell['n']:,}: {known}")


def _average(total: Mapping[str, Any]) -> list[Any] | None:
    if total["macro_accuracy"] is None:
        return None
    return _printed(total["macro_accuracy"], *interval_of_average(total), counted(total["n_relations"], "relation"))


def _printed(accuracy: float, low: float | None, high: float | None, basis: str) -> list[Any]:
    return [round(accuracy, 4), share(accuracy), f"{share_with_interval(accuracy, low, high)}, {basis}"]


def draw(figure: Figure, document: Document, theme: Theme) -> None:
    """Accuracy by shade and in figures; relations by name, their average last."""
    from matplotlib.colors import LinearSegmentedColormap

    rows = _rows(document)
    scale = LinearSegmentedColormap.from_list("accuracy", [theme.low, theme.high])
    shares = [[float("nan") if accuracy is None else accuracy for accuracy in row] for _, row in rows]
    is_labelled = len(rows) <= MOST_LABELLED
    axes = figure.add_subplot()
    mesh: dict[str, Any] = {
        "edgecolors": theme.ground,
        "linewidth": 1.5 if is_labelled else 0,
        "rasterized": not is_labelled,
    }
    axes.pcolormesh(shares, cmap=scale, vmin=0, vmax=1, **mesh)
    _label(axes, document, [name for name, _ in rows] if is_labelled else [], len(rows), theme)
    if is_labelled:
        _print_shares(axes, rows, theme)


def _rows(document: Document) -> list[tuple[str, list[float | None]]]:
    rows = [(name, [cell and cell["accuracy"] for cell in cells]) for name, cells in cells_by_relation(document)]
    return [*rows, ("average", [total["macro_accuracy"] for total in document["totals"]])]


def _label(axes: Axes, document: Document, names: list[str], n_rows: int, theme: Theme) -> None:
    columns = [f"{short_model(total['model'])}\n{name_of(total['setting'])}" for total in document["totals"]]
    axes.set_xticks([column + 0.5 for column in range(len(columns))], columns)
    axes.xaxis.tick_top()
    if any(len(line) > LONGEST_LEVEL for column in columns for line in column.split("\n")):
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("left")
    axes.set_yticks([row + 0.5 for row in range(len(names))], names)
    if not names:
        axes.set_ylabel(f"{n_rows - 1} relations and their average", color=theme.ink)
    axes.invert_yaxis()
    axes.tick_params(colors=theme.ink, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.axhline(n_rows - 1, color=theme.ink, linewidth=1)


def _print_shares(axes: Axes, rows: list[tuple[str, list[float | None]]], theme: Theme) -> None:
    for row, (_, shares) in enumerate(rows):
        weight = "bold" if row == len(rows) - 1 else "normal"
        for column, accuracy in enumerate(shares):
            centred: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
            axes.text(column + 0.5, row + 0.5, share(accuracy), color=theme.ink, fontweight=weight, **centred)
