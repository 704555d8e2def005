"""Curves by hand."""

from itertools import pairwise

import numpy as np
import pytest

from evaluation.statistics.curves import accuracy_by_score
from evaluation.statistics.rates import wilson_interval


def test_equal_scores_share_a_bin():
    score = np.array([1.0] * 8 + [2.0] * 2 + [3.0] * 10)

    bins = accuracy_by_score(score, score > 1.5, np.ones(20))

    assert sum(score_bin.n for score_bin in bins) == 20
    assert all(one.score_high < other.score_low for one, other in pairwise(bins))
    assert bins[0] == pytest.approx((1.0, 2.0, 10, 2, 0.2, *wilson_interval(2, 10)))


def test_a_bin_across_strata_weighs_its_draws_by_the_tuples_that_they_stand_for():
    [found] = accuracy_by_score(np.array([1.0, 2.0]), np.array([False, True]), np.array([3.0, 1.0]))

    assert (found.accepted, found.accuracy) == (1, 0.25)  # 1 of 2 draws, 1 of 4 tuples
