"""Accuracy along a ranking, estimated from draws of unequal weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.rates import wilson_interval_of_share

Floats = NDArray[np.float64]

N_SIZES = 20
MOST_BINS = 10
FEWEST_PER_BIN = 5


class Point(NamedTuple):
    """The accuracy of the best `share` of a ranking, from the n draws in it, with its 95 % interval."""

    share: float
    n: int
    accuracy: float
    low: float
    high: float


class Bin(NamedTuple):
    """The n draws with a score in [score_low, score_high], and the accuracy of the tuples that they stand for."""

    score_low: float
    score_high: float
    n: int
    accepted: int
    accuracy: float
    low: float
    high: float


def accuracy_by_size(place: Floats, is_accepted: NDArray[np.bool_], weight: Floats) -> list[Point]:
    """Return the accuracy of the best 5 %, 10 %, ... 100 %, where a draw is in it; shapes (D,).

    place: rank as a share of what the draw comes from, in (0, 1]. weight: for how many tuples it stands.
    Hajek's estimate: weighted hits over weights; Wilson's interval on Kish's effective size.
    """
    order = np.argsort(place, kind="stable")
    sums = np.cumsum(np.stack([weight, weight * is_accepted, weight**2])[:, order], axis=1)  # (3, D)
    points = []
    for step in range(1, N_SIZES + 1):
        n = int(np.searchsorted(place[order], step / N_SIZES + 1e-9, side="right"))
        if n:
            weights, hits, squares = sums[:, n - 1]
            accuracy = min(float(hits / weights), 1.0)
            interval = wilson_interval_of_share(accuracy, weights**2 / squares)
            points.append(Point(step / N_SIZES, n, accuracy, *interval))
    return points


def accuracy_by_score(score: Floats, is_accepted: NDArray[np.bool_], weight: Floats) -> list[Bin]:
    """Return bins of about equally many draws, lowest scores first; equal scores stay in one bin. Shapes (D,).

    weight: for how many tuples a draw stands; Hajek's estimate and Kish's effective size as for sizes.
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
    total = float(weights.sum())
    accuracy = min(float(weights @ hits) / total, 1.0)
    interval = wilson_interval_of_share(accuracy, total**2 / float(weights @ weights))
    return Bin(float(scores[0]), float(scores[-1]), len(scores), int(hits.sum()), accuracy, *interval)
