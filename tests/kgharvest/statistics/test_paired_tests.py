import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kgharvest.statistics.paired_tests import (
    NONE_DIFFERS,
    ONE_RELATION,
    TOO_ALIKE,
    bootstrap_t_interval,
    equivalence_over_relations,
    holm,
    mcnemar_p,
    paired_difference,
    sign_flip_p,
    smallest_p,
)

# Darwin's maize: height of 15 crossed plants minus that of their self-fertilised partners, in eighths of an inch.
# Fisher (1935), The Design of Experiments, sections 17 and 21.
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], dtype=float)

shares = st.integers(-100, 100).map(lambda percent: percent / 100)
differences = st.lists(shares, min_size=1, max_size=10).map(np.array)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- sign flips --------------------------------------------------------------------------------------------------------


def test_sign_flips_of_fisher():
    # 863 of the 32,768 patterns reach the observed sum on its side, and as many on the other.
    assert sign_flip_p(DARWIN, rng()) == pytest.approx(2 * 863 / 32_768, abs=1e-12)


@given(st.lists(st.integers(-100, 100), min_size=2, max_size=10).map(np.array))
def test_sign_flips_are_those_of_scipy(percents):
    # In whole numbers: scipy does not see that sums of shares are equal when they differ by rounding.
    expected = stats.permutation_test((percents,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue

    assert sign_flip_p(percents / 100, rng()) == pytest.approx(expected, abs=1e-12)


@given(differences)
def test_swapping_the_sides_turns_the_sign_and_keeps_p(values):
    first, swapped = paired_difference(values, rng()), paired_difference(-values, rng())

    assert swapped.difference == -first.difference
    assert swapped.p == first.p


@given(differences, st.randoms(use_true_random=False))
def test_the_order_of_relations_is_of_no_matter(values, random):
    shuffled = values.tolist()
    random.shuffle(shuffled)

    assert sign_flip_p(np.array(shuffled), rng()) == sign_flip_p(values, rng())


def test_sums_that_are_equal_on_paper_count_as_equal():
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point. By hand: every pattern has a sum of at least 0 in size.
    assert sign_flip_p(np.array([0.1, 0.2, -0.3]), rng()) == 1


def test_no_difference_at_all_gives_a_p_of_one():
    assert sign_flip_p(np.zeros(5), rng()) == 1


@pytest.mark.parametrize("n", [1, 2, 5, 14, 20])
def test_the_smallest_p_is_that_of_a_side_always_ahead(n):
    assert sign_flip_p(np.full(n, 0.1), rng()) == smallest_p(n) == 2 / 2**n


def test_random_patterns_come_near_to_all_patterns():
    # A zero has no sign: with six of them the 21 differences have the exact p of the other 15.
    assert sign_flip_p(np.concatenate([DARWIN, np.zeros(6)]), rng()) == pytest.approx(2 * 863 / 32_768, abs=0.007)


def test_p_of_random_patterns_is_never_zero():
    assert sign_flip_p(np.full(100, 0.1), rng()) == 1 / 10_000


def test_twenty_relations_are_exact_in_a_moment():
    begin = time.perf_counter()
    sign_flip_p(rng().normal(size=20), rng())

    assert time.perf_counter() - begin < 2  # 0.03 s on an idle core


# -- interval ----------------------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_a_plain_bootstrap_t():
    plain = rng(1)
    resamples = [plain.choice(DARWIN, 15) for _ in range(4000)]
    distances = [(resample.mean() - DARWIN.mean()) / (resample.std() / np.sqrt(15)) for resample in resamples]
    values = DARWIN / 100
    standard_error = values.std() / np.sqrt(15)
    high, low = values.mean() - np.quantile(distances, [0.025, 0.975]) * standard_error

    assert bootstrap_t_interval(values, rng())[:2] == pytest.approx((low, high), abs=0.03)


def test_swapping_the_sides_mirrors_the_interval():
    low, high, _ = bootstrap_t_interval(DARWIN / 100, rng())

    assert bootstrap_t_interval(-DARWIN / 100, rng())[:2] == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize(("n_relations", "spread"), [(5, 0.15), (14, 0.15), (30, 0.4)])
def test_the_interval_covers_the_true_difference(n_relations, spread):
    random, n_covered = rng(7), 0
    for _ in range(400):
        values = random.normal(0.1, spread, n_relations).clip(-1, 1)
        low, high, _ = bootstrap_t_interval(values, random)
        n_covered += low <= 0.1 <= high

    assert 0.91 <= n_covered / 400 <= 0.98


def test_one_relation_has_no_interval():
    assert paired_difference(np.array([0.3]), rng())[:6] == (1, 0.3, None, None, 1, ONE_RELATION)


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [0.3, -0.1], [0.2] * 9 + [0.3]], ids=["same", "two", "but one"])
def test_differences_too_few_or_alike_have_no_interval(values):
    assert bootstrap_t_interval(np.array(values), rng()) == (None, None, TOO_ALIKE)


def test_where_no_relation_differs_that_is_said():
    assert paired_difference(np.zeros(3), rng())[:6] == (3, 0.0, None, None, 1.0, NONE_DIFFERS)


def test_the_interval_stays_within_what_is_possible():
    assert bootstrap_t_interval(np.array([1, 0.9, -0.9, 1, -1]), rng())[:2] == (-1, 1)


# -- McNemar -----------------------------------------------------------------------------------------------------------


def test_mcnemar_of_approval_ratings():
    # Agresti (1990), Categorical Data Analysis, p. 350: 150 and 86 changed their minds; exact p by R's exact2x2.
    assert mcnemar_p(150, 86) == pytest.approx(3.716e-05, abs=5e-9)


@given(st.integers(0, 500), st.integers(1, 500))
def test_mcnemar_is_the_binomial_test_of_scipy(n_only_a, n_only_b):
    expected = stats.binomtest(n_only_a, n_only_a + n_only_b).pvalue

    assert mcnemar_p(n_only_a, n_only_b) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(0, 500), st.integers(0, 500))
def test_mcnemar_is_the_same_from_both_sides(n_only_a, n_only_b):
    assert mcnemar_p(n_only_a, n_only_b) == mcnemar_p(n_only_b, n_only_a)


def test_mcnemar_of_many_statements():
    assert mcnemar_p(50_000, 49_000) == pytest.approx(stats.binomtest(50_000, 99_000).pvalue, rel=1e-6)


def test_mcnemar_without_a_discordant_statement_is_not_defined():
    assert mcnemar_p(0, 0) is None


# -- Holm --------------------------------------------------------------------------------------------------------------


def test_holm_by_hand():
    # Four p values; in their order .005 * 4, .01 * 3, .03 * 2, and .04 * 1, which may not fall below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_never_exceeds_one():
    assert holm([0.9, 0.6]) == [1, 1]


def test_holm_of_one_is_itself_and_of_none_is_none():
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_rejects_what_the_stepwise_rule_rejects(p_values):
    # The rule as Holm (1979) states it: go up from the smallest, stop at the first above level / (those left).
    rejected = set()
    for n_done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - n_done) > 0.05:
            break
        rejected.add(index)

    assert {index for index, adjusted in enumerate(holm(p_values)) if adjusted <= 0.05} == rejected


def test_what_floating_point_leaves_over_is_no_difference():
    differences = np.array([0.1, 0.2, -0.3])

    assert differences.mean() != 0
    assert paired_difference(differences, np.random.default_rng(0)).difference == 0.0


def test_an_interval_three_times_as_wide_as_students_is_students():
    # Two differ: resamples of the others and nearly one value have next to no spread of their own.
    differences = np.array([0.01, 0.01, 0.012, 0.011, 0.01, 0.4, 0.35])
    mean, standard_error = differences.mean(), differences.std(ddof=1) / np.sqrt(7)

    low, high, reason = bootstrap_t_interval(differences, rng())

    assert (low, high) == pytest.approx((mean - 2.4469 * standard_error, mean + 2.4469 * standard_error), abs=1e-4)
    assert reason is None


def test_equivalence_over_relations_is_two_one_sided_t_tests():
    differences = np.array([0.02, -0.01, 0.03, 0.0, 0.01, 0.02, -0.02])

    equivalence = equivalence_over_relations(differences, 0.05)

    assert equivalence.p == pytest.approx(
        scipy.stats.ttest_1samp(differences, 0.05, alternative="less").pvalue, abs=1e-9
    )
    at_smallest = equivalence_over_relations(differences, equivalence.smallest_margin)
    assert at_smallest.p == pytest.approx(0.05)


def test_equivalence_is_not_defined_where_no_relation_differs_from_another():
    assert equivalence_over_relations(np.zeros(7), 0.05) == (0.05, None, None)
