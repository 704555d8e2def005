"""Accuracy along a ranking, estimated from draws of unequal weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from evaluation.statistics.rates import hajek_share

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


def accuracy_by_size(rank_share: Floats, is_accepted: NDArray[np.bool_], weight: Floats) -> list[Point]:
    """Return the accuracy of the best 5 %, 10 %, ... 100 %, where a draw is in it; shapes (D,).

    place: rank as a share of what the draw comes from, in (0, 1]. weight: for how many tuples it stands.
    """
    order = np.argsort(rank_share, kind="stable")
    sums = np.cumsum(np.stack([weight, weight * is_accepted, weight**2])[:, order], axis=1)  # (3, D)
    points = []
    for step in range(1, N_SIZES + 1):
        n = int(np.searchsorted(rank_share[order], step / N_SIZES + 1e-9, side="right"))
        if n:
            weights, hits, squares = sums[:, n - 1]
            points.append(Point(step / N_SIZES, n, *hajek_share(weights, hits, squares)))
    return points


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
    al. 1955) stands for the single judgments, so that precision falls with every tuple that is added.
    """
    order = np.argsort(-scores, kind="stable")
    scores, weights = scores[order], weights[order]
    fitted = isotonic_regression(
        _alike_at_ties(scores, is_accepted[order], weights), weights=weights, increasing=False
    ).x
    sums = np.cumsum(np.stack([weights, weights * fitted, weights**2]), axis=1)  # (3, D)
    ends = np.flatnonzero(np.append(np.diff(scores) != 0, True))
    return [KeptPart(float(scores[end]), *hajek_share(*sums[:, end]), int(end) + 1) for end in ends]


def _alike_at_ties(scores: Floats, is_accepted: NDArray[np.bool_], weights: Floats) -> Floats:
    """Return the accuracy of each score: the order among equal scores tells nothing."""
    _, group = np.unique(scores, return_inverse=True)
    return (np.bincount(group, weights * is_accepted) / np.bincount(group, weights))[group]


def largest_part(parts: list[KeptPart], target: float, surely: bool) -> KeptPart | None:
    """Return the largest part whose precision, or `surely` its lower bound, reaches `target`; None if there is none."""
    reached = [part for part in parts if (part.low if surely else part.precision) >= target - 1e-9]
    return reached[-1] if reached else None
