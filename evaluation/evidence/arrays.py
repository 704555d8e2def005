"""What a report rests on: who said what of which statement, and which cells drew it. Arrays; no database.

Letters of shapes: T statements (gold left out), J counted judgments, A annotators, D draws, S strata, C cells, G
judgments of gold. Statements, annotators and strata are numbered from 0 in an order that does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kgharvest.statistics.arrays import INCOMPLETE, LABELS, Codes, Flags, Floats
from kgharvest.statistics.sides import CellKey, Side

BASES = (10, 100)  # k of the cuts base:k in Table 2


class StratumKey(NamedTuple):
    """A part of the cell number `cell`; the rest is None where nobody knows what was drawn from. job: its id.

    judge_label, ranks: as of `annotation.models.Stratum`.
    """

    cell: int
    rank_from: int | None
    rank_to: int | None
    population: int | None
    job: int | None = None
    judge_label: str = ""
    ranks: Sequence[int] | None = None


class Judgments(NamedTuple):
    """In the order of statements, then of annotators. seconds: NaN where nobody measured. All of shape (J,)."""

    task: Codes
    annotator: Codes
    label: Codes
    seconds: Floats


class ExcludedJudgments(NamedTuple):
    """What an excluded annotator had said that counted. Both of shape (E,)."""

    task: Codes
    label: Codes


class Conduct(NamedTuple):
    """What happened in the round.

    entry: the block `conduct` of docs/report-json.md, but for what rests on verdicts. excluded: by annotator's code.
    """

    entry: Mapping[str, Any]
    excluded: Mapping[str, ExcludedJudgments]


class Draws(NamedTuple):
    """rank: 0, and score: NaN, where the statement came without a harvest. All of shape (D,)."""

    task: Codes
    stratum: Codes
    rank: Codes
    score: Floats


class SampledHarvest(NamedTuple):
    """A harvest that strata were drawn from. population: how many of its best tuples were drawn from.

    kept_by_base: by k, how many tuples the cut base:k keeps; without those k that reach beyond the population.
    """

    job: int
    side: Side
    population: int
    kept_by_base: Mapping[int, int]


class Patterns(NamedTuple):
    """How many judgments of each label statements received, of how many they want.

    counts (P, 3), wanted (P,); of_task (T,): which pattern each statement shows; n_tasks (P,): how many show it.
    """

    counts: Codes
    wanted: Codes
    of_task: Codes
    n_tasks: Codes


@dataclass(frozen=True)
class Evidence:
    """verdict: (T,) as stored, by place in VERDICTS. adjudicated: (T,) an expert's, INCOMPLETE where there is none.

    cells: in the order of the report. annotators: codes, sorted.
    has_thirds: a third judgment was asked for only where the first two differed. third: (T,) who gave it, -1 where
    nobody did. wanted: (T,) how many judgments decide, those of excluded annotators included.
    quorum: how many judgments a verdict needs at least. gold: judgments of gold statements, whose numbers
    go on after those of the others; gold_truth: (number of gold statements,) TRUE or FALSE. demonstrators: LMs of the
    round whose quality says nothing about others. planned: the two sides of each comparison that was preregistered;
    None where nothing was.
    """

    round: str
    source: str
    seed: int
    judgments_per_task: int
    quorum: int
    has_thirds: bool
    verdict: Codes
    adjudicated: Codes
    third: Codes
    wanted: Codes
    judgments: Judgments
    cells: Sequence[CellKey]
    strata: Sequence[StratumKey]
    draws: Draws
    annotators: Sequence[str]
    gold: Judgments
    gold_truth: Codes
    demonstrators: Sequence[str]
    harvests: Sequence[SampledHarvest] = ()
    planned: frozenset[frozenset[Side]] | None = None

    @property
    def n_tasks(self) -> int:
        return len(self.verdict)

    @cached_property
    def is_complete(self) -> Flags:
        is_complete: Flags = self.verdict != INCOMPLETE
        return is_complete

    @cached_property
    def first_two(self) -> Evidence:
        """Return the evidence without third judgments: with them, statements in dispute would count for more."""
        if not self.has_thirds:
            return self
        is_first = self.judgments.annotator != self.third[self.judgments.task]
        return replace(self, judgments=Judgments(*(column[is_first] for column in self.judgments)))

    @cached_property
    def n_adjudicated(self) -> int:
        return int(np.count_nonzero(self.is_complete & (self.adjudicated != INCOMPLETE)))

    @cached_property
    def counts(self) -> Codes:
        """Return (T, 3): the judgments of each label."""
        return label_counts(self.judgments, self.n_tasks)

    @cached_property
    def judgments_each(self) -> float:
        """Return how many judgments a statement with a verdict has on average; what was asked for where none has."""
        n_complete = np.count_nonzero(self.is_complete)
        return float(self.counts[self.is_complete].sum() / n_complete) if n_complete else self.judgments_per_task

    @cached_property
    def patterns(self) -> Patterns:
        return patterns_of(self.counts, self.wanted)

    @cached_property
    def cell_of_stratum(self) -> Codes:
        return np.array([stratum.cell for stratum in self.strata], dtype=np.int64)  # (S,)

    @cached_property
    def strata_of_cells(self) -> list[Codes]:
        """Return the numbers of each cell's strata, ascending."""
        order = np.argsort(self.cell_of_stratum, kind="stable")
        edges = np.searchsorted(self.cell_of_stratum[order], np.arange(1, len(self.cells)))
        return np.split(order, edges)[: len(self.cells)]

    @cached_property
    def population_of_stratum(self) -> Floats:
        """Return (S,): how many tuples each stratum was drawn from, 0 where nobody knows."""
        return np.array([stratum.population or 0 for stratum in self.strata], dtype=np.float64)

    @cached_property
    def sides(self) -> list[Side]:
        """Return each LM and setting, in the order in which they first appear."""
        return list(dict.fromkeys(cell.side for cell in self.cells))

    @cached_property
    def side_of_cell(self) -> Codes:
        return np.array([self.sides.index(cell.side) for cell in self.cells], dtype=np.int64)  # (C,)

    @cached_property
    def cell_of_draw(self) -> Codes:
        return self.cell_of_stratum[self.draws.stratum]  # (D,)


def label_counts(judgments: Judgments, n_tasks: int) -> Codes:
    """Return (T, 3)."""
    pair = judgments.task * len(LABELS) + judgments.label
    return np.bincount(pair, minlength=n_tasks * len(LABELS)).reshape(n_tasks, len(LABELS))


def patterns_of(counts: Codes, wanted: Codes) -> Patterns:
    """Return the patterns of statements with `counts` (T, 3) of labels that want `wanted` (T,) judgments."""
    rows = np.column_stack([counts, np.maximum(wanted, counts.sum(axis=1))])
    base = int(rows.max(initial=0)) + 1
    place = np.array([base**3, base**2, base, 1])
    codes, of_task, n_tasks = np.unique(rows @ place, return_inverse=True, return_counts=True)
    distinct = codes[:, None] // place % base
    return Patterns(distinct[:, :3], distinct[:, 3], of_task.reshape(-1), n_tasks)


def changed_patterns(patterns: Patterns, tasks: Codes, counts: Codes, wanted: Codes) -> tuple[Patterns, Codes]:
    """Return what `patterns_of` would once `tasks`, different ones, have `counts` (n, 3) and want `wanted` (n,).

    Its of_task is of these tasks only. With it (P,): the new number of each pattern before, -1 where none is left.
    """
    new = patterns_of(counts, wanted)
    rows = np.concatenate([np.column_stack(patterns[:2]), np.column_stack(new[:2])])
    distinct, number = np.unique(rows, axis=0, return_inverse=True)
    before, after = np.split(number.reshape(-1), [len(patterns.counts)])
    n_tasks = np.zeros(len(distinct), dtype=np.int64)
    n_tasks[before] = patterns.n_tasks
    n_tasks -= np.bincount(before[patterns.of_task[tasks]], minlength=len(distinct))
    n_tasks[after] += new.n_tasks
    is_left = n_tasks > 0
    renumbered = np.where(is_left, np.cumsum(is_left) - 1, -1)
    left = Patterns(distinct[is_left, :3], distinct[is_left, 3], renumbered[after][new.of_task], n_tasks[is_left])
    return left, renumbered[before]
