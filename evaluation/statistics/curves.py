"""Accuracy by score, estimated from draws of unequal weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.rates import hajek_share

Floats = NDArray[np.float64]

MOST_BINS = 10
FEWEST_PER_BIN = 5


class Bin(NamedTuple):
    """The n draws with a score in [score_low, score_high], and the accuracy of the tuples that they stand for."""

    score_low: float
    score_high: float
    n: int
    accepted: int
    accuracy: float
    low: float
    high: float


def accuracy_by_score(score: Floats, is_accepted: NDArray[np.bool_], weight: Floats) -> list[Bin]:
    """Return bins of about equally many draws, lowest scores first; equal scores stay in one bin. Shapes (D,).

    weight: for how many tuples a draw stands.
    """
    order = np.argsort(score, kind="stable")
    n_bins = max(1, min(MOST_BINS, len(score) // FEWEST_PER_BIN))
    scores, hits, weights = score[order], is_accepted[order], weight[order]
    edges = np.unique(np.searchsorted(scores, scores[np.arange(n_bins) * len(scores) // n_bins]))
    ends = [*edges[1:].tolist(), len(scores)]
    return [
        _bin(scores[start:end], hits[start:end], weights[start:end])
        for start, end in zip(edges.tolist(), ends, strict=True)
    ]


def _bin(scores: Floats, hits: NDArray[np.bool_], weights: Floats) -> Bin:
    accuracy = hajek_share(float(weights.sum()), float(weights @ hits), float(weights @ weights))
    return Bin(float(scores[0]), float(scores[-1]), len(scores), int(hits.sum()), *accuracy)
