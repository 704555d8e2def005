"""Rank intervals of sides from pairwise tests. Letters: S sides.

A side's rank is 1 plus the number of better sides. If all pairs are tested with a familywise error rate of .05, the
ranks from 1 plus the number of significantly better sides to S minus the number of significantly worse ones cover all
true ranks simultaneously with 95 % (Mogstad, Romano, Shaikh and Wilhelm 2024, "Inference for Ranks with Applications to
Mobility across Neighbourhoods and Academic Achievement across Countries"). Tied sides are covered with all their ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from kgharvest.statistics.arrays import Counts, Flags, Floats
from kgharvest.statistics.paired_tests import holm
from kgharvest.statistics.rates import SIGNIFICANCE


class PairTest(NamedTuple):
    """Numbers of sides a and b, the difference a - b, and its two-sided p."""

    a: int
    b: int
    difference: float
    p: float


def rank_intervals(is_better: Flags) -> Counts:
    """Return (S, 2) the first and last possible rank of each side; 1 is best.

    is_better: (S, S), True if the row's side is significantly better than the column's.
    """
    return np.column_stack([1 + is_better.sum(axis=0), len(is_better) - is_better.sum(axis=1)])


def better_by_tests(n_sides: int, tests: Sequence[PairTest]) -> Flags:
    """Return (S, S) significantly better sides, with Holm's adjustment over all tests. Untested pairs are False."""
    is_better = np.zeros((n_sides, n_sides), dtype=np.bool_)
    for test, p in zip(tests, holm([test.p for test in tests]), strict=True):
        if p < SIGNIFICANCE and test.difference:
            ahead, behind = (test.a, test.b) if test.difference > 0 else (test.b, test.a)
            is_better[ahead, behind] = True
    return is_better


def better_by_limits(lower_limits: Callable[[float], Floats]) -> Flags:
    """Return significantly better sides from intervals: Holm's steps without p values.

    lower_limits: takes z and returns (S, S) the lower limit of row minus column at z standard errors, NaN if undefined.
    Each pair that is significant at a step relaxes the level for the remaining pairs.
    """
    is_known = ~np.isnan(lower_limits(0.0))
    np.fill_diagonal(is_known, False)
    n_pairs = n_left = int(is_known.sum()) // 2
    is_better = np.zeros(is_known.shape, dtype=np.bool_)
    while n_left:
        z = float(ndtri(1 - SIGNIFICANCE / 2 / n_left))
        is_better = is_known & (lower_limits(z) > 0)
        n_told = int(is_better.sum())
        if n_told == n_pairs - n_left:
            break
        n_left = n_pairs - n_told
    return is_better


def tied_with(is_better: Flags) -> list[list[int]]:
    """Return the sides that are not significantly different, for each side."""
    is_apart = is_better | is_better.T
    np.fill_diagonal(is_apart, True)
    return [np.flatnonzero(~row).tolist() for row in is_apart]
