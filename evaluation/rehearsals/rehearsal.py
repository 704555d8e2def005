"""Rehearsal of a round: many made-up rounds of one draft, and what reports on them would say. Nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evaluation.evidence.arrays import Evidence
from evaluation.evidence.cells import cells_of, drawn_verdicts
from evaluation.evidence.statement_comparisons import statement_comparisons
from evaluation.rehearsals.crowd import Assumptions, Truth, draw_truth, judged
from evaluation.rendering.documents import name_of
from evaluation.reports.sections.comparisons import compare_rules
from evaluation.reports.sections.rates import macro_of_these
from kgharvest.names import short_name
from kgharvest.statistics.agreement import alpha_of_counts, pairable
from kgharvest.statistics.arrays import ACCEPTED, REJECTED, UNDECIDED, Floats
from kgharvest.statistics.cell_rates import VerdictSample
from kgharvest.statistics.rates import SIGNIFICANCE, Rate, macro_interval
from kgharvest.statistics.sides import Pair
from kgharvest.statistics.statement_test import StatementDifference

MOST_RUNS, FEWEST_RUNS = 100, 10
CELLS_AT_ONCE, STATEMENTS_AT_ONCE = 2000, 100_000  # of all runs together, so that an answer takes a second or two
MIDDLE = (5, 50, 95)  # percentiles


class Spread(NamedTuple):
    """A number over the rehearsals: its median, and between what nine in ten of them lie."""

    low: float
    median: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class SideOutcome:
    """An LM and setting, as the mean over its relations. true: of all their tuples; measured: by the crowd's verdicts.

    error: measured less true. half_width: of the 95 % interval for these relations; for_others: of that for relations
    like these, None where there was none: of a single relation, or if all were alike.
    """

    model: str | None
    setting: str | None
    n_relations: int
    true: Spread
    measured: Spread
    error: Spread
    half_width: Spread
    for_others: Spread | None

    @property
    def name(self) -> str:
        return side_name(self.model, self.setting)


@dataclass(frozen=True)
class CellOutcome:
    relation: str
    model: str | None
    setting: str | None
    half_width: Spread

    @property
    def side(self) -> str:
        return side_name(self.model, self.setting)


@dataclass(frozen=True)
class ComparisonOutcome:
    """expected: a minus b of the accuracies assumed. found: the share of rehearsals in which p after Holm is below .05.

    wrong_sign: the share in which the side that is less accurate beats the other.
    """

    common: str | None
    a: str
    b: str
    expected: float
    found: float
    wrong_sign: float

    @property
    def name(self) -> str:
        return f"{short_name(name_of(self.common))}: {short_name(self.a)} − {short_name(self.b)}"


@dataclass(frozen=True)
class Rehearsal:
    """wrong_verdicts: the share of statements with a verdict that is not the truth; undecided: of those with none.

    alpha: None if it was defined in no rehearsal.
    """

    n_runs: int
    sides: list[SideOutcome]
    cells: list[CellOutcome]
    comparisons: list[ComparisonOutcome]
    alpha: Spread | None
    undecided: Spread
    wrong_verdicts: Spread
    n_judgments: Spread


def side_name(model: str | None, setting: str | None) -> str:
    return f"{short_name(name_of(model))} · {name_of(setting)}"


def n_runs_of(evidence: Evidence) -> int:
    n_runs = min(CELLS_AT_ONCE // max(len(evidence.cells), 1), STATEMENTS_AT_ONCE // max(evidence.n_tasks, 1))
    return int(np.clip(n_runs, FEWEST_RUNS, MOST_RUNS))


def rehearse(evidence: Evidence, assumed: Assumptions, n_runs: int) -> Rehearsal:
    """evidence: of the draft. The same draft and assumptions give the same rehearsal: it is seeded by the round."""
    rng = np.random.default_rng(evidence.seed)
    runs = [_run(evidence, assumed, rng) for _ in range(n_runs)]
    alphas = [run.alpha for run in runs if run.alpha is not None]
    return Rehearsal(
        n_runs=n_runs,
        sides=[_side_outcome(evidence, number, runs) for number in range(len(evidence.sides))],
        cells=_cell_outcomes(evidence, runs),
        comparisons=_comparison_outcomes(evidence, assumed, runs),
        alpha=_spread(alphas) if alphas else None,
        undecided=_spread(run.undecided for run in runs),
        wrong_verdicts=_spread(run.wrong_verdicts for run in runs),
        n_judgments=_spread(run.n_judgments for run in runs),
    )


class Run(NamedTuple):
    """One made-up round. true: accuracies of all that the cells (C,) were drawn from; the rest as reports have it.

    cells: their accuracies; these, others: averages of sides, for these relations and for relations like these.
    accepted: what each draw says of being accepted.
    """

    true: Floats
    cells: list[Rate]
    these: list[Rate]
    others: list[tuple[float | None, float | None]]
    accepted: VerdictSample
    alpha: float | None
    undecided: float
    wrong_verdicts: float
    n_judgments: int


def _run(evidence: Evidence, assumed: Assumptions, rng: np.random.Generator) -> Run:
    truth = draw_truth(evidence, assumed, rng)
    simulated = judged(evidence, truth.is_true, assumed, rng)
    drawn = drawn_verdicts(simulated)
    cells = cells_of(simulated, drawn)
    rates = [cell.rate_of(ACCEPTED) for cell in cells]
    accuracies = np.array([rate.value for rate in rates], dtype=np.float64)
    of_sides = [np.flatnonzero(evidence.side_of_cell == number).tolist() for number in range(len(evidence.sides))]
    return Run(
        true=truth.accuracies,
        cells=rates,
        these=[macro_of_these([cells[n] for n in numbers]) for numbers in of_sides],
        others=[macro_interval(accuracies[numbers].tolist()) for numbers in of_sides],
        accepted=drawn.of_draws(ACCEPTED),
        alpha=_alpha(simulated),
        undecided=float(np.mean(simulated.verdict == UNDECIDED)),
        wrong_verdicts=_wrong_verdicts(simulated, truth),
        n_judgments=len(simulated.judgments.task),
    )


def _alpha(evidence: Evidence) -> float | None:
    patterns = evidence.first_two.patterns
    counts, n_tasks = pairable(patterns.counts, patterns.n_tasks)
    [alpha] = alpha_of_counts(counts, n_tasks[np.newaxis]) if len(counts) else [np.nan]
    return None if np.isnan(alpha) else float(alpha)


def _wrong_verdicts(evidence: Evidence, truth: Truth) -> float:
    return float(np.mean(evidence.verdict == np.where(truth.is_true, REJECTED, ACCEPTED)))


def _side_outcome(evidence: Evidence, number: int, runs: Sequence[Run]) -> SideOutcome:
    is_of_side = evidence.side_of_cell == number
    these = [run.these[number] for run in runs]
    true = np.array([run.true[is_of_side].mean() for run in runs])
    measured = np.array([rate.value for rate in these], dtype=np.float64)
    others = _half_widths(run.others[number] for run in runs)
    return SideOutcome(
        *evidence.sides[number],
        n_relations=int(is_of_side.sum()),
        true=_spread(true),
        measured=_spread(measured),
        error=_spread(measured - true),
        half_width=_spread(_half_widths((rate.low, rate.high) for rate in these)),
        for_others=_spread(others) if others else None,
    )


def _half_widths(intervals: Iterable[tuple[float | None, float | None]]) -> list[float]:
    """Return half the width of each interval that there is."""
    return [(high - low) / 2 for low, high in intervals if low is not None and high is not None]


def _cell_outcomes(evidence: Evidence, runs: Sequence[Run]) -> list[CellOutcome]:
    """Return the cells, those of the widest intervals first."""
    outcomes = [
        CellOutcome(*key, half_width=_spread(_half_widths((rate.low, rate.high) for rate in rates)))
        for key, rates in zip(evidence.cells, zip(*(run.cells for run in runs), strict=True), strict=True)
    ]
    return sorted(outcomes, key=lambda outcome: -outcome.half_width.median)


def _comparison_outcomes(evidence: Evidence, assumed: Assumptions, runs: Sequence[Run]) -> list[ComparisonOutcome]:
    accuracies = dict(zip(evidence.sides, assumed.accuracies, strict=True))
    table = np.array([[rate.value for rate in run.cells] for run in runs])  # (R, C)
    compare_statements = statement_comparisons(evidence)

    def by_statements(pair: Pair, number: int) -> StatementDifference | None:
        return compare_statements(pair.a, pair.b, runs[number].accepted)

    outcomes = []
    for pair, difference, p_holm in compare_rules(evidence.cells, table, evidence.seed, by_statements):
        expected, is_found = accuracies[pair.a] - accuracies[pair.b], p_holm < SIGNIFICANCE
        is_wrong = is_found & (difference * expected < 0)
        outcomes.append(
            ComparisonOutcome(pair.common, *pair.names, expected, float(is_found.mean()), float(is_wrong.mean()))
        )
    return outcomes


def _spread(values: Iterable[float]) -> Spread:
    return Spread(*np.percentile(list(values), MIDDLE).tolist())
