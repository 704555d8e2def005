"""How two ranked lists overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy.stats import kendalltau, spearmanr

DEPTHS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)


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
