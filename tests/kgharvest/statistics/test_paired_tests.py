import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kgharvest.statistics.paired_tests import (
    ALL_ALIKE,
    FEW_RELATIONS,
    NONE_DIFFERS,
    ONE_RELATION,
    TOO_ALIKE,
    bootstrap_t_interval,
    equivalence_over_relations,
    holm,
    interval_for_similar,
    mcnemar_p,
    paired_difference,
    sign_flip_p,
    smallest_p,
)
from kgharvest.statistics.rates import population_rate

# Darwin's maize: height of 15 crossed plants minus that of their self-fertilised partners, in eighths of an inch.
# Fisher (1935), The Design of Experiments, sections 17 and 21.
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], dtype=float)

shares = st.integers(-100, 100).map(lambda percent: percent / 100)
differences = st.lists(shares, min_size=1, max_size=10).map(np.array)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# Sign-flip test


def test_sign_flip_p_matches_fishers_darwin_example():
    # 863 of the 32,768 sign patterns reach the observed sum in each direction.
    assert sign_flip_p(DARWIN, rng()) == pytest.approx(2 * 863 / 32_768, abs=1e-12)


@given(st.lists(st.integers(-100, 100), min_size=2, max_size=10).map(np.array))
def test_sign_flip_p_matches_scipy(percents):
    # Whole numbers, because SciPy does not treat sums as equal if they differ only by rounding.
    expected = stats.permutation_test((percents,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue

    assert sign_flip_p(percents / 100, rng()) == pytest.approx(expected, abs=1e-12)


@given(differences)
def test_swapping_sides_negates_difference_and_keeps_p(values):
    first, swapped = paired_difference(values, rng()), paired_difference(-values, rng())

    assert swapped.difference == -first.difference
    assert swapped.p == first.p


@given(differences, st.randoms(use_true_random=False))
def test_sign_flip_p_ignores_relation_order(values, random):
    shuffled = values.tolist()
    random.shuffle(shuffled)

    assert sign_flip_p(np.array(shuffled), rng()) == sign_flip_p(values, rng())


def test_sums_equal_up_to_rounding_count_as_equal():
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point. Without rounding, every pattern has a sum of absolute value >= 0.
    assert sign_flip_p(np.array([0.1, 0.2, -0.3]), rng()) == 1


def test_zero_differences_give_p_of_one():
    assert sign_flip_p(np.zeros(5), rng()) == 1


@pytest.mark.parametrize("n", [1, 2, 5, 14, 20])
def test_smallest_p_is_reached_if_one_side_always_leads(n):
    assert sign_flip_p(np.full(n, 0.1), rng()) == smallest_p(n) == 2 / 2**n


def test_random_patterns_approximate_exact_p():
    # Zeros have no sign: adding six of them keeps the exact p of the other 15 differences.
    assert sign_flip_p(np.concatenate([DARWIN, np.zeros(6)]), rng()) == pytest.approx(2 * 863 / 32_768, abs=0.007)


def test_sampled_p_is_never_zero():
    assert sign_flip_p(np.full(100, 0.1), rng()) == 1 / 10_000


def test_exact_p_of_twenty_relations_is_fast():
    begin = time.perf_counter()
    sign_flip_p(rng().normal(size=20), rng())

    assert time.perf_counter() - begin < 2  # 0.03 s on an idle core


# Interval


def test_interval_matches_plain_bootstrap_t():
    plain = rng(1)
    resamples = [plain.choice(DARWIN, 15) for _ in range(4000)]
    distances = [(resample.mean() - DARWIN.mean()) / (resample.std() / np.sqrt(15)) for resample in resamples]
    values = DARWIN / 100
    standard_error = values.std() / np.sqrt(15)
    high, low = values.mean() - np.quantile(distances, [0.025, 0.975]) * standard_error

    assert bootstrap_t_interval(values, rng())[:2] == pytest.approx((low, high), abs=0.03)


def test_swapping_sides_mirrors_interval():
    low, high, _ = bootstrap_t_interval(DARWIN / 100, rng())

    assert bootstrap_t_interval(-DARWIN / 100, rng())[:2] == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize(("n_relations", "spread"), [(5, 0.15), (14, 0.15), (30, 0.4)])
def test_interval_covers_true_difference(n_relations, spread):
    random, n_covered = rng(7), 0
    for _ in range(400):
        values = random.normal(0.1, spread, n_relations).clip(-1, 1)
        low, high, _ = bootstrap_t_interval(values, random)
        n_covered += low <= 0.1 <= high

    assert 0.91 <= n_covered / 400 <= 0.98


def test_one_relation_has_no_interval():
    assert paired_difference(np.array([0.3]), rng())[:6] == (1, 0.3, None, None, 1, ONE_RELATION)


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [0.3, -0.1], [0.2] * 9 + [0.3]], ids=["same", "two", "but one"])
def test_few_or_similar_differences_have_no_interval(values):
    assert bootstrap_t_interval(np.array(values), rng()) == (None, None, TOO_ALIKE)


def test_zero_differences_report_none_differs():
    assert paired_difference(np.zeros(3), rng())[:6] == (3, 0.0, None, None, 1.0, NONE_DIFFERS)


def test_interval_stays_within_minus_one_and_one():
    assert bootstrap_t_interval(np.array([1, 0.9, -0.9, 1, -1]), rng())[:2] == (-1, 1)


# McNemar test


def test_mcnemar_p_matches_agrestis_approval_ratings():
    # Agresti (1990), Categorical Data Analysis, p. 350: 150 and 86 changed their minds; exact p by R's exact2x2.
    assert mcnemar_p(150, 86) == pytest.approx(3.716e-05, abs=5e-9)


@given(st.integers(0, 500), st.integers(1, 500))
def test_mcnemar_p_matches_scipy_binomial_test(n_only_a, n_only_b):
    expected = stats.binomtest(n_only_a, n_only_a + n_only_b).pvalue

    assert mcnemar_p(n_only_a, n_only_b) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(0, 500), st.integers(0, 500))
def test_mcnemar_p_is_symmetric(n_only_a, n_only_b):
    assert mcnemar_p(n_only_a, n_only_b) == mcnemar_p(n_only_b, n_only_a)


def test_mcnemar_p_of_many_statements_matches_scipy():
    assert mcnemar_p(50_000, 49_000) == pytest.approx(stats.binomtest(50_000, 99_000).pvalue, rel=1e-6)


def test_mcnemar_p_is_undefined_without_discordant_statements():
    assert mcnemar_p(0, 0) is None


# Holm adjustment


def test_holm_matches_hand_computation():
    # Sorted: .005 * 4, .01 * 3, .03 * 2, and .04 * 1, raised to the previous value because Holm is monotone.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_never_exceeds_one():
    assert holm([0.9, 0.6]) == [1, 1]


def test_holm_keeps_single_p_and_accepts_empty_list():
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_rejections_match_stepwise_rule(p_values):
    # Holm (1979): go up from the smallest p and stop at the first above level / (number of remaining p values).
    rejected = set()
    for n_done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - n_done) > 0.05:
            break
        rejected.add(index)

    assert {index for index, adjusted in enumerate(holm(p_values)) if adjusted <= 0.05} == rejected


def test_rounding_error_is_not_a_difference():
    differences = np.array([0.1, 0.2, -0.3])

    assert differences.mean() != 0
    assert paired_difference(differences, np.random.default_rng(0)).difference == 0.0


def test_interval_over_three_times_students_width_becomes_students():
    # Two values are outliers: resamples that contain few of them have almost no spread.
    differences = np.array([0.01, 0.01, 0.012, 0.011, 0.01, 0.4, 0.35])
    mean, standard_error = differences.mean(), differences.std(ddof=1) / np.sqrt(7)

    low, high, reason = bootstrap_t_interval(differences, rng())

    assert (low, high) == pytest.approx((mean - 2.4469 * standard_error, mean + 2.4469 * standard_error), abs=1e-4)
    assert reason is None


def test_equivalence_over_relations_matches_two_one_sided_t_tests():
    differences = np.array([0.02, -0.01, 0.03, 0.0, 0.01, 0.02, -0.02])

    equivalence = equivalence_over_relations(differences, 0.05)

    assert scipy.stats.ttest_1samp(
        differences, equivalence.smallest_margin, alternative="less"
    ).pvalue == pytest.approx(0.05)


def test_equivalence_is_undefined_if_relations_do_not_vary():
    assert equivalence_over_relations(np.zeros(7), 0.05) == (0.05, None)


def test_interval_for_similar_relations_is_a_bootstrap_t_interval_of_shares():
    shares = np.array([0.95, 0.9, 1.0, 0.85, 0.95, 0.2])

    low, high, reason = interval_for_similar(shares, np.random.default_rng(3))

    assert (low, high) == (0, bootstrap_t_interval(shares, np.random.default_rng(3))[1])
    assert reason is None


@pytest.mark.parametrize(("shares", "reason"), [([0.9, 0.8, 0.7, 0.9, 0.6], FEW_RELATIONS), ([1.0] * 6, ALL_ALIKE)])
def test_interval_for_similar_relations_has_a_reason_if_undefined(shares, reason):
    assert interval_for_similar(np.array(shares), np.random.default_rng(0)) == (None, None, reason)


@pytest.mark.parametrize("n_relations", [3, pytest.param(5, marks=pytest.mark.exhaustive)])
def test_headline_covers_these_relations_in_a_skewed_world(n_relations):
    """Of the relations of this world, 85 % have an accuracy of .95 and 15 % of .3. 100 samples, 20 of 200 tuples each.

    Student's t over relations covers the mean of the world in .75 and .62 of such samples.
    """
    rng, n_runs, n_covered = np.random.default_rng(1), 100, 0
    sizes = [20] * n_relations, [200] * n_relations, [1 / n_relations] * n_relations
    for _ in range(n_runs):
        n_true = rng.binomial(200, np.where(rng.random(n_relations) < 0.85, 0.95, 0.3))
        average = population_rate(rng.hypergeometric(n_true, 200 - n_true, 20), *sizes)
        n_covered += average.low <= n_true.mean() / 200 <= average.high

    assert n_covered / n_runs >= 0.925
