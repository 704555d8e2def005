"""Ranks as intervals: from which sides are told apart, from tests, from limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from benches.rank_coverage import Design, simulate
from kgharvest.statistics.paired_tests import PairTest, better_by_limits, better_by_tests, rank_intervals, tied_with


def test_a_rank_lies_between_those_told_to_be_better_and_those_told_to_be_worse():
    # a beats c and d, b beats d: a 1 to 2, b 1 to 3, c 2 to 4, d 3 to 4.
    is_better = np.zeros((4, 4), dtype=bool)
    for ahead, behind in ((0, 2), (0, 3), (1, 3)):
        is_better[ahead, behind] = True

    assert rank_intervals(is_better).tolist() == [[1, 2], [1, 3], [2, 4], [3, 4]]
    assert tied_with(is_better) == [[1], [0, 2], [1, 3], [2]]


def test_where_all_are_told_apart_ranks_are_numbers():
    assert rank_intervals(np.triu(np.ones((3, 3), dtype=bool), 1)).tolist() == [[1, 1], [2, 2], [3, 3]]


def test_where_none_are_told_apart_any_rank_is_possible():
    nobody = np.zeros((3, 3), dtype=bool)

    assert rank_intervals(nobody).tolist() == [[1, 3]] * 3
    assert tied_with(nobody) == [[1, 2], [0, 2], [0, 1]]


def test_tests_are_adjusted_for_all_pairs_and_the_sign_says_who_is_better():
    # Holm: .001 x 3, .02 x 2, .04 x 1.
    tests = [PairTest(0, 1, -0.2, 0.02), PairTest(0, 2, 0.1, 0.04), PairTest(1, 2, 0.3, 0.001)]

    assert better_by_tests(3, tests).tolist() == [[False, False, True], [True, False, True], [False, False, False]]
    assert not better_by_tests(3, [test._replace(p=0.06) for test in tests]).any()


def test_pairs_without_a_test_are_tied():
    assert rank_intervals(better_by_tests(3, [PairTest(0, 1, 0.5, 0.0)])).tolist() == [[1, 2], [2, 3], [1, 3]]


@pytest.mark.parametrize("seed", range(40))
def test_limits_tell_the_same_apart_as_the_p_of_tests_after_holm(seed):
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


def test_sides_without_limits_are_tied_and_ask_for_no_adjustment():
    def limits(z: float) -> np.ndarray:
        apart = np.full((3, 3), np.nan)
        apart[0, 1], apart[1, 0] = 2.1 - z, -2.1 - z  # told apart at 1.96, the level of one pair
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
def test_all_true_ranks_are_covered_at_once(design):
    """benches/rank_coverage.py has the figures; here 60 rounds, whose coverage varies by .028 around .95."""
    assert simulate(design, 60).all_ranks >= 0.9
