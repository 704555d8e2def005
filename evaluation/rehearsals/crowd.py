"""A simulated crowd: which tuples of a round are true, and what made-up people say of them. Arrays; no database.

Letters of shapes: as in evaluation.evidence.arrays; k judgments of a statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from evaluation.evidence.arrays import Evidence, Judgments, label_counts
from kgharvest.statistics.arrays import FALSE, TRUE, UNJUDGEABLE, Codes, Flags, Floats
from kgharvest.statistics.verdicts import majority

# A beta distribution has no larger variance than that of a coin; a spread is held to this share of its deviation.
MOST_OF_DEVIATION = 0.95


@dataclass(frozen=True)
class Assumptions:
    """What one expects of tuples and of people; shares in [0, 1].

    accuracies: of each LM and setting, in the order of `Evidence.sides`. spread: standard deviation of accuracy over
    relations. true_called_false, false_called_true: errors of a judgment that is not Unjudgeable; they fall on all
    statements alike and independently.
    """

    accuracies: Sequence[float]
    spread: float = 0.15
    true_called_false: float = 0.05
    false_called_true: float = 0.1
    unjudgeable: float = 0.03
    n_people: int = 10


class Truth(NamedTuple):
    """is_true: of statements (T,). accuracies: of all the tuples that cells (C,) were drawn from."""

    is_true: Flags
    accuracies: Floats


def draw_truth(evidence: Evidence, assumed: Assumptions, rng: np.random.Generator) -> Truth:
    """Return which tuples are true. A tuple that several cells drew is as likely so as the mean of their accuracies."""
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
    """Return (C,) from a beta distribution each; half of the variance is the relation's, half is of its LM and setting.

    Both halves are normal and joined by a Gaussian copula, so that mean and standard deviation are those assumed.
    """
    relations = sorted({cell.relation for cell in evidence.cells})
    relation = np.array([relations.index(cell.relation) for cell in evidence.cells])
    normal = (rng.standard_normal(len(relations))[relation] + rng.standard_normal(len(relation))) / np.sqrt(2)
    mean = np.asarray(assumed.accuracies, dtype=np.float64)[evidence.side_of_cell]
    if not assumed.spread:
        return mean
    variance = np.minimum(assumed.spread, MOST_OF_DEVIATION * np.sqrt(mean * (1 - mean))) ** 2
    size = mean * (1 - mean) / variance - 1
    return np.asarray(stats.beta.ppf(stats.norm.cdf(normal), mean * size, (1 - mean) * size))


def judged(evidence: Evidence, is_true: Flags, assumed: Assumptions, rng: np.random.Generator) -> Evidence:
    """Return the evidence with a judgment of k different people for each statement, or of two and a third if split."""
    k, n_tasks = evidence.judgments_per_task, evidence.n_tasks
    people = _people(n_tasks, k, max(assumed.n_people, k), rng)  # (T, k)
    labels = _labels(is_true, k, assumed, rng)  # (T, k)
    is_asked = np.ones((n_tasks, k), dtype=np.bool_)
    third = np.full(n_tasks, -1)
    if evidence.has_thirds:
        is_asked[:, 2] = labels[:, 0] != labels[:, 1]
        third = np.where(is_asked[:, 2], people[:, 2], -1)
    task = np.broadcast_to(np.arange(n_tasks)[:, np.newaxis], labels.shape)
    judgments = _in_order(task[is_asked], people[is_asked], labels[is_asked])
    return replace(
        evidence,
        verdict=majority(label_counts(judgments, n_tasks), evidence.quorum),
        third=third,
        judgments=judgments,
        annotators=[f"simulated-{number}" for number in range(1, max(assumed.n_people, k) + 1)],
    )


def _people(n_tasks: int, k: int, n_people: int, rng: np.random.Generator) -> Codes:
    """Return k different people for each statement (T, k)."""
    people = np.empty((n_tasks, k), dtype=np.int64)
    for place in range(k):
        chosen = rng.integers(0, n_people - place, n_tasks)  # of those who are not chosen yet
        for earlier in np.sort(people[:, :place], axis=1).T:
            chosen += chosen >= earlier
        people[:, place] = chosen
    return people


def _labels(is_true: Flags, k: int, assumed: Assumptions, rng: np.random.Generator) -> Codes:
    errs = np.where(is_true, assumed.true_called_false, assumed.false_called_true)[:, np.newaxis]
    says_true = is_true[:, np.newaxis] ^ (rng.random((len(is_true), k)) < errs)
    is_unjudgeable = rng.random((len(is_true), k)) < assumed.unjudgeable
    return np.where(is_unjudgeable, UNJUDGEABLE, np.where(says_true, TRUE, FALSE))


def _in_order(task: Codes, annotator: Codes, label: Codes) -> Judgments:
    order = np.lexsort((annotator, task))
    return Judgments(task[order], annotator[order], label[order], np.full(len(task), np.nan))
