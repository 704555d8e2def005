"""How well scores put what is true before what is not. Equal scores are in no order: their expectation counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class CurvePoint(NamedTuple):
    """Recall and precision of all that scores at least as much as some score, both in [0, 1]."""

    recall: float
    precision: float


def average_precision(scores: Floats, is_positive: Mask) -> float | None:
    """Return the mean over positives of the precision where each stands, ties in every order alike; None without any.

    In a group of m ties with p positives, after M others with P positives, the place M + j holds a positive with
    probability p / m and then has (j - 1)(p - 1) / (m - 1) positives of the group before it. McSherry, Najork (2008),
    Computing information retrieval performance measures efficiently in the presence of tied scores.
    """
    n_positive = int(is_positive.sum())
    if not n_positive:
        return None
    size, hits = _groups(scores, is_positive)
    before, hits_before = np.cumsum(size) - size, np.cumsum(hits) - hits
    group = np.repeat(np.arange(len(size)), size)
    place = np.arange(len(scores)) - before[group]  # j - 1
    others = place * (hits[group] - 1) / np.maximum(size[group] - 1, 1)
    precision = (hits_before[group] + 1 + others) / (before[group] + place + 1)
    return float((hits[group] / size[group] * precision).sum() / n_positive)


def precision_recall_curve(scores: Floats, is_positive: Mask, most_points: int = 200) -> list[CurvePoint]:
    """Return a point per distinct score, recall ascending; evenly chosen ones if there are more than `most_points`."""
    size, hits = _groups(scores, is_positive)
    n, found = np.cumsum(size), np.cumsum(hits)
    chosen = np.unique(np.linspace(0, len(n) - 1, min(most_points, len(n))).round().astype(int))
    return [CurvePoint(float(found[each] / found[-1]), float(found[each] / n[each])) for each in chosen]


def _groups(scores: Floats, is_positive: Mask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each distinct score, best first, how many have it and how many of these are positive."""
    _, group = np.unique(-scores, return_inverse=True)
    return np.bincount(group), np.bincount(group, is_positive).astype(np.int64)
