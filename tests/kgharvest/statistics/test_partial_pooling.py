"""Partially pooled rates, compared with sums over the grid, hand-computed limits, and simulations."""

from __future__ import annotations

from math import lgamma

import numpy as np
import pytest
from scipy.stats import betabinom

from kgharvest.statistics.partial_pooling import (
    DISTRIBUTIONS,
    FEW_RATES,
    SimpleSample,
    beta_grid,
    effective_sample,
    pooled_rates,
)

UNKNOWN = np.zeros(1, dtype=np.int64)


def pooled(hits: list[int], n: int, population: float = 0):
    return pooled_rates(
        [count / n for count in hits], [SimpleSample(n, population)] * len(hits), np.random.default_rng(0)
    )


def test_pooled_mean_matches_beta_binomial_model():
    hits, n = [9, 7, 10, 4], 10
    a, b = DISTRIBUTIONS
    likelihood = np.prod([betabinom.pmf(count, n, a, b) for count in hits], axis=0)

    expected = [(likelihood * (a + count) / (a + b + n)).sum() / likelihood.sum() for count in hits]

    assert [rate.value for rate in pooled(hits, n)] == pytest.approx(expected, abs=0.01)


def test_limits_account_for_unjudged_tuples():
    """The unjudged part of a population of 20 is beta-binomial. Its quantiles, mixed over the grid, are the limits."""
    hits, n, population = [9, 7, 10, 8], 10, 20
    a, b = DISTRIBUTIONS
    weights = np.prod([betabinom.pmf(count, n, a, b) for count in hits], axis=0)
    rest = np.arange(population - n + 1)

    cumulated = (
        weights @ betabinom.pmf(rest, population - n, (a + 9)[:, None], (b + 1)[:, None]) / weights.sum()
    ).cumsum()
    low, high = (rest[np.searchsorted(cumulated, share)] for share in (0.025, 0.975))

    assert pooled(hits, n, population)[0][1:3] == pytest.approx(((9 + low) / 20, (9 + high) / 20))


def test_a_census_keeps_its_share():
    census, other, _ = pooled_rates(
        [0.3, 0.9, 0.8], [SimpleSample(10, 10), SimpleSample(10, 100), SimpleSample(10, 100)], np.random.default_rng(0)
    )

    assert census[:3] == pytest.approx((0.3, 0.3, 0.3))
    assert other.low < 0.9 < other.high


def test_pooling_shrinks_more_with_fewer_judgments():
    alike, unlike = pooled([9, 8, 9, 6, 9, 8], 10), pooled([90, 80, 90, 60, 90, 80], 100)

    assert 0.6 + 0.05 < alike[3].value < 0.85
    assert unlike[3].value == pytest.approx(0.6, abs=0.04)


def test_two_relations_are_too_few_for_pooling():
    assert [rate.reason for rate in pooled([9, 8], 10)] == [FEW_RATES] * 2


def test_simple_cell_is_its_own_effective_sample():
    sample = effective_sample(np.array([10]), np.array([200]), np.ones(1))

    assert sample == pytest.approx((10, 200))
    assert effective_sample(np.array([10]), UNKNOWN, np.ones(1)) == (10, 0)


def test_effective_sample_has_same_variance_as_strata():
    """10 of 100 and 10 of 900: .1^2 / 10 + .9^2 / 10 = .082, so 1 / .082 draws before the finite correction."""
    n, population = effective_sample(np.array([10, 10]), np.array([100, 900]), np.array([0.1, 0.9]))

    left = 0.01 * 0.9 / 10 + 0.81 * (890 / 900) / 10
    assert n == pytest.approx(1 / 0.082)
    assert (1 - n / population) / n == pytest.approx(left)


def test_empty_stratum_has_no_effective_sample():
    assert effective_sample(np.array([10, 0]), np.array([100, 900]), np.array([0.1, 0.9])) is None


def test_shapes_are_drawn_by_likelihood():
    grid, rng = beta_grid(np.array([0.2, 0.8]), np.array([2.0, 20.0])), np.random.default_rng(0)
    rates = np.repeat(np.array([[0.7], [0.85], [0.6]]), 20_000, axis=1)
    likelihood = np.prod(
        [rate ** (grid.a - 1) * (1 - rate) ** (grid.b - 1) / np.exp(log_beta(grid)) for rate in rates[:, 0]], axis=0
    )

    a, b = grid.draw(rates, rng)

    for shape_a, shape_b, share in zip(grid.a, grid.b, likelihood / likelihood.sum(), strict=True):
        assert ((a == shape_a) & (b == shape_b)).mean() == pytest.approx(share, abs=0.01)


def log_beta(grid):
    return np.array([lgamma(a) + lgamma(b) - lgamma(a + b) for a, b in zip(grid.a, grid.b, strict=True)])


@pytest.mark.parametrize(
    ("mean", "precision", "n", "population"), [(0.8, 10, 10, 200), (0.9, 500, 10, 50), (0.5, 3, 20, 0)]
)
def test_intervals_cover_relation_rates_on_average(mean, precision, n, population):
    rng = np.random.default_rng(0)
    is_covered = []
    for _ in range(40):
        rates = rng.beta(mean * precision, (1 - mean) * precision, 12)
        if population:
            n_true = rng.binomial(population, rates)
            rates, hits = n_true / population, rng.hypergeometric(n_true, population - n_true, n)
        else:
            hits = rng.binomial(n, rates)
        limits = pooled_rates(hits / n, [SimpleSample(n, population)] * 12, rng)
        is_covered += [rate.low - 1e-9 <= truth <= rate.high + 1e-9 for rate, truth in zip(limits, rates, strict=True)]

    assert np.mean(is_covered) > 0.93
