"""Ranked lists: precision and recall by score, and overlap and rank correlation of two lists.

Ties are unordered: statistics are expectations over all orders of tied elements.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DEPTHS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)


class CurvePoint(NamedTuple):
    """Recall and precision, in [0, 1], of all elements whose score is at or above a threshold."""

    recall: float
    precision: float


def average_precision(scores: Floats, is_positive: Flags) -> float | None:
    """Return the expected mean precision at the ranks of positives over all orders of ties, or None without positives.

    If M elements with P positives precede a group of m tied elements with p positives, rank M + j holds a positive with
    probability p / m. If it does, (j - 1)(p - 1) / (m - 1) positives of the group are expected at earlier ranks.
    McSherry and Najork (2008), Computing information retrieval performance measures efficiently in the presence of tied
    scores.
    """
    n_positive = int(is_positive.sum())
    if not n_positive:
        return None
    size, hits = _groups(scores, is_positive)
    before, hits_before = np.cumsum(size) - size, np.cumsum(hits) - hits
    group = np.repeat(np.arange(len(size)), size)
    position = np.arange(len(scores)) - before[group]  # j - 1
    expected_hits = position * (hits[group] - 1) / np.maximum(size[group] - 1, 1)
    precision = (hits_before[group] + 1 + expected_hits) / (before[group] + position + 1)
    return float((hits[group] / size[group] * precision).sum() / n_positive)


def precision_recall_curve(scores: Floats, is_positive: Flags, most_points: int = 200) -> list[CurvePoint]:
    """Return one point per distinct score, by ascending recall, or if these are too many, `most_points` of them."""
    size, hits = _groups(scores, is_positive)
    n, n_hits = np.cumsum(size), np.cumsum(hits)
    chosen = np.unique(np.linspace(0, len(n) - 1, min(most_points, len(n))).round().astype(int))
    return [
        CurvePoint(float(n_hits[position] / n_hits[-1]), float(n_hits[position] / n[position])) for position in chosen
    ]


def _groups(scores: Floats, is_positive: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return group sizes and numbers of positives by distinct score, highest score first."""
    _, group = np.unique(-scores, return_inverse=True)
    return np.bincount(group), np.bincount(group, is_positive).astype(np.int64)


class RankCorrelation(NamedTuple):
    """Correlations in [-1, 1] over shared elements; None if fewer than two elements are shared."""

    spearman: float | None
    kendall: float | None


class Depth(NamedTuple):
    """Number of elements that are among the first `k` elements of both lists."""

    k: int
    n_shared: int

    @property
    def share(self) -> float:
        return self.n_shared / self.k


def jaccard(n_a: int, n_b: int, n_both: int) -> float | None:
    """Return the intersection over the union of two sets, or None if both are empty."""
    n_either = n_a + n_b - n_both
    return n_both / n_either if n_either else None


def rank_correlation(ranks_a: Sequence[int], ranks_b: Sequence[int]) -> RankCorrelation:
    """Return Spearman's rho and Kendall's tau-b of the ranks of shared elements in two lists."""
    if len(ranks_a) < 2:
        return RankCorrelation(None, None)
    return RankCorrelation(
        float(scipy.stats.spearmanr(ranks_a, ranks_b).statistic),
        float(scipy.stats.kendalltau(ranks_a, ranks_b).statistic),
    )


def overlap_by_depth(ranks_a: Mapping[int, int], ranks_b: Mapping[int, int]) -> list[Depth]:
    """Return the overlap at each of DEPTHS that both lists reach. ranks_a, ranks_b: rank (from 1) by element."""
    reached = sorted(max(ranks_a[element], ranks_b[element]) for element in ranks_a.keys() & ranks_b.keys())
    shortest = min(len(ranks_a), len(ranks_b))
    return [Depth(k, bisect_right(reached, k)) for k in DEPTHS if k <= shortest]
