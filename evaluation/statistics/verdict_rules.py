"""Verdict rules, and how stable their verdicts are. A rule takes counts per label (T, 3) and gives verdicts (T,)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import linprog

from evaluation.evidence.arrays import (
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
from evaluation.statistics.agreement import pattern_interval

N_STEPS = 300  # of EM: later ones change flips by less than their interval shows


def majority(counts: Codes, quorum: int = 1) -> Codes:
    """The rule of annotation.judging.verdicts.majority, for many statements: more than half, and at least `quorum`."""
    n_judgments = counts.sum(axis=1)
    return _decided(*(_wins(counts[:, label], n_judgments, quorum) for label in (TRUE, FALSE)))


def _wins(n: Codes, n_judgments: Codes, quorum: int) -> Flags:
    return (2 * n > n_judgments) & (n >= quorum)


def _decided(accepted: Flags, rejected: Flags) -> Codes:
    return np.where(accepted, ACCEPTED, np.where(rejected, REJECTED, UNDECIDED))


def unanimous(counts: Codes, quorum: int = 1) -> Codes:
    n_judgments = counts.sum(axis=1)
    is_enough = n_judgments >= quorum
    return _decided(*((counts[:, label] == n_judgments) & is_enough for label in (TRUE, FALSE)))


def unjudgeable_as_false(counts: Codes, quorum: int = 1) -> Codes:
    moved = np.stack(
        [counts[:, TRUE], counts[:, FALSE] + counts[:, UNJUDGEABLE], np.zeros_like(counts[:, TRUE])], axis=1
    )
    return majority(moved, quorum)


def by_model(labels: Floats, n_judgments: Codes) -> Codes:
    """Return what a model of annotators holds for more likely than not, from its probabilities (T, 2).

    Undecided on a statement that nobody called True or False.
    """
    is_judged = n_judgments > 0
    return _decided((labels[:, TRUE] > 0.5) & is_judged, (labels[:, FALSE] > 0.5) & is_judged)


def adjudicated(verdict: Codes, by_expert: Codes) -> Codes:
    """Return an expert's verdict (T,) where there is one, not INCOMPLETE, and the crowd's elsewhere."""
    return np.where(by_expert == INCOMPLETE, verdict, by_expert)


def where_complete(verdict: Codes, is_complete: Flags) -> Codes:
    return np.where(is_complete, verdict, INCOMPLETE)


class Flips(NamedTuple):
    """The expected share of statements that one panel accepts and another does not, with a 95 % interval."""

    value: float
    low: float
    high: float


def expected_flips(n_tasks: Codes, k: int, rng: np.random.Generator, n_draws: int) -> Flips:
    """Return how many verdicts of panels of k differ. n_tasks (m + 1,): with 0, 1, ... m judgments of True.

    How often people call a statement True, its propensity, may be spread over statements in any way: its distribution
    is fitted on a grid by EM from an even start (Laird 1978, Nonparametric maximum likelihood estimation of a mixing
    distribution). m judgments tell m moments of it, flips rest on 2k, so that distributions which fit alike may differ
    in flips. The ends come from polynomials of degree m below and above the flips of every propensity, the closest
    where it was fitted (linear programming): their means are linear in the shares of statements with each n_tasks, so
    the interval holds whatever the distribution is.
    """
    m = len(n_tasks) - 1
    propensity = np.linspace(0, 1, 101)  # (G,)
    likelihood = stats.binom.pmf(np.arange(m + 1)[:, np.newaxis], m, propensity)  # (m + 1, G)
    accepting = stats.binom.sf(k // 2, k, propensity)
    flips = 2 * accepting * (1 - accepting)
    weights = np.full(len(propensity), 1 / len(propensity))
    for _ in range(N_STEPS):
        ratio = np.divide(n_tasks / n_tasks.sum(), likelihood @ weights, out=np.zeros(m + 1), where=n_tasks > 0)
        weights = weights * (ratio @ likelihood)
    patterns = np.stack([np.arange(m + 1), m - np.arange(m + 1)], axis=1)
    ends = [flips @ weights]
    for sign in (-1, 1):  # a polynomial below, then one above: its values for statements with 0, 1, ... m of True
        program = linprog(sign * likelihood @ weights, -sign * likelihood.T, -sign * flips, bounds=(-1, 1))
        polynomial = program.x

        def mean(patterns: Codes, shares: Floats, polynomial: Floats = polynomial) -> Floats:
            return shares @ polynomial[patterns[:, 0]]

        ends += pattern_interval(mean, patterns, n_tasks, rng, n_draws) or ()
    return Flips(float(ends[0]), max(0.0, float(min(ends))), min(0.5, float(max(ends))))
