"""Changes between two runs of a judge, compared with hand computation and an independent test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from kgharvest.statistics.arrays import FALSE, TRUE
from kgharvest.statistics.judge_quality import UNPARSABLE, change_between
from kgharvest.statistics.rates import wilson_interval


def runs(*pairs: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Build two runs from (label of the first run, label of the second run, number of tuples)."""
    one, other = np.array([pair[:2] for pair in pairs for _ in range(pair[2])]).T
    return one, other


def test_change_matches_hand_computation():
    """Cohen's classic table 20, 5, 10, 15: agreement .7, chance agreement .5, kappa .4."""
    change = change_between(*runs((TRUE, TRUE, 20), (TRUE, FALSE, 5), (FALSE, TRUE, 10), (FALSE, FALSE, 15)))

    assert (change.n, change.n_differing, change.n_to_true, change.n_from_true) == (50, 15, 10, 5)
    assert change.kappa.value == pytest.approx(0.4)
    assert change.more_true == pytest.approx(0.1)
    assert change.p == pytest.approx(binomtest(5, 15).pvalue)
    low, high = wilson_interval(15, 50)
    assert change.kappa[1:3] == pytest.approx((1 - high / 0.5, 1 - low / 0.5))


def test_kappa_of_identical_runs_has_interval():
    change = change_between(*runs((TRUE, TRUE, 30), (FALSE, FALSE, 20)))

    assert (change.kappa.value, change.more_true, change.p) == (1, 0, None)
    assert change.kappa.low < 0.9


def test_unparsable_answer_counts_as_a_label():
    change = change_between(*runs((UNPARSABLE, UNPARSABLE, 1), (UNPARSABLE, FALSE, 1), (TRUE, UNPARSABLE, 2)))

    assert (change.n_differing, change.n_from_true) == (3, 2)


def test_kappa_is_undefined_for_one_label_and_change_for_no_tuples():
    assert change_between(*runs((TRUE, TRUE, 5))).kappa.reason
    assert change_between(np.zeros(0, dtype=int), np.zeros(0, dtype=int)) is None
