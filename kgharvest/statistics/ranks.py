"""Ranks as intervals: which places sides may have, given which of them are told apart. Letters: S sides.

The rank of a side is 1 plus how many are truly better. Where all pairs are tested together so that a wrong claim "a is
better than b" has a probability of .05 at most, the ranks from 1 plus how many are told to be better to S less how many
are told to be worse hold the true ranks of all sides at once with 95 % (Mogstad, Romano, Shaikh and Wilhelm 2024,
"Inference for Ranks with Applications to Mobility across Neighbourhoods and Academic Achievement across Countries").
Sides that are truly tied are covered with all places that they share.
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
    """Sides number a and b, the difference a minus b, and its two-sided p."""

    a: int
    b: int
    difference: float
    p: float


def rank_intervals(is_better: Flags) -> Counts:
    """Return (S, 2) the first and the last rank that each side may have; 1 is the best.

    is_better: (S, S), whether the side of the row was told to be better than that of the column.
    """
    return np.column_stack([1 + is_better.sum(axis=0), len(is_better) - is_better.sum(axis=1)])


def better_by_tests(n_sides: int, tests: Sequence[PairTest]) -> Flags:
    """Return (S, S) which sides are told to be better, the p of all pairs adjusted together after Holm.

    Pairs that nobody could test are not told apart.
    """
    is_better = np.zeros((n_sides, n_sides), dtype=np.bool_)
    for test, p in zip(tests, holm([test.p for test in tests]), strict=True):
        if p < SIGNIFICANCE and test.difference:
            ahead, behind = (test.a, test.b) if test.difference > 0 else (test.b, test.a)
            is_better[ahead, behind] = True
    return is_better


def better_by_limits(lower_limits: Callable[[float], Floats]) -> Flags:
    """Return the same from intervals: Holm's steps, without the p of any pair.

    lower_limits: takes z and returns (S, S) the lower limit of row minus column at z standard errors, NaN where there
    is none. Pairs that are told apart at the level of the step leave the rest with a milder one.
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
    """Return for each side those that it was not told apart from."""
    is_apart = is_better | is_better.T
    np.fill_diagonal(is_apart, True)
    return [np.flatnonzero(~row).tolist() for row in is_apart]
