"""Design effects of clusters: by hand, and coverage of intervals on the effective sample size."""

import numpy as np
import pytest
from scipy.stats import t

from kgharvest.statistics.clusters import design_effects
from kgharvest.statistics.rates import simple_interval


def effects(is_hit, cluster, stratum=None, n_strata=1) -> list[float]:
    hits = np.array(is_hit, dtype=bool)
    strata = np.zeros(len(hits), dtype=int) if stratum is None else np.array(stratum)
    return design_effects(hits, strata, np.array(cluster), n_strata).tolist()


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
