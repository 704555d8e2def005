"""Rank intervals, derived from pairwise tests or from confidence limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from benches.rank_coverage import Design, simulate
from kgharvest.statistics.paired_tests import PairTest, better_by_limits, better_by_tests, rank_intervals, tied_with


def test_rank_lies_between_better_and_worse_sides():
    # a beats c and d, b beats d. Ranks: a 1 to 2, b 1 to 3, c 2 to 4, d 3 to 4.
    is_better = np.zeros((4, 4), dtype=bool)
    for ahead, behind in ((0, 2), (0, 3), (1, 3)):
        is_better[ahead, behind] = True

    assert rank_intervals(is_better).tolist() == [[1, 2], [1, 3], [2, 4], [3, 4]]
    assert tied_with(is_better) == [[1], [0, 2], [1, 3], [2]]


def test_fully_separated_sides_have_exact_ranks():
    assert rank_intervals(np.triu(np.ones((3, 3), dtype=bool), 1)).tolist() == [[1, 1], [2, 2], [3, 3]]


def test_unseparated_sides_may_have_any_rank():
    none_better = np.zeros((3, 3), dtype=bool)

    assert rank_intervals(none_better).tolist() == [[1, 3]] * 3
    assert tied_with(none_better) == [[1, 2], [0, 2], [0, 1]]


def test_tests_are_adjusted_and_sign_names_better_side():
    # Holm: .001 x 3, .02 x 2, .04 x 1.
    tests = [PairTest(0, 1, -0.2, 0.02), PairTest(0, 2, 0.1, 0.04), PairTest(1, 2, 0.3, 0.001)]

    assert better_by_tests(3, tests).tolist() == [[False, False, True], [True, False, True], [False, False, False]]
    assert not better_by_tests(3, [test._replace(p=0.06) for test in tests]).any()


def test_pairs_without_a_test_are_tied():
    assert rank_intervals(better_by_tests(3, [PairTest(0, 1, 0.5, 0.0)])).tolist() == [[1, 2], [2, 3], [1, 3]]


@pytest.mark.parametrize("seed", range(40))
def test_limits_separate_same_sides_as_holm_adjusted_tests(seed):
    rng = np.random.default_rng(seed)
    values, errors = rng.normal(0, 2, 5), rng.uniform(0.2, 1.5, 5)
    difference = values[:, None] - values
    spread = np.hypot(errors[:, None], errors)

    tests = [
        PairTest(a, b, difference[a, b], 2 * ndtr(-abs(difference[a, b]) / spread[a, b]))
        for a in range(5)
        for b in range(a + 1, 5)
    ]

    by_limits = better_by_limits(lambda z: difference - z * spread)
    assert by_limits.tolist() == better_by_tests(5, tests).tolist()


def test_sides_without_limits_are_tied_and_need_no_adjustment():
    def limits(z: float) -> np.ndarray:
        apart = np.full((3, 3), np.nan)
        apart[0, 1], apart[1, 0] = 2.1 - z, -2.1 - z  # separated at 1.96, the critical value of a single pair
        return apart

    assert rank_intervals(better_by_limits(limits)).tolist() == [[1, 2], [2, 3], [1, 3]]
    assert not better_by_limits(lambda z: np.full((2, 2), np.nan)).any()


@pytest.mark.parametrize(
    "design",
    [
        Design((0.7,) * 4, 14, 200, 20),
        Design((0.6, 0.6, 0.8, 0.8), 14, 400, 30),
        Design((0.5, 0.7, 0.7), 2, 200, 20),
        Design((0.7,) * 8, 1, 40, 30, spread=0.0, of_relation=True),
    ],
    ids=str,
)
def test_rank_intervals_cover_all_true_ranks_simultaneously(design):
    """60 rounds: the standard error of the coverage (.95) is .028. Full figures: benches/rank_coverage.py."""
    assert simulate(design, 60).all_ranks >= 0.9
