"""Curves by hand."""

from itertools import pairwise

import numpy as np
import pytest

from evaluation.statistics.curves import accuracy_by_score, accuracy_by_size
from evaluation.statistics.rates import wilson_interval


def test_the_accuracy_of_the_best_part_rests_on_the_draws_in_it():
    place = np.array([0.1, 0.2, 0.6, 0.9])

    points = {point.share: point for point in accuracy_by_size(place, np.array([1, 1, 0, 1]) > 0, np.ones(4))}

    assert 0.05 not in points  # no draw among the best 5 %
    assert (points[0.5].n, points[0.5].accuracy) == (2, 1)
    assert points[0.6].accuracy == pytest.approx(2 / 3)
    assert (points[1.0].low, points[1.0].high) == pytest.approx(wilson_interval(3, 4))


def test_a_draw_counts_for_as_many_tuples_as_it_stands_for():
    [point] = [
        each for each in accuracy_by_size(np.array([0.5, 1.0]), np.array([True, False]), np.array([1.0, 3.0]))
        if each.share == 1
    ]  # fmt: skip

    assert point.accuracy == 0.25


def test_equal_scores_share_a_bin():
    score = np.array([1.0] * 8 + [2.0] * 2 + [3.0] * 10)

    bins = accuracy_by_score(score, score > 1.5, np.ones(20))

    assert sum(each.n for each in bins) == 20
    assert all(one.score_high < other.score_low for one, other in pairwise(bins))
    assert bins[0] == pytest.approx((1.0, 2.0, 10, 2, 0.2, *wilson_interval(2, 10)))


def test_a_bin_across_strata_weighs_its_draws_by_the_tuples_that_they_stand_for():
    [found] = accuracy_by_score(np.array([1.0, 2.0]), np.array([False, True]), np.array([3.0, 1.0]))

    assert (found.accepted, found.accuracy) == (1, 0.25)  # 1 of 2 draws, 1 of 4 tuples
