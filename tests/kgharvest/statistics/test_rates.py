from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import binomtest, ttest_1samp

from kgharvest.statistics.rates import (
    SIGNIFICANCE,
    Z_95,
    accuracy_by_score,
    difference_interval,
    hajek_share,
    macro_average,
    macro_interval,
    rate,
    wilson_interval,
)


def test_z_is_the_quantile_of_two_sided_intervals():
    assert ndtri(1 - SIGNIFICANCE / 2) == Z_95


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_matches_scipy(counts):
    n_hits, n = counts

    expected = binomtest(n_hits, n).proportion_ci(method="wilson")

    assert wilson_interval(n_hits, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_wilson_interval_matches_newcombe():
    # Newcombe (1998), Statistics in Medicine 17, 857-872, Table I, method 3: 81 of 263.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_wilson_interval_without_hits_starts_at_zero():
    low, high = wilson_interval(0, 20)

    assert low == 0
    assert high == pytest.approx(0.1611, abs=5e-5)  # Newcombe (1998), Table I, method 3: 0 of 20


def test_wilson_interval_of_all_hits_ends_at_one():
    assert wilson_interval(7, 7)[1] == 1


def test_rate_without_observations_is_undefined():
    assert rate(0, 0)[:3] == (None, None, None)


def test_macro_average_weights_relations_equally_and_skips_undefined():
    assert macro_average([1.0, 0.5, None]) == pytest.approx(0.75)


def test_macro_average_without_rates_is_undefined():
    assert macro_average([None]) is None


# Newcombe (1998), Statistics in Medicine 17, 873-890, Table II, method 10: columns (a), (c), (e), (g).
@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_difference_interval_matches_newcombe(a, b, low, high):
    assert difference_interval(rate(*a), rate(*b)) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 40), st.integers(0, 30))
def test_difference_interval_matches_scipy_wilson_intervals(hits_a, hits_b):
    """Newcombe's method 10: add the squared distances to the limits of both shares."""
    share_a, share_b = hits_a / 40, hits_b / 30
    of_a, of_b = (binomtest(hits, n).proportion_ci(method="wilson") for hits, n in ((hits_a, 40), (hits_b, 30)))
    below = np.sqrt((share_a - of_a.low) ** 2 + (of_b.high - share_b) ** 2)
    above = np.sqrt((of_a.high - share_a) ** 2 + (share_b - of_b.low) ** 2)

    low, high = difference_interval(rate(hits_a, 40), rate(hits_b, 30))

    assert low == pytest.approx(max(share_a - share_b - below, -1), abs=1e-9)
    assert high == pytest.approx(min(share_a - share_b + above, 1), abs=1e-9)


def test_hajek_share_uses_kish_effective_sample_size():
    """Weights 1, 1, 2, 2: effective sample size 36 / 10 (squared sum / sum of squares), weighted share 4 / 6."""
    share, low, high = hajek_share(6.0, 4.0, 10.0)

    n, z = 3.6, 1.959963984540054
    centre, half_width = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    assert share == pytest.approx(2 / 3, abs=1e-12)
    assert (low, high) == pytest.approx(
        ((centre - half_width) / (1 + z**2 / n), (centre + half_width) / (1 + z**2 / n)), abs=1e-9
    )


def test_macro_interval_is_students_t_interval():
    values = [0.2, 0.5, 0.6, 0.9, 0.7]

    expected = ttest_1samp(values, 0).confidence_interval()

    assert macro_interval(values) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_macro_interval_of_one_relation_is_undefined():
    assert macro_interval([0.5]) == (None, None)


def test_equal_scores_share_a_bin():
    score = np.array([1.0] * 8 + [2.0] * 2 + [3.0] * 10)

    bins = accuracy_by_score(score, np.ones(20), np.where(score > 1.5, 1.0, 0.0), np.ones(20))

    assert sum(score_bin.n for score_bin in bins) == 20
    assert all(lower.score_high < higher.score_low for lower, higher in pairwise(bins))
    assert bins[0] == pytest.approx((1.0, 2.0, 10, 2, 0.2, *wilson_interval(2, 10)))


def test_bin_across_strata_weights_draws_by_represented_tuples():
    [score_bin] = accuracy_by_score(np.array([1.0, 2.0]), np.ones(2), np.array([0.0, 1.0]), np.array([3.0, 1.0]))

    assert (score_bin.accepted, score_bin.accuracy) == (1, 0.25)  # 1 of 2 draws, 1 of 4 tuples
