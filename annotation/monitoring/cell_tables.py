"""The cells of a round as tables: relations against LMs and settings, or a list with all counts.

All rows are on the page, so that a script filters and sorts them at once; what the address asks for is done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse
from django.utils.safestring import SafeString

from annotation.monitoring.cells import LATER
from annotation.monitoring.progress import OUTCOMES
from annotation.quality.statement_list import side_key
from kgharvest.pages.number_format import count, interval, share

Cell = Mapping[str, Any]  # as count_cells has them
NOT_NAMED = "not named"
COLUMNS = ("relation", "model", "setting", "accuracy", "drawn", *OUTCOMES)  # of the list
WIDTH, HEIGHT = 64, 10  # of the picture of an interval


@dataclass(frozen=True)
class CellTables:
    """What the page shows: `sides` and `rows` of the pivot, or `rows` of the list. n_shown: rows that fit `q`.

    notice: why there are no accuracies yet, empty where there are.
    """

    view: str
    q: str
    sort: str
    models: Sequence[tuple[str, int]]
    sides: Sequence[Mapping[str, str]]
    rows: Sequence[Mapping[str, Any]]
    n_shown: int
    n_cells: int
    notice: str


def cell_tables(cells: Sequence[Cell], address: QueryDict) -> CellTables:
    """Return the tables that the address asks for: `cells` is "list" or "pivot", `q` words of names, `sort` a column.

    A round of one LM and setting has no pivot unless it is asked for.
    """
    sides = sorted({(cell["model"], cell["setting"]) for cell in cells})
    view = address.get("cells", "")
    view = view if view in ("pivot", "list") else "pivot" if len(sides) > 1 else "list"
    addresses = Addresses()
    if view == "pivot":
        rows, columns = _pivot_rows(cells, sides, addresses), ["relation", *(f"s{n}" for n in range(len(sides)))]
    else:
        rows, columns = [shown(cell, addresses) for cell in cells], COLUMNS
    sort, q = address.get("sort", ""), address.get("q", "").strip()
    sort = sort if sort.removeprefix("-") in columns else "relation"
    rows = _sorted(rows, sort)
    words = q.casefold().split()
    for row in rows:
        row["is_hidden"] = not all(word in row["names"] for word in words)
    return CellTables(
        view=view,
        q=q,
        sort=sort,
        models=[(model or NOT_NAMED, len(list(group))) for model, group in groupby(sides, key=lambda side: side[0])],
        sides=[{"key": f"s{n}", "setting": setting or NOT_NAMED} for n, (_, setting) in enumerate(sides)],
        rows=rows,
        n_shown=sum(not row["is_hidden"] for row in rows),
        n_cells=len(cells),
        notice=LATER if any(cell["reason"] == LATER for cell in cells) else "",
    )


def _pivot_rows(cells: Sequence[Cell], sides: Sequence[tuple[str, str]], addresses: Addresses) -> list[dict[str, Any]]:
    by_relation: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in cells:
        by_relation.setdefault(cell["relation"], {})[cell["model"], cell["setting"]] = cell
    return [
        {
            "relation": relation,
            "names": relation.casefold(),
            "cells": [of_side.get(side) and shown(of_side[side], addresses) for side in sides],
            **{f"s{n}": of_side[side]["accuracy"] for n, side in enumerate(sides) if side in of_side},
        }
        for relation, of_side in by_relation.items()
    ]


def _sorted(rows: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Return the rows by a column, those without a value last whichever way."""
    key = sort.removeprefix("-")
    known = [row for row in rows if row.get(key) is not None]
    return sorted(known, key=lambda row: row[key], reverse=sort.startswith("-")) + [
        row for row in rows if row.get(key) is None
    ]


def shown(cell: Cell, addresses: Addresses | None = None) -> dict[str, Any]:
    """Return a cell with what its row or its place in the pivot prints."""
    addresses = addresses or Addresses()
    limits = interval(cell["low"], cell["high"])
    counts = ", ".join(f"{count(cell[outcome])} {outcome}" for outcome in OUTCOMES)
    return {
        **cell,
        "model": cell["model"] or NOT_NAMED,
        "setting": cell["setting"] or NOT_NAMED,
        "names": f"{cell['relation']} {cell['model']} {cell['setting']}".casefold(),
        "share": share(cell["accuracy"]),
        "interval": limits,
        "picture": interval_picture(cell["accuracy"], cell["low"], cell["high"]),
        "judged": f"{count(cell['drawn'] - cell['incomplete'])}/{count(cell['drawn'])}",
        "statements": addresses.statements(cell),
        "harvest": addresses.harvest(cell),
        "title": "; ".join(part for part in (limits and f"95 % interval {limits}", counts, cell["reason"]) if part),
    }


class Addresses:
    """Where cells lead, from the page of their round. There may be thousands: what they share is made once."""

    def __init__(self) -> None:
        # From the right: the installation may lie below a path with a 0.
        self._harvest, self._end = reverse("kgharvest:harvest_detail", args=[0]).rsplit("0", 1)
        self._sides: dict[tuple[int | None, str], str] = {}

    def harvest(self, cell: Cell) -> str:
        return f"{self._harvest}{cell['job']}{self._end}" if cell["job"] else ""

    def statements(self, cell: Cell) -> str:
        side = cell["model_id"], cell["setting"]
        if side not in self._sides:
            self._sides[side] = urlencode({"show": "all", "side": side_key(*side)})
        return f"statements/?{self._sides[side]}&relation={cell['relation_id']}"


def interval_picture(value: float | None, low: float | None, high: float | None) -> SafeString:
    """Return an SVG of a share in [0, 1] with its interval; nothing without one. It repeats what stands beside it."""
    if value is None or low is None or high is None:
        return SafeString("")
    x_value, x_low, x_high = (f"{3 + number * (WIDTH - 6):.1f}" for number in (value, low, high))
    return SafeString(  # of numbers alone
        f'<svg class="interval-picture" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path d="M{x_low} 5H{x_high}"/><circle cx="{x_value}" cy="5" r="2.5"/></svg>'
    )
