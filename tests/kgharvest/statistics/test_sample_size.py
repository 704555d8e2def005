"""Sample-size plans, compared with exact distributions and simulations."""

import numpy as np
import pytest
from scipy.stats import nct, norm, t, ttest_1samp

from kgharvest.statistics.paired_tests import (
    difference_by_statements,
    difference_over_relations,
    fewest_relations,
    relations_for_interval,
    relations_to_tell_apart,
    statements_to_shrink,
)


@pytest.mark.parametrize(("difference", "spread"), [(0.126, 0.17), (0.05, 0.2), (-0.3, 0.3), (0.2, 0.15)])
def test_planned_relations_match_noncentral_t_distribution(difference, spread):
    def power(n):
        return nct.sf(t.ppf(0.975, n - 1), n - 1, abs(difference) / spread * np.sqrt(n))

    exact = next(n for n in range(3, 2000) if power(n) >= 0.8)

    assert relations_to_tell_apart(difference, spread) == pytest.approx(exact, abs=1)


def test_planned_relations_give_80_percent_power():
    rng = np.random.default_rng(0)
    n = relations_to_tell_apart(0.12, 0.2)

    p = ttest_1samp(rng.normal(0.12, 0.2, size=(4000, n)), 0, axis=1).pvalue

    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.03)


def test_tiny_difference_has_no_plan():
    assert relations_to_tell_apart(0.0001, 0.2) is None


def test_halving_interval_takes_under_four_times_as_many_relations():
    # By hand: t(.975, 4) / sqrt(5) = 1.242; t(.975, 12) / sqrt(13) = .604, t(.975, 11) / sqrt(12) = .635.
    assert relations_for_interval(5, 0.5) == 13


def test_more_comparisons_require_more_relations():
    def power(n):
        return nct.sf(t.ppf(1 - 0.025 / 10, n - 1), n - 1, 0.126 / 0.17 * np.sqrt(n))

    exact = next(n for n in range(3, 2000) if power(n) >= 0.8)

    assert relations_to_tell_apart(0.126, 0.17, 10) == pytest.approx(exact, abs=1)


@pytest.mark.parametrize(("spread", "n_relations", "n_comparisons"), [(0.2, 8, 1), (0.1, 30, 10)])
def test_detectable_difference_over_relations_has_80_percent_power(spread, n_relations, n_comparisons):
    difference = difference_over_relations(spread, n_relations, n_comparisons)

    critical = t.ppf(1 - 0.025 / n_comparisons, n_relations - 1)
    power = nct.sf(critical, n_relations - 1, difference / spread * np.sqrt(n_relations))
    assert power == pytest.approx(0.8, abs=0.02)


def test_detectable_difference_by_statements_has_80_percent_power():
    rng = np.random.default_rng(0)
    difference = difference_by_statements(0.05, 4)

    is_detected = np.abs(rng.normal(difference, 0.05, 20_000)) > norm.ppf(1 - 0.025 / 4) * 0.05

    assert np.mean(is_detected) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("n_comparisons", "fewest"), [(1, 6), (2, 7), (10, 9)])
def test_planned_relations_allow_sign_flip_significance_after_holm(n_comparisons, fewest):
    # One side leads in every relation: p = 2 / 2^n, times the number of comparisons.
    assert fewest_relations(n_comparisons) == fewest
    assert relations_to_tell_apart(0.9, 0.01, n_comparisons) == fewest


@pytest.mark.parametrize(("n", "population", "statements"), [(20, 0, 80), (40, 40, 40), (20, 40, 32), (10, 1000, 39)])
def test_halving_uncertainty_never_exceeds_population(n, population, statements):
    # 20 of 40: 1 / 20 - 1 / 40 is four times 1 / 32 - 1 / 40.
    assert statements_to_shrink(n, population, 0.5) == statements
