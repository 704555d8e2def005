"""Power simulation (rehearsal) of a draft: simulate many rounds and summarize their reports. Nothing is stored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import scipy

from annotation.models import Round
from annotation.rounds.builder import FrozenRound
from evaluation.evidence.evidence import (
    Draws,
    Evidence,
    Judgments,
    cells_of,
    drawn_verdicts,
    label_counts,
    statement_comparisons,
    stratum_keys,
)
from evaluation.evidence.rows import cells_of_strata, stratum_rows
from evaluation.rendering.documents import name_of
from evaluation.reports.sections.comparisons import compare_rules
from evaluation.reports.sections.rates import macro_of_these
from kgharvest.names import short_name
from kgharvest.statistics.agreement import alpha_of_counts, pairable
from kgharvest.statistics.arrays import (
    ACCEPTED,
    FALSE,
    INCOMPLETE,
    REJECTED,
    TRUE,
    UNDECIDED,
    UNJUDGEABLE,
    Codes,
    Flags,
    Floats,
)
from kgharvest.statistics.paired_tests import Pair
from kgharvest.statistics.rates import SIGNIFICANCE, Rate, VerdictSample, macro_interval
from kgharvest.statistics.statement_test import StatementDifference
from kgharvest.statistics.verdicts import majority

# Maximum spread, as a share of the Bernoulli standard deviation. The standard deviation of a beta distribution is
# always below that of a Bernoulli distribution with the same mean.
MOST_OF_DEVIATION = 0.95
MOST_RUNS, FEWEST_RUNS = 100, 10
# Limits on the total work of all runs, which keep a simulation to a second or two
CELLS_AT_ONCE, STATEMENTS_AT_ONCE = 2000, 100_000
MIDDLE = (5, 50, 95)  # percentiles


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about tuples and annotators; shares in [0, 1].

    accuracies: by LM and setting, in the order of `Evidence.sides`. spread: standard deviation of accuracy over
    relations. true_called_false, false_called_true: error rates of judgments other than Unjudgeable. Errors are
    independent, and their rates are equal for all statements.
    """

    accuracies: Sequence[float]
    spread: float = 0.15
    true_called_false: float = 0.05
    false_called_true: float = 0.1
    unjudgeable: float = 0.03
    n_people: int = 10


class Truth(NamedTuple):
    """Simulated truth. is_true (T,): True for true statements. accuracies (C,): population accuracy of each cell."""

    is_true: Flags
    accuracies: Floats


def draw_truth(evidence: Evidence, assumed: Assumptions, rng: np.random.Generator) -> Truth:
    """Draw which tuples are true. For a tuple in several cells, the probability is the mean of the cell accuracies."""
    expected = _expected_accuracies(evidence, assumed, rng)  # (C,)
    draws, n_tasks = evidence.draws, evidence.n_tasks
    n_draws = np.bincount(draws.task, minlength=n_tasks)
    chance = np.bincount(draws.task, expected[evidence.cell_of_draw], n_tasks) / np.maximum(n_draws, 1)
    is_true = rng.random(n_tasks) < chance
    n_strata, population = len(evidence.strata), evidence.population_of_stratum.astype(np.int64)
    n_drawn = np.bincount(draws.stratum, minlength=n_strata)
    n_true = np.bincount(draws.stratum, is_true[draws.task], n_strata)
    n_true += rng.binomial(np.maximum(population - n_drawn, 0), expected[evidence.cell_of_stratum])
    n_cells = len(evidence.cells)
    in_cells = (np.bincount(evidence.cell_of_stratum, column, n_cells) for column in (n_true, population))
    return Truth(is_true, np.divide(*in_cells))


def _expected_accuracies(evidence: Evidence, assumed: Assumptions, rng: np.random.Generator) -> Floats:
    """Draw the accuracies of cells (C,) from beta distributions. Cells of a relation share half of the variance.

    The shared and the individual half are normal variables. A Gaussian copula transforms their sum and preserves the
    assumed mean and standard deviation.
    """
    relations = sorted({cell.relation for cell in evidence.cells})
    relation = np.array([relations.index(cell.relation) for cell in evidence.cells])
    normal = (rng.standard_normal(len(relations))[relation] + rng.standard_normal(len(relation))) / np.sqrt(2)
    mean = np.asarray(assumed.accuracies, dtype=np.float64)[evidence.side_of_cell]
    if not assumed.spread:
        return mean
    variance = np.minimum(assumed.spread, MOST_OF_DEVIATION * np.sqrt(mean * (1 - mean))) ** 2
    size = mean * (1 - mean) / variance - 1
    return np.asarray(scipy.stats.beta.ppf(scipy.stats.norm.cdf(normal), mean * size, (1 - mean) * size))


def judged(evidence: Evidence, is_true: Flags, assumed: Assumptions, rng: np.random.Generator) -> Evidence:
    """Return the evidence with simulated judgments.

    Each statement gets k judgments by different people. With adaptive third judgments, it gets two judgments, and a
    third if the first two differ.
    """
    k, n_tasks = evidence.judgments_per_task, evidence.n_tasks
    people = _people(n_tasks, k, max(assumed.n_people, k), rng)  # (T, k)
    errs = np.where(is_true, assumed.true_called_false, assumed.false_called_true)[:, np.newaxis]
    says_true = is_true[:, np.newaxis] ^ (rng.random((n_tasks, k)) < errs)
    is_unjudgeable = rng.random((n_tasks, k)) < assumed.unjudgeable
    labels = np.where(is_unjudgeable, UNJUDGEABLE, np.where(says_true, TRUE, FALSE))  # (T, k)
    is_asked = np.ones((n_tasks, k), dtype=np.bool_)
    third = np.full(n_tasks, -1)
    if evidence.has_thirds:
        is_asked[:, 2] = labels[:, 0] != labels[:, 1]
        third = np.where(is_asked[:, 2], people[:, 2], -1)
    task = np.broadcast_to(np.arange(n_tasks)[:, np.newaxis], labels.shape)
    task, annotator, label = task[is_asked], people[is_asked], labels[is_asked]
    order = np.lexsort((annotator, task))
    judgments = Judgments(task[order], annotator[order], label[order], np.full(len(task), np.nan))
    return replace(
        evidence,
        verdict=majority(label_counts(judgments, n_tasks), evidence.quorum),
        third=third,
        judgments=judgments,
        annotators=[f"simulated-{number}" for number in range(1, max(assumed.n_people, k) + 1)],
    )


def _people(n_tasks: int, k: int, n_people: int, rng: np.random.Generator) -> Codes:
    """Return k different people per statement (T, k)."""
    people = np.empty((n_tasks, k), dtype=np.int64)
    for place in range(k):
        chosen = rng.integers(0, n_people - place, n_tasks)  # among the remaining people
        for earlier in np.sort(people[:, :place], axis=1).T:
            chosen += chosen >= earlier
        people[:, place] = chosen
    return people


class Spread(NamedTuple):
    """Median of a number over the simulations, and the range of the middle 90 %."""

    low: float
    median: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class SideOutcome:
    """Means over the relations of an LM and setting. true: accuracy of all tuples. measured: estimate from verdicts.

    error: measured minus true. half_width: half-width of the 95 % interval for these relations. for_others: half-width
    of the interval for similar relations; None if undefined (a single relation, or no variation).
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
    """Simulated comparison of two sides. expected: assumed accuracy of a minus that of b.

    found: share of simulations with a Holm-adjusted p < .05.

    wrong_sign: share of simulations in which the less accurate side is significantly better.
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
    """Summary of all simulations. alpha: None if undefined in all simulations.

    wrong_verdicts: share of statements with a wrong verdict. undecided: share with an undecided verdict.
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
    """Simulate `n_runs` rounds from the evidence of a draft. The round's seed makes the result deterministic."""
    rng = np.random.default_rng(evidence.seed)
    runs = [_run(evidence, assumed, rng) for _ in range(n_runs)]
    alphas = [run.alpha for run in runs if run.alpha is not None]
    cells = [
        CellOutcome(*key, half_width=_spread(_half_widths((rate.low, rate.high) for rate in rates)))
        for key, rates in zip(evidence.cells, zip(*(run.cells for run in runs), strict=True), strict=True)
    ]
    return Rehearsal(
        n_runs=n_runs,
        sides=[_side_outcome(evidence, number, runs) for number in range(len(evidence.sides))],
        cells=sorted(cells, key=lambda cell: -cell.half_width.median),  # widest interval first
        comparisons=_comparison_outcomes(evidence, assumed, runs),
        alpha=_spread(alphas) if alphas else None,
        undecided=_spread(run.undecided for run in runs),
        wrong_verdicts=_spread(run.wrong_verdicts for run in runs),
        n_judgments=_spread(run.n_judgments for run in runs),
    )


class Run(NamedTuple):
    """Results of one simulated round. true (C,): population accuracy of each cell.

    The other fields are computed as in reports.

    cells: accuracy of each cell. these: average accuracy of each side, with the interval for the relations in the
    round. others: interval of this average for similar relations. accepted: evidence for the verdict ACCEPTED, by draw.
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
    side_cells = [np.flatnonzero(evidence.side_of_cell == number).tolist() for number in range(len(evidence.sides))]
    patterns = simulated.first_two.patterns
    counts, n_tasks = pairable(patterns.counts, patterns.n_tasks)
    [alpha] = alpha_of_counts(counts, n_tasks[np.newaxis]) if len(counts) else [np.nan]
    return Run(
        true=truth.accuracies,
        cells=rates,
        these=[macro_of_these([cells[n] for n in numbers]) for numbers in side_cells],
        others=[macro_interval(accuracies[numbers].tolist()) for numbers in side_cells],
        accepted=drawn.accepted,
        alpha=None if np.isnan(alpha) else float(alpha),
        undecided=float(np.mean(simulated.verdict == UNDECIDED)),
        wrong_verdicts=float(np.mean(simulated.verdict == np.where(truth.is_true, REJECTED, ACCEPTED))),
        n_judgments=len(simulated.judgments.task),
    )


def _side_outcome(evidence: Evidence, number: int, runs: Sequence[Run]) -> SideOutcome:
    is_of_side = evidence.side_of_cell == number
    these = [run.these[number] for run in runs]
    true = np.array([run.true[is_of_side].mean() for run in runs])
    measured = np.array([rate.value for rate in these], dtype=np.float64)
    widths_for_others = _half_widths(run.others[number] for run in runs)
    return SideOutcome(
        *evidence.sides[number],
        n_relations=int(is_of_side.sum()),
        true=_spread(true),
        measured=_spread(measured),
        error=_spread(measured - true),
        half_width=_spread(_half_widths((rate.low, rate.high) for rate in these)),
        for_others=_spread(widths_for_others) if widths_for_others else None,
    )


def _half_widths(intervals: Iterable[tuple[float | None, float | None]]) -> list[float]:
    """Return the half-width of each defined interval."""
    return [(high - low) / 2 for low, high in intervals if low is not None and high is not None]


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


def draft_evidence(round: Round, frozen: FrozenRound) -> Evidence:
    """Return the evidence of a draft, which has no judgments. Gold statements are omitted.

    frozen: rows that opening the round would store.
    """
    tasks = [task.knowledge_tuple_id for task in frozen.tasks if not task.is_gold]
    number_of_task = {knowledge_tuple: number for number, knowledge_tuple in enumerate(tasks)}
    cells = cells_of_strata(sample.stratum for sample in frozen.samples)
    number_of_stratum = {id(stratum): number for number, stratum in enumerate(chain(*cells.values()))}
    draws = [
        (number_of_task[drawn.knowledge_tuple_id], number_of_stratum[id(stratum)], cluster)
        for stratum, tuples, clusters, *_ in frozen.samples
        for drawn, cluster in zip(tuples, clusters or [0] * len(tuples), strict=True)
    ]
    task, stratum, cluster = np.array(sorted(draws), dtype=np.int64).reshape(-1, 3).T
    nothing = Judgments(*(np.zeros(0, dtype=np.int64),) * 3, np.zeros(0))
    return Evidence(
        round=round.name,
        source=str(Round.Source.SIMULATED),
        seed=round.seed,
        judgments_per_task=round.judgments_per_task,
        quorum=round.quorum,
        has_thirds=round.third_only_if_split,
        verdict=np.full(len(tasks), INCOMPLETE),
        adjudicated=np.full(len(tasks), INCOMPLETE),
        third=np.full(len(tasks), -1),
        wanted=np.full(len(tasks), round.judgments_per_task),
        judgments=nothing,
        cells=list(cells),
        strata=stratum_keys(stratum_rows(cells)),
        draws=Draws(task, stratum, np.zeros_like(task), np.full(len(task), np.nan)),
        annotators=(),
        gold=nothing,
        gold_truth=np.zeros(0, dtype=np.int64),
        demonstrators=(),
        cluster=cluster if round.cluster_size else None,
    )
