"""Prediction-powered inference for a mean (PPI++): what a judge's labels of all add to people's of a few.

Angelopoulos, Duchi and Zrnic (2023), PPI++: Efficient Prediction-Powered Inference, arXiv 2311.01453; the numbers are
those of `ppi_mean_ci` in ppi-python 0.2.3. Reports show it beside their own estimate
(evaluation.statistics.judges.judge_assisted), which is about the finite population and holds what it says more often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from evaluation.statistics.rates import Z_95, Rate


def prediction_powered_mean(label: ArrayLike, predicted: ArrayLike, predicted_of_all: ArrayLike) -> Rate:
    """Return the mean label with its normal 95 % interval, which may leave [0, 1]; needs one labelled at least.

    label, predicted (n,): what people say, and the judge, of the labelled ones. predicted_of_all (N,): what the judge
    says of all. Its weight, in [0, 1], is the covariance of both over the variance of the judge's labels of either
    kind pooled, as the gradients in the paper's section 6 give it.
    """
    y, f, f_all = (np.asarray(values, dtype=np.float64) for values in (label, predicted, predicted_of_all))
    n, n_all = len(y), len(f_all)
    covariance = float(((y - y.mean()) * (f - f.mean())).mean())
    variance = float(np.var(np.concatenate([f, f_all]), ddof=1))
    weight = min(1.0, max(0.0, covariance / ((1 + n / n_all) * variance))) if variance > 0 else 0.0
    value = weight * float(f_all.mean()) + float((y - weight * f).mean())
    error = float(np.sqrt(weight**2 * f_all.var() / n_all + (y - weight * f).var() / n))
    return Rate(value, value - Z_95 * error, value + Z_95 * error)
