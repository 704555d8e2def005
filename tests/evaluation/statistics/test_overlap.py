"""Overlap of ranked lists."""

import pytest

from evaluation.statistics.overlap import Depth, jaccard, overlap_by_depth, rank_correlation


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
