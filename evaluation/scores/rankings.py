"""Ranked lists: precision and recall of one by its scores, overlap and rank correlation of two.

Equal scores are in no order: their expectation counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DEPTHS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)


class CurvePoint(NamedTuple):
    """Recall and precision of all that scores at least as much as some score, both in [0, 1]."""

    recall: float
    precision: float


def average_precision(scores: Floats, is_positive: Flags) -> float | None:
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
    position = np.arange(len(scores)) - before[group]  # j - 1
    others = position * (hits[group] - 1) / np.maximum(size[group] - 1, 1)
    precision = (hits_before[group] + 1 + others) / (before[group] + position + 1)
    return float((hits[group] / size[group] * precision).sum() / n_positive)


def precision_recall_curve(scores: Floats, is_positive: Flags, most_points: int = 200) -> list[CurvePoint]:
    """Return a point per distinct score, recall ascending; evenly chosen ones if there are more than `most_points`."""
    size, hits = _groups(scores, is_positive)
    n, n_hits = np.cumsum(size), np.cumsum(hits)
    chosen = np.unique(np.linspace(0, len(n) - 1, min(most_points, len(n))).round().astype(int))
    return [
        CurvePoint(float(n_hits[position] / n_hits[-1]), float(n_hits[position] / n[position])) for position in chosen
    ]


def _groups(scores: Floats, is_positive: Flags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each distinct score, best first, how many have it and how many of these are positive."""
    _, group = np.unique(-scores, return_inverse=True)
    return np.bincount(group), np.bincount(group, is_positive).astype(np.int64)


# -- two lists ---------------------------------------------------------------------------------------------------------


class RankCorrelation(NamedTuple):
    """Over what both lists have; None where fewer than two are shared. In [-1, 1]."""

    spearman: float | None
    kendall: float | None


class Depth(NamedTuple):
    """How many of the first `k` of each list are among the first `k` of the other."""

    k: int
    n_shared: int

    @property
    def share(self) -> float:
        return self.n_shared / self.k


def jaccard(n_a: int, n_b: int, n_both: int) -> float | None:
    """Return what both have as a share of what either has; None for two empty lists."""
    n_either = n_a + n_b - n_both
    return n_both / n_either if n_either else None


def rank_correlation(ranks_a: Sequence[int], ranks_b: Sequence[int]) -> RankCorrelation:
    """Return Spearman's rho and Kendall's tau-b of the ranks that shared elements have in two lists."""
    if len(ranks_a) < 2:
        return RankCorrelation(None, None)
    return RankCorrelation(float(spearmanr(ranks_a, ranks_b).statistic), float(kendalltau(ranks_a, ranks_b).statistic))


def overlap_by_depth(ranks_a: Mapping[int, int], ranks_b: Mapping[int, int]) -> list[Depth]:
    """Return the overlap at each depth that both lists reach. The mappings: rank, from 1, of each element."""
    reached = sorted(max(ranks_a[element], ranks_b[element]) for element in ranks_a.keys() & ranks_b.keys())
    shortest = min(len(ranks_a), len(ranks_b))
    return [Depth(k, bisect_right(reached, k)) for k in DEPTHS if k <= shortest]
