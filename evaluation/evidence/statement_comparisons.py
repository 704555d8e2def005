"""Comparison of two sides by the statements drawn for each, under the report's verdicts or others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from evaluation.evidence.arrays import Evidence
from kgharvest.statistics.arrays import Codes
from kgharvest.statistics.cell_rates import VerdictSample
from kgharvest.statistics.sides import Side
from kgharvest.statistics.statement_test import (
    SharedStatements,
    SideSample,
    StatementDifference,
    statement_difference,
)

# Takes two sides and what each draw (D,) says of being accepted; None where they share no relation with verdicts in all
# strata of both.
CompareStatements = Callable[[Side, Side, VerdictSample], StatementDifference | None]


class SharedTasks(NamedTuple):
    """Statements that two sides both drew: the draw of either and its stratum; all of shape (n,)."""

    draw_a: Codes
    draw_b: Codes
    stratum_a: Codes
    stratum_b: Codes


def statement_comparisons(evidence: Evidence) -> CompareStatements:
    strata_of = dict(zip(evidence.cells, evidence.strata_of_cells, strict=True))

    # A stratum needs a known population unless it is its cell's only stratum.
    is_only = (np.bincount(evidence.cell_of_stratum) == 1)[evidence.cell_of_stratum]  # (S,)
    has_share = is_only | (evidence.population_of_stratum > 0)

    @cache
    def tasks_of(a: Side, b: Side) -> SharedTasks:
        return shared_tasks(evidence, a, b)

    def compare(a: Side, b: Side, accepted: VerdictSample) -> StatementDifference | None:
        sample = accepted.summed(evidence.draws.stratum, len(evidence.strata))
        has_rate = (sample.n > 0) & has_share
        known_a, known_b = (
            {key.relation: strata for key, strata in strata_of.items() if key.side == side and has_rate[strata].all()}
            for side in (a, b)
        )
        cells = [(known_a[relation], known_b[relation]) for relation in sorted(known_a.keys() & known_b.keys())]
        if not cells:
            return None
        of_a, of_b = ([pair[side] for pair in cells] for side in (0, 1))
        shared = shared_between(tasks_of(a, b), accepted, np.concatenate(of_a), np.concatenate(of_b))
        return statement_difference(_side_sample(evidence, sample, of_a), _side_sample(evidence, sample, of_b), shared)

    return compare


def shared_tasks(evidence: Evidence, a: Side, b: Side) -> SharedTasks:
    side_of_draw = evidence.side_of_cell[evidence.cell_of_draw]
    of_a, of_b = (np.flatnonzero(side_of_draw == evidence.sides.index(side)) for side in (a, b))
    _, at_a, at_b = np.intersect1d(evidence.draws.task[of_a], evidence.draws.task[of_b], return_indices=True)
    draw_a, draw_b = of_a[at_a], of_b[at_b]
    return SharedTasks(draw_a, draw_b, evidence.draws.stratum[draw_a], evidence.draws.stratum[draw_b])


def _side_sample(evidence: Evidence, sample: VerdictSample, cells: Sequence[Codes]) -> SideSample:
    """Return the strata of one side's cells, each cell weighing the same."""
    strata, sizes = np.concatenate(cells), [evidence.population_of_stratum[numbers] for numbers in cells]
    parts = [size / size.sum() if size.all() else np.ones(1) for size in sizes]
    return SideSample(
        sample.at(strata),
        np.concatenate(sizes).astype(np.int64),
        np.concatenate(parts) / len(cells),
        np.repeat(np.arange(len(cells)), [len(numbers) for numbers in cells]),
    )


def shared_between(tasks: SharedTasks, accepted: VerdictSample, of_a: Codes, of_b: Codes) -> SharedStatements:
    """Return the shared statements of two sides' strata; of_a, of_b: the numbers of these.

    A statement tells as much as it does on the side where it tells less.
    """
    positions = []
    for strata, stratum in ((of_a, tasks.stratum_a), (of_b, tasks.stratum_b)):
        position = np.full(max(strata.max(), stratum.max(initial=0)) + 1, -1)
        position[strata] = np.arange(len(strata))
        positions.append(position[stratum])
    row, column = positions
    is_in = (row >= 0) & (column >= 0)
    sums = []
    for of_draw in (accepted.n, accepted.n_hits):
        matrix = np.zeros((len(of_a), len(of_b)))
        np.add.at(matrix, (row[is_in], column[is_in]), np.minimum(of_draw[tasks.draw_a], of_draw[tasks.draw_b])[is_in])
        sums.append(matrix)
    return SharedStatements(*sums)


def shared_statements(evidence: Evidence) -> dict[frozenset[Side], int]:
    """Return how many statements with a verdict two sides have both drawn, for each two that have."""
    n_sides = len(evidence.sides)
    side = evidence.side_of_cell[evidence.cell_of_draw]  # (D,)
    drawn = np.unique(evidence.draws.task * n_sides + side)
    drawn = drawn[evidence.is_complete[drawn // n_sides]]
    task, side = drawn // n_sides, drawn % n_sides
    shared = np.zeros((n_sides, n_sides), dtype=np.int64)
    for distance in range(1, n_sides):
        is_same = task[distance:] == task[:-distance]
        if not is_same.any():
            break
        np.add.at(shared, (side[:-distance][is_same], side[distance:][is_same]), 1)
    return {
        frozenset((evidence.sides[a], evidence.sides[b])): int(shared[a, b])
        for a, b in zip(*np.nonzero(shared), strict=True)
    }
