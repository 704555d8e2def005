"""Comparison of two sides by the statements drawn for each, under the report's verdicts or others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from evaluation.evidence.arrays import ACCEPTED, INCOMPLETE, Codes, Evidence, Flags, Side
from evaluation.reports.sections.rates import stratum_counts
from evaluation.statistics.statement_test import (
    SharedStatements,
    SideSample,
    StatementDifference,
    statement_difference,
)

# Takes two sides and verdicts (T,); None where they share no relation with verdicts in all strata of both.
CompareStatements = Callable[[Side, Side, Codes], StatementDifference | None]


class SharedTasks(NamedTuple):
    """Statements that two sides both drew, and the stratum of either that did; all of shape (n,)."""

    task: Codes
    stratum_a: Codes
    stratum_b: Codes


def statement_comparisons(evidence: Evidence) -> CompareStatements:
    strata_of = {key: np.flatnonzero(evidence.cell_of_stratum == number) for number, key in enumerate(evidence.cells)}
    side_of_draw = evidence.side_of_cell[evidence.cell_of_draw]

    @cache
    def shared_tasks(a: Side, b: Side) -> SharedTasks:
        of_a, of_b = (np.flatnonzero(side_of_draw == evidence.sides.index(side)) for side in (a, b))
        task, at_a, at_b = np.intersect1d(evidence.draws.task[of_a], evidence.draws.task[of_b], return_indices=True)
        return SharedTasks(task, evidence.draws.stratum[of_a][at_a], evidence.draws.stratum[of_b][at_b])

    def compare(a: Side, b: Side, verdict: Codes) -> StatementDifference | None:
        counts = stratum_counts(evidence, verdict)
        has_rate = _has_rate(evidence, counts)
        known_a, known_b = (
            {key.relation: strata for key, strata in strata_of.items() if key.side == side and has_rate[strata].all()}
            for side in (a, b)
        )
        cells = [(known_a[relation], known_b[relation]) for relation in sorted(known_a.keys() & known_b.keys())]
        if not cells:
            return None
        of_a, of_b = ([pair[side] for pair in cells] for side in (0, 1))
        shared = _shared(shared_tasks(a, b), verdict, np.concatenate(of_a), np.concatenate(of_b))
        return statement_difference(_sample(evidence, counts, of_a), _sample(evidence, counts, of_b), shared)

    return compare


def _has_rate(evidence: Evidence, counts: Codes) -> Flags:
    """Return (S,) whether a stratum has verdicts, and a population if it is not its cell's only one."""
    is_only = (np.bincount(evidence.cell_of_stratum) == 1)[evidence.cell_of_stratum]
    has_rate: Flags = counts[:, :INCOMPLETE].any(axis=1) & (is_only | (evidence.population_of_stratum > 0))
    return has_rate


def _sample(evidence: Evidence, counts: Codes, cells: Sequence[Codes]) -> SideSample:
    """Return the strata of one side's cells, each cell weighing the same."""
    strata, sizes = np.concatenate(cells), [evidence.population_of_stratum[numbers] for numbers in cells]
    parts = [size / size.sum() if size.all() else np.ones(1) for size in sizes]
    return SideSample(
        counts[strata, ACCEPTED].astype(np.float64),
        counts[strata, :INCOMPLETE].sum(axis=1).astype(np.float64),
        np.concatenate(sizes).astype(np.int64),
        np.concatenate(parts) / len(cells),
        np.repeat(np.arange(len(cells)), [len(numbers) for numbers in cells]),
    )


def _shared(tasks: SharedTasks, verdict: Codes, of_a: Codes, of_b: Codes) -> SharedStatements:
    """Return the shared statements of two sides' strata; of_a, of_b: the numbers of these."""
    positions = []
    for strata, stratum in ((of_a, tasks.stratum_a), (of_b, tasks.stratum_b)):
        position = np.full(max(strata.max(), stratum.max(initial=0)) + 1, -1)
        position[strata] = np.arange(len(strata))
        positions.append(position[stratum])
    row, column = positions
    counts = []
    for is_counted in (verdict != INCOMPLETE, verdict == ACCEPTED):
        is_in = (row >= 0) & (column >= 0) & is_counted[tasks.task]
        matrix = np.zeros((len(of_a), len(of_b)), dtype=np.int64)
        np.add.at(matrix, (row[is_in], column[is_in]), 1)
        counts.append(matrix)
    return SharedStatements(*counts)
