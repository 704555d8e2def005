"""Agreement intervals from a posterior over judgment patterns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

from kgharvest.statistics.agreement import PRIOR_STATEMENTS, expanded_tail, pattern_interval, possible_patterns


def share_of_true(patterns: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the share of unanimously true statements. Its posterior is a beta distribution."""
    return shares[:, (patterns[:, 1:].sum(axis=1) == 0)].sum(axis=1)


def test_all_patterns_of_two_labels_are_possible():
    patterns, prior = possible_patterns(np.array([[3, 0, 0]]), np.array([20]))

    assert sorted(patterns.tolist()) == [[0, 3, 0], [1, 2, 0], [2, 1, 0], [3, 0, 0]]
    assert prior.tolist() == pytest.approx([PRIOR_STATEMENTS / 4] * 4)


def test_unjudgeable_patterns_are_possible_once_observed():
    patterns, prior = possible_patterns(np.array([[3, 0, 0], [2, 0, 1]]), np.array([19, 1]))

    assert len(patterns) == 10
    assert prior.sum() == pytest.approx(PRIOR_STATEMENTS)


def test_prior_is_split_by_number_of_judgments():
    patterns, prior = possible_patterns(np.array([[3, 0], [1, 1]]), np.array([30, 10]))

    assert prior[patterns.sum(axis=1) == 2].sum() == pytest.approx(PRIOR_STATEMENTS / 4)


def test_many_judgments_allow_only_observed_and_unanimous_patterns():
    patterns, _ = possible_patterns(np.array([[60, 30, 9], [98, 1, 0]]), np.array([1, 1]))

    assert sorted(patterns.tolist()) == [[0, 0, 99], [0, 99, 0], [60, 30, 9], [98, 1, 0], [99, 0, 0]]


def test_limits_are_posterior_quantiles():

    patterns, n_tasks = np.array([[2, 0], [1, 1]]), np.array([15, 5])

    low, high = pattern_interval(share_of_true, patterns, n_tasks, np.random.default_rng(0), 200_000)

    posterior = beta(15 + PRIOR_STATEMENTS / 3, 5 + PRIOR_STATEMENTS * 2 / 3)
    tail = expanded_tail(20)
    assert (low, high) == pytest.approx(posterior.ppf([tail, 1 - tail]), abs=2e-3)


def test_small_sample_quantiles_match_students_t():
    """Student's 97.5 % quantile with 19 degrees of freedom: 2.0930 * sqrt(20 / 19) = 2.1474 normal deviations."""
    assert expanded_tail(20) == pytest.approx(norm.sf(2.1474), abs=1e-5)
    assert expanded_tail(1_000_000) == pytest.approx(0.025, abs=1e-6)


def test_mostly_undefined_coefficient_has_no_interval():
    def undefined(patterns, shares):
        return np.full(len(shares), np.nan)

    assert pattern_interval(undefined, np.array([[2, 0]]), np.array([5]), np.random.default_rng(0), 100) is None
