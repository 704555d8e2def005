"""The comparisons of a report, each with what it looks like relation by relation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.arrays import ACCEPTED, INCOMPLETE, CellKey, Codes, Evidence
from evaluation.reports.sections.compare_sides import Side, compare_sides
from evaluation.reports.sections.rates import Cell, macro_of_these
from evaluation.statistics.rates import Rate, difference_interval
from evaluation.statistics.stratified import WeightedRate


def comparison_entries(evidence: Evidence, cells: Sequence[Cell], verdict: Codes) -> list[dict[str, Any]]:
    rates = {cell.key: cell.rate_of(ACCEPTED) for cell in cells}
    numbers = {cell.key: cell.n for cell in cells}
    accuracies = {key: rate.value for key, rate in rates.items()}
    compared = compare_sides(accuracies, shared_statements(evidence, verdict), evidence.seed)
    return [_with_relations(entry, rates, numbers) for entry in compared]


def _with_relations(
    entry: dict[str, Any], rates: Mapping[CellKey, WeightedRate], numbers: Mapping[CellKey, int]
) -> dict[str, Any]:
    sentence = entry.pop("sentence")
    a, b = sides_of(entry)
    shared = [
        relation
        for relation in sorted({key.relation for key in rates})
        if all(_value(rates, CellKey(relation, *side)) is not None for side in (a, b))
    ]
    pairs = [(CellKey(relation, *a), CellKey(relation, *b)) for relation in shared]
    macro_a, macro_b = (macro_of_these([rates[pair[side]] for pair in pairs]) for side in (0, 1))
    these_low, these_high = difference_interval(macro_a, macro_b)
    relations = list(_relations(pairs, rates, numbers))
    return {**entry, "these_low": these_low, "these_high": these_high, "relations": relations, "sentence": sentence}


def sides_of(entry: Mapping[str, Any]) -> tuple[Side, Side]:
    if entry["kind"] == "settings":
        return Side(entry["model"], entry["a"]), Side(entry["model"], entry["b"])
    return Side(entry["a"], entry["setting"]), Side(entry["b"], entry["setting"])


def _value(rates: Mapping[CellKey, WeightedRate], key: CellKey) -> float | None:
    return rates[key].value if key in rates else None


def _relations(
    pairs: Iterable[tuple[CellKey, CellKey]], rates: Mapping[CellKey, WeightedRate], numbers: Mapping[CellKey, int]
) -> Iterable[dict[str, Any]]:
    for a, b in pairs:
        low, high = difference_interval(*(Rate(*rates[key][:3]) for key in (a, b)))
        yield {
            "relation": a.relation,
            "n_a": numbers[a],
            "n_b": numbers[b],
            "difference": rates[a].value - rates[b].value,
            "low": low,
            "high": high,
        }


def shared_statements(evidence: Evidence, verdict: Codes) -> dict[frozenset[Side], int]:
    """Return how many statements with a verdict two sides have both drawn, for each two that have."""
    n_sides = len(evidence.sides)
    side = evidence.side_of_cell[evidence.cell_of_draw]  # (D,)
    drawn = np.unique(evidence.draws.task * n_sides + side)
    drawn = drawn[verdict[drawn // n_sides] != INCOMPLETE]
    task, side = drawn // n_sides, drawn % n_sides
    shared = np.zeros((n_sides, n_sides), dtype=np.int64)
    for distance in range(1, n_sides):
        is_same = task[distance:] == task[:-distance]
        if not is_same.any():
            break
        np.add.at(shared, (side[:-distance][is_same], side[distance:][is_same]), 1)
    return {
        frozenset((Side(*evidence.sides[one]), Side(*evidence.sides[other]))): int(shared[one, other])
        for one, other in zip(*np.nonzero(shared), strict=True)
    }
