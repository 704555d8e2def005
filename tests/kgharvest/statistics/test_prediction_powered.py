"""PPI++, compared with stored results of ppi-python and with the library if it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from benches.judge_coverage import prediction_powered_mean

# ppi_py.ppi_mean_ci, ppi-python 0.2.3, alpha=.05: tuples, draws, truth, sensitivity, specificity, seed, limits.
STORED = [
    (400, 50, 0.7, 0.9, 0.8, 0, 0.6188144960692956, 0.8113197321186238),
    (200, 25, 0.9, 0.9, 0.6, 1, 0.7582331192611654, 1.009514137140564),
    (1000, 100, 0.5, 0.5, 0.5, 2, 0.34403787556461807, 0.5375109302144785),
    (300, 40, 0.8, 0.2, 0.2, 3, 0.6455922740078343, 0.9044077259921658),
    (500, 60, 0.95, 0.97, 0.95, 4, 0.9287800157627268, 1.0748945249196873),
]


def judged(size, n, truth, sensitivity, specificity, seed):
    """Return the labels of the sample, the judge's labels of the sample, and the judge's labels of all tuples."""
    rng = np.random.default_rng(seed)
    label = rng.random(size) < truth
    predicted = np.where(label, rng.random(size) < sensitivity, rng.random(size) >= specificity)
    drawn = rng.permutation(size)[:n]
    return label[drawn].astype(float), predicted[drawn].astype(float), predicted.astype(float)


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: f"seed {stored[5]}")
def test_interval_matches_stored_ppi_python_results(stored):
    *setting, low, high = stored

    rate = prediction_powered_mean(*judged(*setting))

    assert rate[1:3] == pytest.approx((low, high), abs=1e-9)


def test_predictions_may_be_probabilities():
    rng = np.random.default_rng(5)
    label = rng.random(80)
    predicted, of_all = label + rng.normal(size=80) * 0.2, rng.random(700)

    rate = prediction_powered_mean(label, predicted, of_all)

    assert rate[1:3] == pytest.approx((0.453675175768569, 0.5337975260744837), abs=1e-9)  # ppi-python 0.2.3


@pytest.mark.parametrize("seed", range(10))
def test_interval_matches_installed_ppi_python(seed):
    ppi_py = pytest.importorskip("ppi_py")
    arrays = judged(300, 30, 0.1 * seed, 0.9, 0.7, seed)

    low, high = ppi_py.ppi_mean_ci(*arrays, alpha=0.05)

    assert prediction_powered_mean(*arrays)[1:3] == pytest.approx((low[0], high[0]), abs=1e-9)


def test_constant_judge_keeps_mean_of_human_labels():
    rate = prediction_powered_mean([1, 1, 0, 1], [1, 1, 1, 1], [1] * 40)

    assert rate.value == pytest.approx(0.75)
    assert rate.high - rate.low == pytest.approx(2 * 1.959964 * np.sqrt(0.1875 / 4), abs=1e-6)
