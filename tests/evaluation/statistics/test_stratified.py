"""Stratified rates by hand, as limits of simple ones, and by how often their intervals hold what is true."""

import numpy as np
import pytest

from evaluation.statistics.rates import stratified_rate, wilson_interval


def rate_of(*strata):
    """strata: hits, draws, population of each."""
    return stratified_rate(*np.array(strata).T)


def test_a_stratum_weighs_as_many_tuples_as_it_holds():
    rate = rate_of((9, 10, 100), (5, 10, 900))

    # By hand: .1 * .9 + .9 * .5; variance .01 * .9 * .09 / 9 + .81 * (890 / 900) * .25 / 9.
    assert rate.value == pytest.approx(0.54)
    assert rate.n_effective == pytest.approx(0.54 * 0.46 / (0.01 * 0.9 * 0.01 + 0.81 * 890 / 900 * 0.25 / 9))


def test_horvitz_and_thompson_give_the_same_estimate():
    rate = rate_of((3, 10, 40), (7, 20, 500), (1, 5, 60))

    inclusion = np.repeat([10 / 40, 20 / 500, 5 / 60], [3, 7, 1])
    assert rate.value == pytest.approx((1 / inclusion).sum() / 600)


def test_one_large_stratum_is_a_simple_sample():
    rate = rate_of((30, 50, 10**9))

    # 49 rather than 50: the variance of a sample is over n - 1.
    assert rate.n_effective == pytest.approx(49)
    assert (rate.low, rate.high) == pytest.approx(wilson_interval(30, 50), abs=0.002)


def test_what_was_judged_as_a_whole_is_known():
    assert rate_of((3, 4, 4), (1, 6, 6))[:3] == pytest.approx((0.4, 0.4, 0.4))


def test_strata_of_hits_only_are_not_certain():
    rate = rate_of((20, 20, 100), (20, 20, 100))

    assert rate.value == rate.high == 1
    assert 0.85 < rate.low < 0.95


def test_a_stratum_without_a_verdict_leaves_the_rate_unknown():
    assert rate_of((3, 4, 10), (0, 0, 10)).value is None
    assert "stratum has no verdict" in rate_of((3, 4, 10), (0, 0, 10)).reason
    assert "No statement" in rate_of((0, 0, 10)).reason


@pytest.mark.parametrize(
    ("population", "n", "accuracies"),
    [
        ([100] * 5, [10] * 5, [0.95, 0.9, 0.8, 0.6, 0.4]),
        ([10, 90, 400], [10, 20, 20], [0.95, 0.8, 0.55]),
        ([20] * 10, [1] * 10, np.linspace(0.9, 0.4, 10)),
        ([50] * 10, [5] * 10, np.linspace(0.98, 0.5, 10)),
    ],
)
def test_intervals_hold_the_accuracy_of_the_harvest(population, n, accuracies):
    rng = np.random.default_rng(1)
    population, n, covered = np.array(population), np.array(n), []
    for _ in range(1500):
        n_true = rng.binomial(population, accuracies)
        rate = stratified_rate(rng.hypergeometric(n_true, population - n_true, n), n, population)
        covered.append(rate.low <= n_true.sum() / population.sum() <= rate.high)

    assert 0.93 <= np.mean(covered) <= 0.975
