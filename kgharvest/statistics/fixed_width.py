"""Fixed-width intervals: judge statements until an accuracy is known to a margin, with a guaranteed coverage.

An interval for a fixed sample size covers less if sampling stops once the interval is narrow. An anytime-valid interval
requires two to three times the statements. Here, sampling stops once `half_width` is at most the margin, and the
interval is the center +- margin. `closing_z` calibrates the half-width by dynamic programming: in simple random samples
of one label a statement, the interval at the stop covers every accuracy in SHARES with a probability of at least
COVERAGE, even if the stop is checked after every statement. Averages over strata use an effective sample size.
docs/statistics.md compares other rules with the same guarantee.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from kgharvest.statistics.arrays import Counts, Flags, Floats
from kgharvest.statistics.rates import VerdictSample

COVERAGE = 0.945
SHARES = (0.5, 0.995)  # by symmetry, the guarantee also holds from .005 to .5
# Numbers that are added to the sample: statements in the standard deviation, and hits and misses in its share and in
# the center. They were found by search. benches/fixed_width.py compares the rule with others.
ADDED, ADDED_HITS, ADDED_TO_CENTER = 1.5, 0.95, 2.1
LEAST_Z, Z_STEP = 2.0, 0.004
FINEST = 0.02  # smaller margins have the z of this margin; z decreases with the margin
AS_GOOD_AS_INFINITE = 100_000  # number of tuples; larger and unknown populations have the z of this size


class Closing(NamedTuple):
    """Center and half-width of the interval of an average over strata."""

    center: float
    half_width: float


def closing_interval(sample: VerdictSample, population: Counts, weights: Floats, margin: float) -> Closing | None:
    """Return the interval that is compared with `margin`, or None if a stratum has no verdict.

    population (S,): 0 if unknown. weights (S,): weights that add up to 1. If the labels do not identify the share, the
    half-width includes the range of possible centers.
    """
    if (sample.n <= 0.5).any():
        return None
    z = closing_z(margin, int(population.sum()) if population.all() else 0)
    unjudged = np.where(population > 0, (population - sample.n) / np.maximum(population - 1, 1), 1).clip(0)
    ends = []
    for hits in (sample.least, sample.most):
        share, smoothed = np.array(weights @ (hits / sample.n)), (hits + 1) / (sample.n + 2)
        variance = float((weights**2 * smoothed * (1 - smoothed) / sample.n * unjudged).sum())
        mean = float(weights @ smoothed)
        ends.append(
            center_and_half_width(share, np.array(mean * (1 - mean) / variance), z) if variance else (share, 0.0)
        )
    (low, half_low), (high, half_high) = ends
    return Closing(float(low + high) / 2, float((high - low) / 2 + max(half_low, half_high)))


def center_and_half_width(share: Floats, n: Floats, z: float) -> tuple[Floats, Floats]:
    """Return centers and half-widths for shares of hits in samples of effective size `n`."""
    hits = share * n
    smoothed = (hits + ADDED_HITS) / (n + 2 * ADDED_HITS)
    center: Floats = (hits + ADDED_TO_CENTER) / (n + 2 * ADDED_TO_CENTER)
    return center, z * np.sqrt(smoothed * (1 - smoothed) / (n + ADDED))


def interval_at_stop(center: ArrayLike, margin: float) -> tuple[Floats, Floats]:
    """Return the limits of the interval of width 2 `margin` around `center`, moved into [0, 1]."""
    inside = np.clip(center, margin, 1 - margin)
    return inside - margin, inside + margin


class Stops(NamedTuple):
    """Numbers of statements and hits (K,) at which sampling stops in a population of `size` tuples.

    weight (K,): share of the orders of hits and misses that do not stop earlier. All orders are equally likely.
    """

    n: Counts
    n_hits: Counts
    weight: Floats
    size: int

    def probabilities(self, hits_in_all: Counts) -> Floats:
        """Return the probability (P, K) of each stop for numbers of hits in the population (P,)."""
        log_factorial = scipy.special.gammaln(np.arange(self.size + 1) + 1.0)

        def log_choose(n: Counts, k: Counts) -> Floats:
            inside = np.clip(k, 0, n)
            chosen = log_factorial[n] - log_factorial[inside] - log_factorial[n - inside]
            return np.where(inside == k, chosen, -np.inf)

        hits = hits_in_all[:, None]
        log = log_choose(hits, self.n_hits) + log_choose(self.size - hits, self.n - self.n_hits)
        probabilities: Floats = np.exp(log - log_choose(np.array(self.size), self.n)) * self.weight
        return probabilities

    def coverage(self, hits_in_all: Counts, limits: tuple[Floats, Floats]) -> Floats:
        """Return the probability (P,) that the interval at the stop contains the share of hits. limits (K,), (K,)."""
        low, high = limits
        share = hits_in_all[:, None] / self.size
        is_covered = (low <= share + 1e-9) & (share <= high + 1e-9)
        coverage: Floats = (self.probabilities(hits_in_all) * is_covered).sum(axis=1)
        return coverage

    def limits(self, margin: float) -> tuple[Floats, Floats]:
        """Return the limits (K,) of the interval at each stop."""
        center, _ = center_and_half_width(self.n_hits / self.n, effective_size(self.n, self.size), 1)
        return interval_at_stop(center, margin)

    def least_coverage(self, limits: tuple[Floats, Floats], *, near_limits: bool) -> float:
        """Return the minimum coverage over SHARES, on a grid or also on both sides of each limit of an interval.

        Between limits, the coverage changes smoothly.
        """
        grid = np.linspace(*SHARES, 100).round(4) * self.size
        if near_limits:
            near = np.rint(np.concatenate(limits) * self.size)
            grid = np.concatenate([grid, near - 1, near, near + 1])
        hits = np.unique(grid.round().astype(np.int64))
        hits = hits[(hits >= SHARES[0] * self.size) & (hits <= SHARES[1] * self.size)]
        parts = np.array_split(hits, len(hits) // 200 + 1)
        return min(float(self.coverage(part, limits).min(initial=1)) for part in parts)


def effective_size(n: Counts, size: int) -> Floats:
    """Return the size of the sample with replacement that has the variance of `n` statements among `size`."""
    effective: Floats = n * (size - 1) / np.maximum(size - n, 1e-9)
    return effective


def stops(margin: float, z: float, size: int) -> Stops:
    """Return the stops of the rule for one z."""
    return first_stops(
        lambda hits, n: center_and_half_width(hits / n, effective_size(np.array(n), size), z)[1] <= margin, size
    )


def first_stops(is_stop: Callable[[Counts, int], Flags], size: int) -> Stops:
    """Return the stops of sampling that is checked after every statement.

    is_stop: whether sampling stops, for numbers of hits (n + 1,) among n statements.
    """
    surviving, found = np.ones(1), []
    for n in range(1, size + 1):
        # Of the orders with x hits among n statements, the share x / n ends with a hit.
        hits = np.arange(n + 1)
        arriving = np.append(surviving * (n - hits[:-1]) / n, 0)
        arriving[1:] += surviving * hits[1:] / n
        is_last = is_stop(hits, n) | (n == size)
        stopping = np.flatnonzero(is_last & (arriving > 0))
        found.append((np.full(len(stopping), n), stopping, arriving[stopping]))
        surviving = np.where(is_last, 0, arriving)
        if not surviving.any():
            break
    n_stop, n_hits, weight = map(np.concatenate, zip(*found, strict=True))
    return Stops(n_stop, n_hits, weight, size)


@lru_cache(maxsize=1000)
def closing_z(margin: float, population: int = 0) -> float:
    """Return the smallest z, in steps of Z_STEP, that guarantees the coverage. population: 0 if unknown."""
    margin, size = max(margin, FINEST), min(population or AS_GOOD_AS_INFINITE, AS_GOOD_AS_INFINITE)
    z = LEAST_Z
    while True:
        rule = stops(margin, z, size)
        limits = rule.limits(margin)
        if all(rule.least_coverage(limits, near_limits=near_limits) >= COVERAGE for near_limits in (False, True)):
            return z
        z += Z_STEP


def expected_statements(accuracy: float, margin: float, population: int = 0) -> int:
    """Return the number of statements at which a sample with this accuracy stops. population: 0 if unknown."""
    size, z = population or 10 * AS_GOOD_AS_INFINITE, closing_z(margin, population)

    def is_narrow(n: int) -> bool:
        return bool(center_and_half_width(np.array(accuracy), effective_size(np.array(n), size), z)[1] <= margin)

    return 1 + bisect_left(range(1, size), True, key=is_narrow)
