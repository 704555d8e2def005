"""What incomplete statements would be decided, from the labels that they have.

Which statements lack judgments may depend on the answers: where a third person is asked only when two differ, those in
dispute wait longest; excluding somebody who always says True leaves those complete that others called False. Leaving
them out then shifts every rate. Here they count with the probability of each verdict, given the labels that they have:
judgments are exchangeable, and what is missing depends on labels that were seen (missing at random; Little and Rubin
2002, section 1.3). The shares of the complete patterns are found by EM (Dempster, Laird and Rubin 1977).
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb as binomial

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

TRUE, FALSE, UNJUDGEABLE = range(3)
MOST_STEPS, TOLERANCE = 2000, 1e-10
SINGULAR, IDENTIFIED = 1e-9, 1e-4  # relative size of a direction without information; misfit that gives one away
MOST_PATTERNS = 5000  # of k judgments; k of 98 has so many


class CompletedVerdicts(NamedTuple):
    """What T statements are decided once they are complete.

    probabilities (T, 3): of accepted, rejected, undecided. information: of each verdict's share, the part of what as
    many complete statements would tell, in [0, 1]; 1 where all are complete, 0 where the labels so far do not tell it.
    """

    probabilities: Floats
    information: tuple[float, float, float]


def completed_verdicts(counts: Counts, k: int, quorum: int = 1) -> CompletedVerdicts:
    """Return the verdicts that statements get with all their k judgments, given `counts` (T, 3) of those they have.

    A statement with k judgments has a verdict of probability 1, and so has one whose verdict no further judgment can
    change. One without any gets the shares of all. Raises ValueError for a k with too many patterns to weigh.
    """
    if comb(k + 2, 2) > MOST_PATTERNS:
        raise ValueError(f"{k} judgments of a statement are too many patterns to weigh.")
    complete = np.array([np.bincount(way, minlength=3) for way in combinations_with_replacement(range(3), k)])  # (F, 3)
    verdicts = _majority(complete, k, quorum)  # (F, 3)
    seen, of_task, n_tasks = np.unique(counts, axis=0, return_inverse=True, return_counts=True)  # (P, 3), (T,), (P,)
    ways = binomial(complete[None, :, :], seen[:, None, :]).prod(axis=2)
    likelihood = ways / binomial(k, seen.sum(axis=1))[:, None]  # (P, F): of the labels so far among the k
    shares = np.full(len(complete), 1 / len(complete))
    for _ in range(MOST_STEPS):
        posterior = shares * likelihood
        posterior /= posterior.sum(axis=1, keepdims=True)
        previous, shares = shares, n_tasks @ posterior / n_tasks.sum()
        if np.abs(shares - previous).max() < TOLERANCE:
            break
    information = [_information(likelihood, n_tasks, shares, verdict) for verdict in verdicts.T]
    return CompletedVerdicts(
        (posterior @ verdicts)[of_task.reshape(-1)], (information[0], information[1], information[2])
    )


def _information(likelihood: Floats, n_tasks: Counts, shares: Floats, has_verdict: Floats) -> float:
    """Return the variance of a verdict's share if all were complete, over the one it has from the labels so far.

    The latter by the observed information of the patterns' shares (F,), on those that occur; where it is singular in
    the direction of the verdict, the labels do not tell the share.
    """
    occurs = shares > TOLERANCE
    n, share = int(n_tasks.sum()), float(shares @ has_verdict)
    if np.all(seen_entirely := (likelihood > 0).sum(axis=1) == 1):
        return 1.0
    if not TOLERANCE < share < 1 - TOLERANCE:
        return float(n_tasks[seen_entirely].sum() / n)
    scores = likelihood[:, occurs] / (likelihood @ shares)[:, None]
    observed = (scores * n_tasks[:, None]).T @ scores
    direction = has_verdict[occurs]
    solution = np.linalg.lstsq(observed, direction, rcond=SINGULAR)[0]
    if np.abs(observed @ solution - direction).max() > IDENTIFIED:
        return 0.0
    variance = float(direction @ solution) - share**2 / n
    return min(1.0, share * (1 - share) / n / variance) if variance > 0 else 0.0


def _majority(complete: Counts, k: int, quorum: int) -> Floats:
    """Return (F, 3) one 1 in each row: accepted, rejected or undecided."""
    accepted = (2 * complete[:, TRUE] > k) & (complete[:, TRUE] >= quorum)
    rejected = (2 * complete[:, FALSE] > k) & (complete[:, FALSE] >= quorum)
    return np.stack([accepted, rejected, ~(accepted | rejected)], axis=1).astype(np.float64)
