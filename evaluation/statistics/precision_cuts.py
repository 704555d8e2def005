"""Where to cut a ranked list so that what is kept is as precise as wanted, from judgments of a sample of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from evaluation.statistics.rates import wilson_interval_of_share

Floats = NDArray[np.float64]


class KeptPart(NamedTuple):
    """What a cut at `score` keeps: its precision with a 95 % interval, from the n judged tuples in it."""

    score: float
    precision: float
    low: float
    high: float
    n: int


def kept_parts(scores: Floats, is_accepted: NDArray[np.bool_], weights: Floats) -> list[KeptPart]:
    """Return the part above each distinct judged score, best score first; shapes (D,) with D >= 1.

    weights: for how many tuples each draw stands. Accuracy is taken to fall with the score: the isotonic fit (Ayer et
    al. 1955) stands for the single judgments, so that precision falls with every tuple that is added. Wilson's interval
    on Kish's effective size.
    """
    order = np.argsort(-scores, kind="stable")
    scores, weights = scores[order], weights[order]
    fitted = isotonic_regression(
        _alike_at_ties(scores, is_accepted[order], weights), weights=weights, increasing=False
    ).x
    sums = np.cumsum(np.stack([weights, weights * fitted, weights**2]), axis=1)  # (3, D)
    ends = np.flatnonzero(np.append(np.diff(scores) != 0, True))
    return [_part(scores[end], *sums[:, end], int(end) + 1) for end in ends]


def _alike_at_ties(scores: Floats, is_accepted: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the accuracy of each score: the order among equal scores tells nothing."""
    _, group = np.unique(scores, return_inverse=True)
    return (np.bincount(group, weights * is_accepted) / np.bincount(group, weights))[group]


def _part(score: float, weight: float, hits: float, squares: float, n: int) -> KeptPart:
    precision = min(float(hits / weight), 1.0)
    return KeptPart(float(score), precision, *wilson_interval_of_share(precision, float(weight**2 / squares)), n)


def largest_part(parts: list[KeptPart], target: float, surely: bool) -> KeptPart | None:
    """Return the largest part whose precision, or `surely` its lower bound, reaches `target`; None if there is none."""
    reached = [part for part in parts if (part.low if surely else part.precision) >= target - 1e-9]
    return reached[-1] if reached else None
