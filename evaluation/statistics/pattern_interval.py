"""Intervals of agreement over statements like these: the Bayesian bootstrap of count patterns.

Percentile intervals of resampled statements cover too little where statements are few or judgments nearly all alike
(.53 to .70 of 20 statements of which 95 % are true), because patterns that were not seen cannot be drawn. Here the
shares of all patterns that k judgments can show are drawn from their posterior (Rubin 1981, The Bayesian bootstrap,
Annals of Statistics 9): Dirichlet, with a prior worth PRIOR_STATEMENTS statements spread evenly over them.
docs/statistics.md has the coverage measured. Held fixed: the people who judged.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Coefficient = Callable[[Counts, Floats], Floats]
"""Takes patterns (P, C) and shares of the statements that show them (R, P); returns (R,), NaN where undefined."""

PRIOR_STATEMENTS = 1.5  # between 1 and 2, this covered best where it covered least
MOST_WAYS = 300  # to give labels; of more, only those that were seen or are unanimous are drawn


def pattern_interval(
    coefficient: Coefficient, patterns: Counts, n_tasks: Counts, rng: np.random.Generator, n_draws: int
) -> tuple[float, float] | None:
    """Return the 95 % interval of a coefficient of agreement, None if it is undefined in most draws.

    patterns (P, C): how many judgments of each label; n_tasks (P,): how many statements show each.
    """
    every_pattern, prior = possible_patterns(patterns, n_tasks)
    seen = np.zeros(len(every_pattern))
    position = {tuple(pattern): number for number, pattern in enumerate(every_pattern.tolist())}
    for pattern, n in zip(patterns.tolist(), n_tasks.tolist(), strict=True):
        if n:
            seen[position[tuple(pattern)]] += n
    shares = rng.standard_gamma(seen + prior, size=(n_draws, len(prior)))
    values = coefficient(every_pattern, shares / shares.sum(axis=1, keepdims=True))
    defined = values[~np.isnan(values)]
    if 2 * len(defined) <= n_draws:
        return None
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def possible_patterns(patterns: Counts, n_tasks: Counts) -> tuple[Counts, Floats]:
    """Return the patterns that statements could show, and the prior of each, in statements.

    For each number of judgments that some statement has: every way of giving them the labels in use, the first two
    (True and False) always among these. Its part of the prior is its part of the statements.
    """
    n_labels = patterns.shape[1]
    is_used = n_tasks @ patterns > 0
    labels = [label for label in range(n_labels) if label < 2 or is_used[label]]
    sizes = patterns.sum(axis=1)
    every_pattern: list[list[int]] = []
    prior: list[float] = []
    for size in np.unique(sizes[n_tasks > 0]).tolist():
        shown = patterns[(sizes == size) & (n_tasks > 0)]
        if comb(size + len(labels) - 1, size) > MOST_WAYS:
            ways = np.unique(np.concatenate([shown, size * np.eye(n_labels, dtype=np.int64)[labels]]), axis=0).tolist()
        else:
            ways = [
                np.bincount(way, minlength=n_labels).tolist() for way in combinations_with_replacement(labels, size)
            ]
        share = n_tasks[sizes == size].sum() / n_tasks.sum()
        every_pattern += ways
        prior += [PRIOR_STATEMENTS * share / len(ways)] * len(ways)
    return np.array(every_pattern, dtype=np.int64), np.array(prior)
