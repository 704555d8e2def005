"""Average precision and list overlap, checked against hand calculations, tie permutations, and scikit-learn."""

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


def test_average_precision_matches_hand_calculation():
    # Hits at ranks 1, 3, and 4: (1/1 + 2/3 + 3/4) / 3.
    assert precision_of([9, 7, 5, 3, 1], [1, 0, 1, 1, 0]) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_tied_scores_average_over_all_orders():
    scores, is_positive = [3, 2, 2, 2, 2, 1], [0, 1, 0, 1, 0, 1]

    orders = [[0, *order, 5] for order in permutations([1, 2, 3, 4])]
    in_order = [precision_of([-position for position in range(6)], np.array(is_positive)[order]) for order in orders]

    assert precision_of(scores, is_positive) == pytest.approx(fmean(in_order), abs=1e-12)


def test_average_precision_without_ties_matches_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    scores, is_positive = rng.permutation(500) / 500, rng.random(500) < 0.4

    assert average_precision(scores, is_positive) == pytest.approx(
        metrics.average_precision_score(is_positive, scores), abs=1e-12
    )


def test_uninformative_scores_give_share_of_positives():
    is_positive = np.arange(20_000) % 4 == 0

    assert average_precision(np.zeros(20_000), is_positive) == pytest.approx(0.25, abs=0.001)


def test_average_precision_without_positives_is_undefined():
    assert precision_of([1, 2], [0, 0]) is None


def test_curve_has_one_point_per_distinct_score():
    curve = precision_recall_curve(np.array([3.0, 2, 2, 1]), np.array([True, True, False, False]))

    assert curve == [(0.5, 1.0), (1.0, pytest.approx(2 / 3)), (1.0, 0.5)]


def test_thinned_curve_keeps_both_ends():
    curve = precision_recall_curve(np.arange(5000.0), np.arange(5000) % 2 == 1)

    assert len(curve) == 200
    assert curve[0] == (1 / 2500, 1.0)
    assert curve[-1] == (1.0, 0.5)


def test_jaccard_is_intersection_over_union():
    assert jaccard(n_a=4, n_b=3, n_both=2) == pytest.approx(2 / 5)
    assert jaccard(0, 0, 0) is None


def test_rank_correlations_match_hand_calculation():
    # d = 0, 1, -1, 0: rho = 1 - 6 * 2 / (4 * 15) = 0.8; 5 of 6 pairs agree: tau = (5 - 1) / 6
    rho, tau = rank_correlation([1, 2, 3, 4], [1, 3, 2, 4])

    assert rho == pytest.approx(0.8)
    assert tau == pytest.approx(4 / 6)


def test_rank_correlation_uses_only_the_order():
    assert rank_correlation([1, 5, 9], [2, 30, 400]) == rank_correlation([1, 2, 3], [1, 2, 3])
    assert rank_correlation([1, 2], [9, 4]) == (pytest.approx(-1), pytest.approx(-1))


def test_rank_correlation_of_one_element_is_undefined():
    assert rank_correlation([1], [1]) == (None, None)


def test_overlap_counts_elements_in_both_lists_by_depth():
    ranks_a = {element: element for element in range(1, 21)}
    ranks_b = {element: 21 - element for element in range(1, 21)}

    assert overlap_by_depth(ranks_a, ranks_b) == [Depth(10, 0), Depth(20, 20)]
    assert overlap_by_depth(ranks_a, {}) == []
