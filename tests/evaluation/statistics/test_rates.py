import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from evaluation.statistics.rates import (
    difference_interval,
    macro_average,
    macro_interval,
    mean_of_these,
    rate,
    stratified_rate,
    wilson_interval,
)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_is_that_of_scipy(counts):
    n_hits, n = counts

    expected = binomtest(n_hits, n).proportion_ci(method="wilson")

    assert wilson_interval(n_hits, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_wilson_interval_of_newcombe():
    # Newcombe (1998), Statistics in Medicine 17, 857-872, Table I, method 3: 81 of 263.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_the_interval_of_no_hit_starts_at_zero():
    low, high = wilson_interval(0, 20)

    assert low == 0
    assert high == pytest.approx(0.1611, abs=5e-5)  # Newcombe (1998), Table I, method 3: 0 of 20


def test_the_interval_of_all_hits_ends_at_one():
    assert wilson_interval(7, 7)[1] == 1


def test_a_rate_of_nothing_is_not_known():
    assert rate(0, 0)[:3] == (None, None, None)


def test_the_macro_average_weighs_relations_alike_and_leaves_out_the_unknown():
    assert macro_average([1.0, 0.5, None]) == pytest.approx(0.75)


def test_the_macro_average_of_nothing_is_not_known():
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
def test_the_interval_of_a_difference_is_newcombes(a, b, low, high):
    assert difference_interval(rate(*a), rate(*b)) == pytest.approx((low, high), abs=5e-5)


def test_relations_like_these_have_students_interval():
    values = [0.2, 0.5, 0.6, 0.9, 0.7]

    expected = ttest_1samp(values, 0).confidence_interval()

    assert macro_interval(values) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_one_relation_says_nothing_about_others():
    assert macro_interval([0.5]) == (None, None)


def test_the_mean_of_these_relations_is_as_sure_as_their_samples():
    few, many = (mean_of_these([0.5, 0.7, 0.6], [n] * 3) for n in (20, 2000))

    assert few.value == pytest.approx(0.6)
    assert few.high - few.low > 5 * (many.high - many.low)
    # By hand: variance (.25 + .21 + .24) / 2000 / 9, twice 1.96 standard errors wide.
    assert many.high - many.low == pytest.approx(2 * 1.96 * (0.70 / 2000 / 9) ** 0.5, rel=0.01)


def test_the_mean_of_these_relations_is_held_by_its_interval():
    rng = np.random.default_rng(0)
    truths, n = np.array([0.98, 0.9, 0.7, 0.5, 0.95, 0.3]), 15
    covered = []
    for _ in range(1500):
        mean = mean_of_these(rng.binomial(n, truths) / n, [n] * len(truths))
        covered.append(mean.low <= truths.mean() <= mean.high)

    assert 0.93 <= np.mean(covered) <= 0.98


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
