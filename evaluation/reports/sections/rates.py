"""Rates per cell, per LM and setting, and how they change along the harvest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.evidence.arrays import (
    ACCEPTED,
    INCOMPLETE,
    REJECTED,
    UNDECIDED,
    VERDICTS,
    CellKey,
    Codes,
    Evidence,
    Floats,
)
from evaluation.statistics.rates import Rate, macro_average, macro_interval, mean_of_these, wilson_interval
from evaluation.statistics.stratified import (
    EMPTY_STRATUM,
    NOTHING_COUNTED,
    UNKNOWN_POPULATION,
    WeightedRate,
    stratified_rate,
)


@dataclass(frozen=True)
class Cell:
    """One cell with what its strata show: counts (s, 4) in the order of VERDICTS, population (s,), 0 if not known."""

    key: CellKey
    counts: Codes
    population: Codes
    ranks: Sequence[tuple[int | None, int | None]]

    @property
    def n(self) -> int:
        return int(self.counts[:, :INCOMPLETE].sum())

    @property
    def is_stratified(self) -> bool:
        return len(self.counts) > 1

    def rate_of(self, verdict: int) -> WeightedRate:
        """Return the share of one verdict: Wilson for a simple sample, design-weighted for several strata."""
        if self.is_stratified:
            return stratified_rate(self.counts[:, verdict], self.counts[:, :INCOMPLETE].sum(axis=1), self.population)
        if not self.n:
            return WeightedRate(None, None, None, None, NOTHING_COUNTED)
        n_hits = int(self.counts[0, verdict])
        return WeightedRate(n_hits / self.n, *wilson_interval(n_hits, self.n), float(self.n), None)


def cells_of(evidence: Evidence, verdict: Codes) -> list[Cell]:
    counts = stratum_counts(evidence, verdict)
    strata_of: list[list[int]] = [[] for _ in evidence.cells]
    for number, stratum in enumerate(evidence.strata):
        strata_of[stratum.cell].append(number)
    return [
        Cell(
            key=key,
            counts=counts[numbers],
            population=np.array([evidence.strata[number].population or 0 for number in numbers]),
            ranks=[evidence.strata[number][1:3] for number in numbers],
        )
        for key, numbers in zip(evidence.cells, strata_of, strict=True)
    ]


def stratum_counts(evidence: Evidence, verdict: Codes) -> Codes:
    """Return (S, 4): how many draws of each stratum have each verdict."""
    pair = evidence.draws.stratum * len(VERDICTS) + verdict[evidence.draws.task]
    n_strata = len(evidence.strata)
    return np.bincount(pair, minlength=n_strata * len(VERDICTS)).reshape(n_strata, len(VERDICTS))


def accuracies_of(evidence: Evidence, counts: Codes) -> Floats:
    """Return (C,) the accuracies alone, NaN where there is none, from the strata's counts (S, 4)."""
    n = counts[:, :INCOMPLETE].sum(axis=1)  # (S,)
    population = np.maximum(evidence.population_of_stratum, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.bincount(evidence.cell_of_stratum, population * (counts[:, ACCEPTED] / n), len(evidence.cells))
    return hits / np.bincount(evidence.cell_of_stratum, population, len(evidence.cells))


def draw_weights(evidence: Evidence, is_judged: np.ndarray) -> Floats:
    """Return for how many tuples of its stratum each judged draw stands; shapes (D,)."""
    n_judged = np.bincount(evidence.draws.stratum[is_judged], minlength=len(evidence.strata))
    return (evidence.population_of_stratum / np.maximum(n_judged, 1))[evidence.draws.stratum]


# -- entries of the document -------------------------------------------------------------------------------------------


def cell_entry(cell: Cell) -> dict[str, Any]:
    accuracy = cell.rate_of(ACCEPTED)
    population = int(cell.population.sum())
    return {
        **cell.key._asdict(),
        **_counts(cell.counts),
        **_shares(accuracy, cell.rate_of(REJECTED), cell.rate_of(UNDECIDED)),
        "weighting": "stratified" if cell.is_stratified else "simple",
        "population": population or None,
        "n_effective": accuracy.n_effective,
        "reason": accuracy.reason,
        "strata": list(_strata(cell)),
    }


def _counts(counts: Codes) -> dict[str, int]:
    numbers = dict(zip(VERDICTS, counts.sum(axis=0).tolist(), strict=True))
    return {"n": sum(numbers.values()) - numbers["incomplete"], **numbers}


def _shares(accuracy: WeightedRate, rejection: WeightedRate, undecided: WeightedRate) -> dict[str, float | None]:
    return {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "rejection": rejection.value,
        "rejection_low": rejection.low,
        "rejection_high": rejection.high,
        "undecided_share": undecided.value,
    }


def _strata(cell: Cell) -> Iterable[dict[str, Any]]:
    for (rank_from, rank_to), population, counts in zip(cell.ranks, cell.population, cell.counts, strict=True):
        known = int(population) or None
        yield {"rank_from": rank_from, "rank_to": rank_to, "population": known, **_counts(counts[np.newaxis])}


def total_entry(model: str | None, setting: str | None, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return one LM and setting over its relations; the three averages answer three questions (docs/report-json.md)."""
    counts = np.sum([cell.counts.sum(axis=0) for cell in cells], axis=0, keepdims=True)
    pooled = Cell(CellKey("", model, setting), counts, np.zeros(1), [])
    rates = [pooled.rate_of(verdict) for verdict in (ACCEPTED, REJECTED, UNDECIDED)]
    if len(cells) > 1:  # unequally sampled
        rates = [rate._replace(low=None, high=None) for rate in rates]
    weighted = weighted_accuracy(cells)
    return {
        "model": model,
        "setting": setting,
        **_counts(pooled.counts),
        **_shares(*rates),
        **_macro_averages(cells),
        "weighted_accuracy": weighted.value,
        "weighted_accuracy_low": weighted.low,
        "weighted_accuracy_high": weighted.high,
        "population": _population(cells),
        "reason": weighted.reason,
    }


def weighted_accuracy(cells: Sequence[Cell]) -> WeightedRate:
    """Return the accuracy of all that the cells were drawn from together."""
    if _population(cells) is None:
        return WeightedRate(None, None, None, None, UNKNOWN_POPULATION)
    counts = np.concatenate([cell.counts for cell in cells])
    n = counts[:, :INCOMPLETE].sum(axis=1)
    rate = stratified_rate(counts[:, ACCEPTED], n, np.concatenate([cell.population for cell in cells]))
    return rate._replace(reason="A relation has no verdict yet.") if rate.reason == EMPTY_STRATUM else rate


def _population(cells: Sequence[Cell]) -> int | None:
    populations = np.concatenate([cell.population for cell in cells])
    return int(populations.sum()) if populations.all() else None


def _macro_averages(cells: Sequence[Cell]) -> dict[str, Any]:
    accuracies = [rate for cell in cells if (rate := cell.rate_of(ACCEPTED)).value is not None]
    rejections = [value for cell in cells if (value := cell.rate_of(REJECTED).value) is not None]
    these = macro_of_these(accuracies)
    low, high = macro_interval([rate.value for rate in accuracies])
    rejection_low, rejection_high = macro_interval(rejections)
    return {
        "macro_accuracy": macro_average(rate.value for rate in accuracies),
        "macro_accuracy_low": low,
        "macro_accuracy_high": high,
        "macro_accuracy_these_low": these.low,
        "macro_accuracy_these_high": these.high,
        "macro_rejection": macro_average(rejections),
        "macro_rejection_low": rejection_low,
        "macro_rejection_high": rejection_high,
        "n_relations": len(accuracies),
    }


def macro_of_these(rates: Sequence[WeightedRate]) -> Rate:
    return mean_of_these([rate.value for rate in rates], [rate.n_effective for rate in rates])


def total_entries(evidence: Evidence, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [
        total_entry(*side, [cells[index] for index in np.flatnonzero(evidence.side_of_cell == number)])
        for number, side in enumerate(evidence.sides)
    ]
