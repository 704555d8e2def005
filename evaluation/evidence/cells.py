"""Cells of a round: the verdicts of the statements drawn for them, their rates, and comparisons by shared statements.

Letters of shapes: as in evaluation.evidence.evidence; s strata of one cell, P patterns of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evaluation.evidence.evidence import Evidence, Patterns
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, VERDICTS, Codes, Floats
from kgharvest.statistics.cut_rates import Members, RankedStrata
from kgharvest.statistics.paired_tests import CellKey, Side
from kgharvest.statistics.rates import Rate, VerdictSample, sample_rate
from kgharvest.statistics.statement_test import (
    SharedStatements,
    SideSample,
    StatementDifference,
    statement_difference,
)
from kgharvest.statistics.verdicts import CompletedVerdicts, VerdictRule, majority


class DrawnVerdicts(CompletedVerdicts):
    """The verdicts of statements drawn for strata, complete or not; the groups are the strata (S,).

    draws: stratum (D,) and task (D,). patterns: of the statements' labels.
    """

    def __init__(
        self, n_strata: int, draws: tuple[Codes, Codes], patterns: Patterns, quorum: int, rule: VerdictRule = majority
    ) -> None:
        self._stratum, task = draws
        self._pattern, n_patterns = patterns.of_task[task], len(patterns.counts)
        place = self._stratum * n_patterns + self._pattern
        n_tasks = np.bincount(place, minlength=n_strata * n_patterns).reshape(n_strata, n_patterns)
        self.n_drawn = n_tasks.sum(axis=1)  # (S,)
        super().__init__(patterns.counts, patterns.wanted, n_tasks, quorum, rule)

    def extremes(self, verdict: int) -> tuple[Floats, Floats]:
        """Return (S,) how many draws get a verdict at least, and at most; one without a label may get any."""
        least, most = super().extremes(verdict)
        return least, most + self.n_drawn - self.n_tasks.sum(axis=1)

    @cached_property
    def accepted(self) -> VerdictSample:
        """What each draw (D,) says of being accepted; the sums over a stratum are those of the stratum."""
        return self.of_statements(self._stratum, self._pattern, ACCEPTED)


def drawn_verdicts(evidence: Evidence, patterns: Patterns | None = None, rule: VerdictRule = majority) -> DrawnVerdicts:
    """patterns: of the labels to go by, those of the evidence if None."""
    draws = evidence.draws.stratum, evidence.draws.task
    return DrawnVerdicts(len(evidence.strata), draws, patterns or evidence.patterns, evidence.quorum, rule)


@dataclass(frozen=True)
class Cell:
    """One cell with what its strata show.

    counts (s, 4): statements drawn, by verdict in the order of VERDICTS. samples: what they say of accepted, rejected,
    undecided. accepted_at_least, accepted_at_most (s,): statements, whatever those that are incomplete become.
    population (s,): 0 if not known. judge_labels (s,): of strata that a judge labelled alike, else empty.
    """

    key: CellKey
    counts: Codes
    samples: Sequence[VerdictSample]
    accepted_at_least: Floats
    accepted_at_most: Floats
    population: Codes
    ranks: Sequence[tuple[int | None, int | None]]
    judge_labels: Sequence[str]

    @property
    def n(self) -> int:
        """Return how many statements have a verdict."""
        return int(self.counts[:, :INCOMPLETE].sum())

    @property
    def is_stratified(self) -> bool:
        return len(self.counts) > 1

    def rate_of(self, verdict: int) -> Rate:
        """Return the share of one verdict among the tuples that the cell was drawn from."""
        return joint_rate([self], verdict)

    @property
    def part_of_strata(self) -> Floats:
        """Return (s,) the strata's shares of the population; all that is known of one alone is that it is all."""
        return self.population / self.population.sum() if self.population.all() else np.ones(1)


def joint_rate(cells: Sequence[Cell], verdict: int, *, weights: ArrayLike | None = None) -> Rate:
    """Return the share of a verdict among all that cells were drawn from. weights: of the strata, in their order."""
    samples = (cell.samples[verdict] for cell in cells)
    sample = VerdictSample(*map(np.concatenate, zip(*samples, strict=True)))
    population = np.concatenate([cell.population for cell in cells])
    return sample_rate(sample, population, weights)


def cells_of(evidence: Evidence, drawn: DrawnVerdicts) -> list[Cell]:
    place = evidence.draws.stratum * len(VERDICTS) + evidence.verdict[evidence.draws.task]
    counts = np.bincount(place, minlength=len(evidence.strata) * len(VERDICTS)).reshape(-1, len(VERDICTS))
    samples = [drawn.of_groups(verdict) for verdict in range(INCOMPLETE)]
    at_least, at_most = drawn.extremes(ACCEPTED)
    return [
        Cell(
            key=key,
            counts=counts[numbers],
            samples=[sample.at(numbers) for sample in samples],
            accepted_at_least=at_least[numbers],
            accepted_at_most=at_most[numbers],
            population=np.array([evidence.strata[number].population or 0 for number in numbers]),
            ranks=[evidence.strata[number][1:3] for number in numbers],
            judge_labels=[evidence.strata[number].judge_label for number in numbers],
        )
        for key, numbers in zip(evidence.cells, evidence.strata_of_cells, strict=True)
    ]


def accuracies_of(evidence: Evidence, shares: Floats) -> Floats:
    """Return (C,) the accuracies of cells alone, NaN where there is none. shares: (S,) of accepted in their strata."""
    population = np.maximum(evidence.population_of_stratum, 1)
    hits = np.bincount(evidence.cell_of_stratum, population * shares, len(evidence.cells))
    return hits / np.bincount(evidence.cell_of_stratum, population, len(evidence.cells))


def ranked_strata(evidence: Evidence, drawn: DrawnVerdicts) -> RankedStrata:
    """Return the strata with the draws that have a rank. Ranks are 0 in a stratum of a population nobody knows."""
    strata, draws = evidence.strata, evidence.draws
    has_rank = (draws.rank > 0) & (evidence.population_of_stratum[draws.stratum] > 0)
    accepted = drawn.accepted.at(has_rank)
    return RankedStrata(
        np.array([stratum.rank_from or 0 for stratum in strata], dtype=np.int64),
        np.array([stratum.rank_to or 0 for stratum in strata], dtype=np.int64),
        evidence.population_of_stratum.astype(np.int64),
        (draws.stratum[has_rank], draws.rank[has_rank], accepted, evidence.is_complete[draws.task[has_rank]]),
        members_of([stratum.ranks for stratum in strata]),
    )


def members_of(ranks: Sequence[Sequence[int] | None]) -> Members | None:
    """Return the tuples of strata (S,) that know their ranks; None if none does."""
    if not any(ranks):
        return None
    sizes = [len(of_stratum or ()) for of_stratum in ranks]
    flat = np.array([rank for of_stratum in ranks for rank in of_stratum or ()], dtype=np.int64)
    return Members(np.repeat(np.arange(len(ranks)), sizes), flat)


# Comparisons of two sides by the statements drawn for each, under the verdicts of the report or others


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
