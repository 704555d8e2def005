"""Statement-level comparison, checked by hand, with a second formula, and by simulation."""

import math

import numpy as np
import pytest

from kgharvest.statistics.rates import VerdictSample, simple_interval
from kgharvest.statistics.statement_test import SharedStatements, SideSample, StatementDifference, statement_difference


def side(*strata: tuple[float, float, int], weights: list[float] | None = None, relations: list[int] | None = None):
    hits, n, population = np.array(strata, dtype=float).T
    return SideSample(
        VerdictSample.of_complete(n, hits),
        population.astype(int),
        np.array(weights or [1 / len(strata)] * len(strata)),
        np.array(relations or range(len(strata))),
    )


def compared(a: SideSample, b: SideSample, *shared: tuple[int, int, int, int]) -> StatementDifference:
    """Compare two sides. Each `shared` row: stratum of a, stratum of b, shared statements, accepted ones."""
    n, hits = np.zeros((2, len(a.weight), len(b.weight)))
    for row, column, count, n_hits in shared:
        n[row, column], hits[row, column] = count, n_hits
    return statement_difference(a, b, SharedStatements(n, hits))


def test_unpaired_interval_is_newcombes_with_exact_limits():
    difference = compared(side((45, 50, 1000)), side((30, 50, 400)))

    low_a, high_a = simple_interval(45, 50, 1000)
    low_b, high_b = simple_interval(30, 50, 400)
    assert difference.correlation == 0
    assert difference.interval == pytest.approx((
        0.3 - math.hypot(0.9 - low_a, high_b - 0.6), 0.3 + math.hypot(high_a - 0.9, 0.6 - low_b),
    ), abs=1e-9)  # fmt: skip


def test_p_matches_newcombes_score_interval():
    # If the 95 % limits are Wilson's, p is the level at which Newcombe's method 10 ends at 0, found by bisection.
    def wilson(p, n, z):
        middle, half = (p + z * z / 2 / n) / (1 + z * z / n), z * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
        return middle - half / (1 + z * z / n), middle + half / (1 + z * z / n)

    z_95 = 1.959963984540054
    low_z, high_z = 0.0, 10.0
    for _ in range(60):
        z = (low_z + high_z) / 2
        below = math.hypot(0.8 - wilson(0.8, 40, z)[0], wilson(0.6, 30, z)[1] - 0.6)
        low_z, high_z = (z, high_z) if below < 0.2 else (low_z, z)
    p = math.erfc(low_z / math.sqrt(2))

    difference = StatementDifference((0.8, *wilson(0.8, 40, z_95)), (0.6, *wilson(0.6, 30, z_95)), 0.0)

    assert difference.p == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("hits", [(10, 10), (20, 13), (18, 11), (20, 14), (19, 12), (0, 6), (12, 12)])
def test_p_and_interval_never_contradict(hits):
    difference = compared(side((hits[0], 20, 300), (15, 20, 90)), side((hits[1], 20, 200), (14, 20, 0)))

    low, high = difference.interval
    assert (difference.p < 0.05) == (not low <= 0 <= high)


def test_p_is_one_for_equal_sides():
    assert compared(side((5, 10, 100)), side((5, 10, 100))).p == 1


def test_identical_samples_are_highly_correlated():
    a, b = side((7, 10, 100), (9, 10, 50)), side((7, 10, 100), (9, 10, 50))
    shared, independent = compared(a, b, (0, 0, 10, 7), (1, 1, 10, 9)), compared(a, b)

    # Below 1 for few statements, because shares are shrunk towards one half. Limits are wider below than above.
    assert shared.correlation > 0.8
    assert shared.p == 1
    assert shared.interval[1] < independent.interval[1] / 1.8


def test_correlation_of_shared_statements_matches_hand_computation():
    # Infinite populations, 10 and 20 drawn, 6 shared: covariance 6 / 200, variances 1 / 10, 1 / 20, each times 1 / 4.
    assert compared(side((5, 10, 0)), side((10, 20, 0)), (0, 0, 6, 3)).correlation == pytest.approx(6 / math.sqrt(200))


def test_unanimous_shared_statements_correlate_less():
    # The share of true statements is (9 + 11 + 2) / (10 + 20 + 4). All 6 shared ones are 12 / 34 away from it.
    difference = compared(side((9, 10, 0)), side((11, 20, 0)), (0, 0, 6, 6))

    assert difference.correlation == pytest.approx((12 / 34) ** 2 / (22 / 34 * 12 / 34) * 6 / math.sqrt(200))


def test_overlap_expected_by_chance_adds_no_correlation():
    # Two samples of 50 from 100 share 25 by chance, and estimates from independent samples are independent.
    assert compared(side((30, 50, 100)), side((32, 50, 100)), (0, 0, 25, 15)).correlation == pytest.approx(0)


def test_fully_judged_harvests_have_certain_difference():
    difference = compared(side((30, 40, 40)), side((29, 40, 40)), (0, 0, 20, 15))

    assert difference.interval == pytest.approx((0.025, 0.025))
    assert difference.p == 0
    assert difference.smallest_margin == pytest.approx(0.025)


def test_swapping_sides_mirrors_interval():
    a, b = side((18, 20, 300), (15, 20, 90)), side((11, 20, 200), (14, 20, 70))
    there, back = compared(a, b, (0, 0, 9, 7)), compared(b, a, (0, 0, 9, 7))

    assert back.interval == pytest.approx([-limit for limit in there.interval[::-1]])
    assert back.p == pytest.approx(there.p)
    assert back.smallest_margin == pytest.approx(there.smallest_margin)


def test_smallest_margin_is_outer_limit_of_90_percent_interval():
    difference = compared(side((180, 200, 1000)), side((176, 200, 1000)))

    z = 1.6448536269514722
    assert difference.smallest_margin == pytest.approx(max(difference.high_at(z), -difference.low_at(z)))
    assert abs(difference.value) < difference.smallest_margin < max(map(abs, difference.interval))


def test_stratum_without_verdicts_has_no_difference():
    assert compared(side((5, 10, 100), (0, 0, 100)), side((5, 10, 100), (3, 5, 100))) is None


@pytest.mark.parametrize(("share_a", "share_b"), [(0.8, 0.8), (0.95, 0.95), (0.9, 0.7)])
def test_simulated_size_and_coverage_are_nominal(share_a, share_b):
    # benches/interval_coverage.py runs longer and includes strata and shared statements.
    rng = np.random.default_rng(0)
    hits_a = rng.hypergeometric(round(200 * share_a), 200 - round(200 * share_a), 30, 2000)
    hits_b = rng.hypergeometric(round(100 * share_b), 100 - round(100 * share_b), 20, 2000)
    pairs, times = np.unique(np.stack([hits_a, hits_b], axis=1), axis=0, return_counts=True)

    differences = [compared(side((a, 30, 200)), side((b, 20, 100))) for a, b in pairs]

    covers = [low <= share_a - share_b <= high for low, high in (difference.interval for difference in differences)]
    assert times @ covers / 2000 >= 0.925
    if share_a == share_b:
        assert times @ [difference.p < 0.05 for difference in differences] / 2000 <= 0.06


def test_denormal_share_counts_as_zero():
    of_nothing, almost = (StatementDifference((value, 0.0, 0.6), (0.4, 0.2, 0.6), 0.0) for value in (0.0, 5e-324))

    assert almost.interval == pytest.approx(of_nothing.interval)
    assert almost.p == pytest.approx(of_nothing.p)
