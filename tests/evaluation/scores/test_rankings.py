"""Average precision by hand, over all orders of ties, and against scikit-learn; overlap of two lists by hand."""

from itertools import permutations
from statistics import fmean

import numpy as np
import pytest

from evaluation.scores.rankings import (
    Depth,
    average_precision,
    jaccard,
    overlap_by_depth,
    precision_recall_curve,
    rank_correlation,
)


def precision_of(scores, is_positive):
    return average_precision(np.array(scores, dtype=float), np.array(is_positive, dtype=bool))


def test_average_precision_by_hand():
    # Right, wrong, right, right, wrong: (1/1 + 2/3 + 3/4) / 3.
    assert precision_of([9, 7, 5, 3, 1], [1, 0, 1, 1, 0]) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_ties_count_as_the_mean_over_their_orders():
    scores, is_positive = [3, 2, 2, 2, 2, 1], [0, 1, 0, 1, 0, 1]

    orders = [[0, *order, 5] for order in permutations([1, 2, 3, 4])]
    in_order = [precision_of([-position for position in range(6)], np.array(is_positive)[order]) for order in orders]

    assert precision_of(scores, is_positive) == pytest.approx(fmean(in_order), abs=1e-12)


def test_average_precision_is_that_of_scikit_learn_without_ties():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    scores, is_positive = rng.permutation(500) / 500, rng.random(500) < 0.4

    assert average_precision(scores, is_positive) == pytest.approx(
        metrics.average_precision_score(is_positive, scores), abs=1e-12
    )


def test_scores_that_say_nothing_have_the_share_of_positives_in_a_large_sample():
    is_positive = np.arange(20_000) % 4 == 0

    assert average_precision(np.zeros(20_000), is_positive) == pytest.approx(0.25, abs=0.001)


def test_without_positives_there_is_no_average_precision():
    assert precision_of([1, 2], [0, 0]) is None


def test_the_curve_has_a_point_per_distinct_score():
    curve = precision_recall_curve(np.array([3.0, 2, 2, 1]), np.array([True, True, False, False]))

    assert curve == [(0.5, 1.0), (1.0, pytest.approx(2 / 3)), (1.0, 0.5)]


def test_a_long_curve_keeps_both_ends():
    curve = precision_recall_curve(np.arange(5000.0), np.arange(5000) % 2 == 1)

    assert len(curve) == 200
    assert curve[0] == (1 / 2500, 1.0)
    assert curve[-1] == (1.0, 0.5)


def test_jaccard_is_the_share_of_either_that_both_have():
    assert jaccard(n_a=4, n_b=3, n_both=2) == pytest.approx(2 / 5)
    assert jaccard(0, 0, 0) is None


def test_rank_correlations_equal_those_worked_by_hand():
    # d = 0, 1, -1, 0: rho = 1 - 6 * 2 / (4 * 15) = 0.8; 5 of 6 pairs agree: tau = (5 - 1) / 6
    rho, tau = rank_correlation([1, 2, 3, 4], [1, 3, 2, 4])

    assert rho == pytest.approx(0.8)
    assert tau == pytest.approx(4 / 6)


def test_only_the_order_counts():
    assert rank_correlation([1, 5, 9], [2, 30, 400]) == rank_correlation([1, 2, 3], [1, 2, 3])
    assert rank_correlation([1, 2], [9, 4]) == (pytest.approx(-1), pytest.approx(-1))


def test_one_shared_element_has_no_correlation():
    assert rank_correlation([1], [1]) == (None, None)


def test_an_element_is_shared_at_the_depth_where_both_have_it():
    ranks_a = {element: element for element in range(1, 21)}
    ranks_b = {element: 21 - element for element in range(1, 21)}

    assert overlap_by_depth(ranks_a, ranks_b) == [Depth(10, 0), Depth(20, 20)]
    assert overlap_by_depth(ranks_a, {}) == []
