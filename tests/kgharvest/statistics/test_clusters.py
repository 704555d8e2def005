"""Clustered samples: inclusion probabilities by enumeration, and design effects by hand and by coverage."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import t

from kgharvest.statistics.clusters import (
    FEWEST_PAIRS,
    design_effects,
    draw_clusters,
    expected_effect,
    parts_of_clusters,
)
from kgharvest.statistics.rates import VerdictSample, population_rate, simple_interval


class Scripted:
    """Generator that returns the given permutations and the given whole number."""

    def __init__(self, orders, start: int) -> None:
        self._orders, self._start = iter(orders), start

    def permutation(self, n: int) -> np.ndarray:
        return np.array(next(self._orders))

    def integers(self, n: int) -> int:
        return self._start


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_share_is_unbiased_over_all_draws(n):
    cluster, is_hit = np.array([0, 0, 1, 2, 2]), np.array([1, 1, 0, 1, 0])
    n_drawn, shares = np.zeros(5), []
    for tuples, clusters, start in product(permutations(range(5)), permutations(range(3)), range(5)):
        drawn = draw_clusters(cluster, n, Scripted([tuples, clusters], start))
        n_drawn[drawn] += 1
        shares.append(is_hit[drawn].mean())

    assert np.mean(shares) == pytest.approx(3 / 5, abs=1e-12)
    assert (n_drawn == len(shares) * n / 5).all()


def test_all_but_two_clusters_are_drawn_as_a_whole():
    rng = np.random.default_rng(3)
    cluster = np.repeat(np.arange(50), rng.integers(1, 6, 50))
    for n in range(1, len(cluster) + 1):
        drawn = draw_clusters(cluster, n, rng)
        sizes = np.bincount(cluster[drawn], minlength=50)

        assert len(set(drawn.tolist())) == n
        assert np.count_nonzero((sizes > 0) & (sizes < np.bincount(cluster))) <= 2


def test_large_clusters_are_divided_into_parts_of_almost_equal_size():
    cluster = np.array([7, 2, 7, 7, 2, 7, 7, 7, 4, 7])  # seven, two, and one tuple

    parts = parts_of_clusters(cluster, 3, np.random.default_rng(1))

    assert sorted(np.bincount(parts[cluster == 7]).tolist(), reverse=True)[:3] == [3, 2, 2]
    assert sorted(np.bincount(parts).tolist()) == [1, 2, 2, 2, 3]
    assert all(len(set(cluster[parts == part])) == 1 for part in range(5))


def test_expected_effect_grows_with_the_intraclass_correlation():
    # In 40 clusters of two, p is 1/2: 30 agree (products 1/4), 10 differ (-1/4). 20/4 / 40 / (1/4) is a half.
    is_hit = np.array([1, 1] * 15 + [0, 0] * 15 + [1, 0] * 10)
    cluster = np.repeat(np.arange(40), 2)

    assert expected_effect(is_hit, cluster, np.array([4, 4])) == pytest.approx(1 + 3 / 2)
    assert expected_effect(is_hit, cluster, np.array([1, 3])) == pytest.approx(1 + (10 / 4 - 1) / 2)
    assert expected_effect(1 - is_hit // 2, np.arange(80), np.array([4])) is None  # no pairs
    n = 2 * (FEWEST_PAIRS - 1)
    assert expected_effect(is_hit[:n], cluster[:n], np.array([4])) is None
    assert expected_effect(np.tile([1, 0], 40), cluster, np.array([4])) == 1  # negative correlation


def effects(is_hit, cluster, stratum=None, n_strata=1, group=None) -> list[float]:
    hits = np.array(is_hit, dtype=bool)
    strata = np.zeros(len(hits), dtype=int) if stratum is None else np.array(stratum)
    return design_effects(hits, strata, np.array(cluster), n_strata, group=group).tolist()


def test_statements_in_separate_clusters_are_a_simple_sample():
    assert effects([1, 0, 1, 1, 0], [0, 1, 2, 3, 4]) == pytest.approx([1])


def test_effect_is_the_variance_between_clusters_with_their_degrees_of_freedom():
    # Residuals from 3/6 add up to 1, -1 and 0: 3/2 (1 + 1 + 0) / 36 instead of 1/4 / 5.
    ratio = (t.ppf(0.975, 2) / t.ppf(0.975, 5)) ** 2

    assert effects([1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 2, 2]) == pytest.approx([3 / 2 * 2 / 36 / (1 / 4 / 5) * ratio])


@pytest.mark.parametrize("hit", [0, 1])
def test_clusters_count_as_one_statement_if_their_variance_is_unknown(hit):
    assert effects([hit] * 6, [0, 0, 0, 1, 1, 2]) == pytest.approx([(9 + 4 + 1) / 6])
    assert effects([hit, 1 - hit, hit], [0, 0, 0]) == pytest.approx([3])


def test_effect_of_a_finite_population_is_that_of_the_tuples_that_are_not_judged():
    is_hit, cluster = np.array([1, 1, 0, 0, 1, 0], dtype=bool), np.array([0, 0, 1, 1, 2, 2])
    stratum = np.zeros(6, dtype=int)
    [infinite] = design_effects(is_hit, stratum, cluster, 1)
    [of_24], [of_6], [unknown] = (
        design_effects(is_hit, stratum, cluster, 1, np.array([float(size)])) for size in (24, 6, 0)
    )

    assert of_24 == pytest.approx(0.25 + 0.75 * infinite)
    assert 1 / (6 / of_24) - 1 / 24 == pytest.approx(infinite * (1 / 6 - 1 / 24))  # effect times 1/n - 1/N
    assert (of_6, unknown) == (1, infinite)
    assert population_rate([3 / of_6], [6 / of_6], [6])[:3] == (0.5, 0.5, 0.5)


def test_strata_have_their_own_clusters_and_effects():
    is_hit, cluster = [1, 0, 1, 1, 1, 0, 0, 1], [0, 1, 2, 3, 0, 0, 1, 1]

    both = effects(is_hit, cluster, [0] * 4 + [1] * 4, 3)

    assert both == pytest.approx([1, *effects(is_hit[4:], cluster[4:]), 1])


def test_intervals_on_the_effective_sample_size_cover_the_share_of_a_clustered_population():
    rng = np.random.default_rng(5)
    n_runs, covered, covered_if_ignored = 300, 0, 0
    cluster = np.repeat(np.arange(40), 5)
    for _ in range(n_runs):
        share_of_cluster = rng.beta(0.8 * 2, 0.2 * 2, 40)  # intraclass correlation 1/3
        is_hit = rng.random(200) < share_of_cluster[cluster]
        [effect] = effects(is_hit, cluster)
        n = 200 / effect
        low, _ = simple_interval(int(np.floor(is_hit.mean() * int(n))), int(n))
        _, high = simple_interval(int(np.ceil(is_hit.mean() * int(n))), int(n))
        covered += low <= 0.8 <= high
        low, high = simple_interval(int(is_hit.sum()), 200)
        covered_if_ignored += low <= 0.8 <= high

    assert covered / n_runs > 0.93
    assert covered_if_ignored / n_runs < 0.85


def test_design_effect_within_groups_counts_errors_that_a_cluster_shares():
    """Half of the statements of each cluster are true, so verdicts alone have no effect; a judge knows two clusters."""
    cluster, is_hit = np.repeat(np.arange(4), 4), np.tile([1, 1, 0, 0], 4)
    group = np.where(cluster < 2, is_hit, 1)  # the label of the judge, which calls unknown statements true

    [alone], [within] = (effects(is_hit, cluster, group=of_judge) for of_judge in (np.zeros(16, dtype=int), group))

    # 12 statements are called true, 8 of them rightly. Residuals of a known cluster add up to 2/3, others to -2/3.
    between = 4 / 3 * 4 * (2 / 3) ** 2 / 16**2
    simple = (8 * (1 / 3) ** 2 + 4 * (2 / 3) ** 2) / (16 * 15)
    assert alone == 1
    assert within == pytest.approx(between / simple * (t.ppf(0.975, 3) / t.ppf(0.975, 15)) ** 2)


def test_design_effect_leaves_at_least_one_statement():
    sample = VerdictSample.of_complete([1.4, 0.8, 10.0], [1.05, 0.6, 2.0])  # incomplete statements count in part

    effective = sample.effective(np.array([3.0, 2.0, 2.5]))

    assert effective.n == pytest.approx([1, 0.8, 4])
    assert effective.n_hits == pytest.approx([0.75, 0.6, 0.8])
