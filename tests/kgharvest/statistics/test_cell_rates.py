"""Rate estimator of harvests, compared with brute force, enumeration, and hand computation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import binom, hypergeom, multinomial

from kgharvest.statistics.rates import (
    EMPTY_STRATUM,
    NOTHING_COUNTED,
    UNKNOWN_POPULATION,
    likeliest_shares,
    population_rate,
    simple_interval,
    uses_thin_rule,
    wilson_interval_of_share,
)


def acceptability(probabilities: np.ndarray, observed: int) -> float:
    """Return Blaker's (2000) acceptability: the smaller tail plus the largest opposite tail that is no likelier."""
    below, above = probabilities[: observed + 1].sum(), probabilities[observed:].sum()
    n = len(probabilities)
    if below <= above:
        tails = [probabilities[x:].sum() for x in range(n)]
    else:
        tails = [probabilities[: x + 1].sum() for x in range(n)]
    smaller = min(below, above)
    return min(1.0, smaller + max((tail for tail in tails if tail <= smaller + 1e-9), default=0.0))


@pytest.mark.parametrize(("n", "population"), [(1, 5), (5, 12), (10, 50), (30, 40), (20, 100)])
def test_simple_interval_contains_values_accepted_by_blaker(n, population):
    for hits in range(n + 1):
        accepted = [
            in_all
            for in_all in range(population + 1)
            if acceptability(hypergeom.pmf(np.arange(n + 1), population, in_all, n), hits) > 0.05
        ]

        expected = (min(accepted) / population, max(accepted) / population)
        assert simple_interval(hits, n, population) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("hits", [0, 1, 5, 9, 10])
def test_interval_is_binomial_if_population_is_unknown(hits):
    shares = np.linspace(0, 1, 2001)
    accepted = [share for share in shares if acceptability(binom.pmf(np.arange(11), 10, share), hits) > 0.05]

    assert simple_interval(hits, 10) == pytest.approx((min(accepted), max(accepted)), abs=1e-3)


@pytest.mark.parametrize(("n", "population"), [(10, 20), (10, 1000), (20, 100), (50, 200), (30, 40)])
def test_simple_interval_covers_every_population_at_95_percent(n, population):
    limits = np.array([simple_interval(hits, n, population) for hits in range(n + 1)])
    for in_all in range(population + 1):
        share = in_all / population
        is_covered = (limits[:, 0] <= share + 1e-12) & (share - 1e-12 <= limits[:, 1])

        assert hypergeom.pmf(np.arange(n + 1), population, in_all, n)[is_covered].sum() >= 0.95


def coverage(population: tuple[int, ...], n: tuple[int, ...], hits_in_all: tuple[int, ...]) -> float:
    """Return the coverage of the interval of a stratified sample by enumerating all samples."""
    truth, covered, total = sum(hits_in_all) / sum(population), 0.0, 0.0
    for hits in itertools.product(*(range(drawn + 1) for drawn in n)):
        likelihood = np.prod(list(map(hypergeom.pmf, hits, population, hits_in_all, n)))
        if likelihood > 1e-5:
            rate = population_rate(hits, n, population)
            total += likelihood
            covered += likelihood * (rate.low - 1e-9 <= truth <= rate.high + 1e-9)
    return float(covered / total)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "n", "hits_in_all"),
    [
        ((100, 900), (10, 10), (95, 720)),  # coverage of these three with effective sizes: .86, .75, .41
        ((10, 90, 900), (10, 5, 5), (9, 81, 720)),
        ((100, 900), (30, 5), (95, 810)),
        ((500, 500), (5, 5), (490, 490)),
        ((50, 950), (10, 10), (50, 922)),
    ],
)
def test_stratified_interval_covers_truth_for_any_allocation(population, n, hits_in_all):
    assert coverage(population, n, hits_in_all) >= 0.945


@pytest.mark.parametrize(("n_strata", "n", "population"), [(20, 2, 25), (20, 3, 25)])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.96])
def test_interval_of_many_thin_strata_covers_truth(n_strata, n, population, share):
    """Enumerate how many strata have each number of hits. The strata are alike."""
    n_true = round(population * share)
    chances, covered, total = hypergeom.pmf(np.arange(n + 1), population, n_true, n), 0.0, 0.0
    for hits in itertools.combinations_with_replacement(range(n + 1), n_strata):
        counts = np.bincount(hits, minlength=n + 1)
        likelihood = multinomial.pmf(counts, n_strata, chances)
        if likelihood > 1e-6:
            rate = population_rate(hits, [n] * n_strata, [population] * n_strata)
            total += likelihood
            covered += likelihood * (rate.low - 1e-9 <= n_true / population <= rate.high + 1e-9)
    assert covered / total >= 0.925


def test_interval_of_thin_strata_is_wilsons_with_effective_size():
    """Strata of two draws, each with one hit. Their variance is that of 16 draws from a finite population."""
    low, high = population_rate([1] * 8, [2] * 8, [25] * 8)[1:3]

    assert (low, high) == pytest.approx(wilson_interval_of_share(0.5, 16 * 24 / 23, stdtrit(8, 0.975)))
    misses = population_rate([2] + [1] * 7, [2] * 8, [25] * 8)
    hits = population_rate([0] + [1] * 7, [2] * 8, [25] * 8)
    assert misses[:3] == pytest.approx((1 - hits.value, 1 - hits.high, 1 - hits.low))


def test_dominant_stratum_is_not_thin():
    n, population = [10] + [4] * 10, [5000] + [50] * 10
    token = uses_thin_rule.set(False)
    older = population_rate([9] + [3] * 10, n, population)
    uses_thin_rule.reset(token)

    assert population_rate([9] + [3] * 10, n, population) == older


def test_sparse_stratum_keeps_interval_wide():
    rate = population_rate([28, 5], [30, 5], [100, 900])

    assert rate.value == pytest.approx(0.1 * 28 / 30 + 0.9)
    assert rate.low < 0.65  # five hits of five: half of the 900 may be misses


def test_census_interval_has_zero_width():
    value, low, high, reason = population_rate([3, 7], [4, 8], [4, 8])

    assert value == low == high == pytest.approx(10 / 12)
    assert reason is None


def test_fully_judged_stratum_only_shifts_interval():
    low, high = simple_interval(9, 10, 100)

    rate = population_rate([9, 40], [10, 50], [100, 50])

    assert rate[:3] == pytest.approx((2 / 3 * 0.9 + 1 / 3 * 0.8, 2 / 3 * low + 1 / 3 * 0.8, 2 / 3 * high + 1 / 3 * 0.8))


def test_weights_average_rates_over_cells():
    """Two cells of 1,000 and 10 tuples have equal weight. Each has one stratum."""
    rate = population_rate([8, 5], [10, 10], [1000, 10], [0.5, 0.5])

    low, high = simple_interval(8, 10, 1000)
    assert rate[:3] == pytest.approx((0.65, low / 2 + 0.25, high / 2 + 0.25))


def test_undefined_rate_has_reason():
    assert population_rate([0], [0], [10]).reason == NOTHING_COUNTED
    assert population_rate([1, 0], [2, 0], [10, 10]).reason == EMPTY_STRATUM
    assert population_rate([1, 1], [2, 2], [10, 0]).reason == UNKNOWN_POPULATION


@given(st.data())
def test_misses_mirror_hits_and_limits_enclose_estimate(data):
    n_strata = data.draw(st.integers(1, 3))
    population = [data.draw(st.integers(2, 200)) for _ in range(n_strata)]
    n = [data.draw(st.integers(1, min(size, 15))) for size in population]
    hits = [data.draw(st.integers(0, drawn)) for drawn in n]

    rate = population_rate(hits, n, population)
    misses = population_rate([drawn - hit for hit, drawn in zip(hits, n, strict=True)], n, population)

    assert 0 <= rate.low <= rate.value + 1e-12
    assert rate.value - 1e-12 <= rate.high <= 1
    assert misses[:3] == pytest.approx((1 - rate.value, 1 - rate.high, 1 - rate.low), abs=1e-6)


def test_likeliest_shares_have_target_mean_and_are_optimal():
    hits, n, population = np.array([8, 3, 5]), np.array([10, 5, 5]), np.array([100, 200, 700])
    weights = population / population.sum()
    information = n * (population - 1) / (population - n)

    def log_likelihood(shares: np.ndarray) -> float:
        return float((information * (hits / n * np.log(shares) + (1 - hits / n) * np.log1p(-shares))).sum())

    shares = likeliest_shares(0.6, hits, n, population, weights)

    assert weights @ shares == pytest.approx(0.6, abs=1e-9)
    for first, second in itertools.permutations(range(3), 2):
        moved = shares.copy()
        moved[first] += 1e-4 / weights[first]
        moved[second] -= 1e-4 / weights[second]
        assert log_likelihood(moved) < log_likelihood(shares)


def test_fractional_hits_and_draws_are_accepted():
    rate = population_rate([7.7], [9.6], [100])

    assert rate.value == pytest.approx(7.7 / 9.6)
    assert rate.low == simple_interval(7, 9, 100)[0]  # 7.2 hits in 9 draws: 7 for the lower, 8 for the upper limit
    assert rate.high == simple_interval(8, 9, 100)[1]


def test_interval_of_many_relations_matches_standard_error():
    """14 relations, 48 of 400 judged, .5 true. 1.96 standard errors: .5 / sqrt(48 * 14) * 1.96 * sqrt(352 / 399)."""
    hits = np.repeat([20.0, 22.0, 24.0, 24.0, 26.0, 28.0, 24.0], 2)

    rate = population_rate(hits, np.full(14, 48), np.full(14, 400), np.full(14, 1 / 14))

    assert (rate.high - rate.low) / 2 == pytest.approx(0.0355, abs=0.001)


def test_rounding_errors_do_not_change_limits():
    """Incomplete statements count as fractional hits, and sums of fractions differ in their last bits."""
    n, population = np.array([6, 7]), np.array([20, 30])
    weights = population / population.sum()

    rates = [population_rate([2.5 + bit, 3], n, population, np.add(weights, (bit, -bit))) for bit in (-1e-14, 0, 1e-14)]

    assert rates[0].low == pytest.approx(rates[1].low, abs=1e-12) == pytest.approx(rates[2].low, abs=1e-12)
    assert rates[0].high == pytest.approx(rates[1].high, abs=1e-12) == pytest.approx(rates[2].high, abs=1e-12)
