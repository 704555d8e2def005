"""Fixed-width intervals: judge statements until an accuracy is known to a margin, with a guaranteed coverage.

An interval for a fixed sample size covers less if sampling stops once the interval is narrow. An anytime-valid interval
requires two to three times the statements. Here, sampling stops once `half_width` is at most the margin, and the
interval is the center +- margin. benches/fixed_width.py calibrates the rule by dynamic programming: in simple random
samples of one label a statement, the interval at the stop covers every accuracy from .005 to .995 with a probability of
at least .945, even if the stop is checked after every statement. Averages over strata use an effective sample size.
docs/statistics.md compares other rules with the same guarantee.
"""

from bisect import bisect_left
from math import floor, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import VerdictSample

# Numbers that are added to the sample: statements in the standard deviation, and hits and misses in its share and in
# the center. They were found by search. benches/fixed_width.py compares the rule with others.
ADDED, ADDED_HITS, ADDED_TO_CENTER = 1.5, 0.95, 2.1
AS_GOOD_AS_INFINITE = 1_000_000  # number of tuples
Z_UP_TO_MARGIN = ((0.05, 2.076), (0.1, 2.1), (0.2, 2.16), (0.5, 2.28))
# At a margin of .05: sizes that are assumed for populations up to this size, and their z. Sizes with a small z were
# chosen. Without rounding, z would depend on the size irregularly.
MARGIN_OF_SIZES = 0.05
ASSUMED_SIZES = (
    (1398, 2.048),
    (1870, 2.048),
    (2915, 2.052),
    (4900, 2.048),
    (9415, 2.056),
    (19_000, 2.052),
    (48_000, 2.064),
    (inf, 2.068),
)
# If few of the shares that a population can have are within a margin, coverage is irregular.
FEWEST_WITHIN, Z_OF_SMALL = 3, 10.0  # nearly all statements are judged
FEW_WITHIN, Z_OF_FEW = 50, 2.16


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
    total = int(population.sum()) if population.all() else 0
    assumed, z = closing_rule(margin, total)
    size = np.where(population > 0, np.maximum(population, 1) * (assumed / total if total else 1), inf)
    unjudged = (1 - sample.n / size) / np.where(size > 1, 1 - 1 / size, 1)
    unjudged = np.where(sample.n == population, 0, unjudged).clip(0)
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


def effective_size(n: Counts, size: float) -> Floats:
    """Return the size of the sample with replacement that has the variance of `n` statements among `size`."""
    effective: Floats = n * (1 - 1 / size) / np.maximum(1 - n / size, 1e-12)
    return effective


def closing_rule(margin: float, population: int = 0) -> tuple[float, float]:
    """Return the assumed size of the population and a z that guarantee the coverage. population: 0 if unknown."""
    size = population or inf
    within = margin * size
    if within < FEWEST_WITHIN:
        return size, Z_OF_SMALL
    if within >= FEW_WITHIN and margin == MARGIN_OF_SIZES:
        return next((assumed, z) for assumed, z in ASSUMED_SIZES if size <= assumed)
    z = next((z for largest, z in Z_UP_TO_MARGIN if margin <= largest), Z_OF_SMALL)
    if within < FEW_WITHIN:
        # An interval contains at least floor(2 `within`) of the shares that the population can have.
        z = max(z, Z_OF_FEW) * 2 * within / floor(2 * within + 1e-9)
    return size, z


def expected_statements(accuracy: float, margin: float, population: int = 0) -> int:
    """Return the number of statements at which a sample with this accuracy stops. population: 0 if unknown."""
    size, z = closing_rule(margin, population)

    def is_narrow(n: int) -> bool:
        return bool(center_and_half_width(np.array(accuracy), effective_size(np.array(n), size), z)[1] <= margin)

    return 1 + bisect_left(range(1, population or AS_GOOD_AS_INFINITE), True, key=is_narrow)
