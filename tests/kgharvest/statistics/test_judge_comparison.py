"""Judge-assisted comparison of two sides, each calibrated by its own verdicts and paired on shared tuples."""

from __future__ import annotations

import numpy as np
import pytest

from kgharvest.statistics.judge_assisted import JudgedSample, JudgedSide, judged_difference
from kgharvest.statistics.rates import VerdictSample
from kgharvest.statistics.statement_test import SharedStatements


def side(labels: list[tuple[int, int, int]], stratum: int) -> JudgedSide:
    """Build one stratum of (tuples, drawn, accepted) for the judge's labels true, false, and neither."""
    population, drawn, hits = np.array([labels]).transpose(2, 0, 1)
    sample = JudgedSample(population, drawn, VerdictSample.of_complete(drawn, hits))
    return JudgedSide(sample, np.array([stratum]), np.ones(1), np.zeros(1, dtype=np.int64))


A = [(300, 30, 27), (100, 20, 6), (0, 0, 0)]
B = [(200, 25, 20), (200, 25, 8), (0, 0, 0)]


def test_each_side_is_corrected_by_its_own_verdicts():
    compared = judged_difference(side(A, 0), side(B, 1))

    assert compared.a.value == pytest.approx(0.75 * 0.9 + 0.25 * 0.3)
    assert compared.b.value == pytest.approx(0.5 * 0.8 + 0.5 * 0.32)
    assert compared.difference.value == pytest.approx(0.19)
    assert compared.difference.correlation == 0


def test_shared_calibration_is_refused():
    with pytest.raises(ValueError, match="same verdicts"):
        judged_difference(side(A, 0), side(B, 0))


def test_shared_statements_correlate_sides_within_judge_labels():
    """20 shared statements. The judge labels 10 true (9 accepted) and 10 false (3 accepted)."""
    n, hits = np.diag([10.0, 10.0, 0.0]), np.diag([9.0, 3.0, 0.0])

    alone, paired = (
        judged_difference(side(A, 0), side(B, 1), shared).difference for shared in (None, SharedStatements(n, hits))
    )

    assert 0 < paired.correlation < 1
    low, high = paired.interval
    assert alone.interval[0] < low < paired.value < high < alone.interval[1]


def test_groups_separated_on_one_side_only_add_no_correlation():
    thin = [(390, 48, 40), (10, 2, 1), (0, 0, 0)]
    shared = SharedStatements(np.diag([10.0, 2.0, 0.0]), np.diag([9.0, 1.0, 0.0]))

    compared = judged_difference(side(A, 0), side(thin, 1), shared).difference

    assert compared.correlation == 0


def test_swapping_sides_negates_difference():
    a_b, b_a = (judged_difference(*sides).difference for sides in ((side(A, 0), side(B, 1)), (side(B, 1), side(A, 0))))

    assert a_b.interval == pytest.approx(tuple(-limit for limit in b_a.interval[::-1]))
    assert a_b.p == pytest.approx(b_a.p)


def test_side_without_verdicts_has_no_difference():
    assert judged_difference(side(A, 0), side([(300, 0, 0), (100, 0, 0), (0, 0, 0)], 1)).difference is None
