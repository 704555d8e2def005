"""Verdict rules, and how stable their verdicts are. A rule takes counts per label (T, 3) and gives verdicts (T,)."""

from __future__ import annotations

from math import comb, prod

import numpy as np
from scipy.optimize import brentq

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


def expected_flips(accepted: float, alpha: float, k: int) -> float:
    """Return the expected share of statements that one panel of k accepts and another does not.

    accepted: the share that a panel accepts, more than half of its judgments being True. alpha: agreement on True
    against the rest. How often a statement is called True is taken as Beta distributed over statements, with alpha as
    the correlation of two judgments of a statement, so that panels are beta-binomial (Skellam 1948).
    """
    if accepted in (0, 1) or alpha >= 1:
        return 0.0
    if alpha <= 0:  # judgments of a statement tell nothing about each other: two panels are as two of any
        return 2 * accepted * (1 - accepted)
    precision = 1 / alpha - 1  # the two parameters of the Beta distribution together
    mean = _mean_that_accepts(accepted, precision, k)
    a, b = mean * precision, (1 - mean) * precision
    accepting = range(k // 2 + 1, k + 1)
    rest = range(k // 2 + 1)
    return 2 * sum(comb(k, x) * comb(k, y) * _moment(a, b, x + y, 2 * k - x - y) for x in accepting for y in rest)


def _mean_that_accepts(accepted: float, precision: float, k: int) -> float:
    """Return how often judgments are True if panels of k accept the share `accepted`."""

    def excess(mean: float) -> float:
        a, b = mean * precision, (1 - mean) * precision
        return sum(comb(k, x) * _moment(a, b, x, k - x) for x in range(k // 2 + 1, k + 1)) - accepted

    return float(brentq(excess, 0, 1, xtol=1e-16))


def _moment(a: float, b: float, n_true: int, n_other: int) -> float:
    """Return the expectation of p^n_true (1 - p)^n_other for p of the distribution Beta(a, b)."""
    hits = prod(a + done for done in range(n_true)) * prod(b + done for done in range(n_other))
    return hits / prod(a + b + done for done in range(n_true + n_other))
