"""Sides (LM and setting), and the pairs of sides that are compared: those that differ in one respect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from kgharvest.statistics.arrays import Floats

FEWEST_RELATIONS = 2


class Side(NamedTuple):
    """An LM and setting; None for imported judgments that name none."""

    model: str | None
    setting: str | None


class CellKey(NamedTuple):
    """model and setting: as of a `Side`."""

    relation: str
    model: str | None
    setting: str | None

    @property
    def side(self) -> Side:
        return Side(self.model, self.setting)


class Pair(NamedTuple):
    """Two sides that differ in one respect. kind: in which, "settings" or "models". common: what they share."""

    kind: str
    common: str | None
    a: Side
    b: Side

    @property
    def names(self) -> tuple[str, str]:
        a, b = (self.a.setting, self.b.setting) if self.kind == "settings" else (self.a.model, self.b.model)
        return str(a), str(b)  # named: pairs_of_sides leaves others out


Planned = frozenset[frozenset[Side]]  # the two sides of each comparison that was preregistered


def is_planned(pair: Pair, planned: Planned | None) -> bool | None:
    """Return whether the comparison of two sides was preregistered; None where nothing was."""
    return None if planned is None else frozenset((pair.a, pair.b)) in planned


def paired_accuracies(accuracies: Mapping[CellKey, float | None]) -> Iterator[tuple[Pair, Floats]]:
    """Yield each pair of sides that share enough relations, with a minus b in each of these."""
    for pair, shared in compared_cells(accuracies):
        yield pair, np.array([a - b for a, b in shared])


def compared_cells(of_cells: Mapping[CellKey, float | None]) -> Iterator[tuple[Pair, list[tuple[float, float]]]]:
    """Yield each pair of sides that share enough relations, with what is known of both in each of these.

    Sorted by relation, so that no other order can move a random draw.
    """
    by_side = relations_of_sides(of_cells)
    for pair in pairs_of_sides(list(by_side)):
        a, b = by_side[pair.a], by_side[pair.b]
        shared = [(a[relation], b[relation]) for relation in sorted(a.keys() & b.keys())]
        if len(shared) >= FEWEST_RELATIONS:
            yield pair, shared


def relations_of_sides(of_cells: Mapping[CellKey, Any]) -> dict[Side, dict[str, Any]]:
    """Return what is known of cells by relation, per side in the order of the cells."""
    by_side: dict[Side, dict[str, Any]] = {}
    for key, value in of_cells.items():
        relations = by_side.setdefault(Side(key.model, key.setting), {})  # whose place no missing verdict moves
        if value is not None:
            relations[key.relation] = value
    return by_side


def pairs_of_sides(sides: list[Side]) -> Iterator[Pair]:
    """Yield the pairs that differ in one respect; a side that names no setting, or no LM, has none to compare."""
    for a, b in combinations(sides, 2):
        if a.model == b.model and a.setting and b.setting:
            yield Pair("settings", a.model, a, b)
    for a, b in combinations(sides, 2):
        if a.setting == b.setting and a.model and b.model:
            yield Pair("models", a.setting, a, b)
