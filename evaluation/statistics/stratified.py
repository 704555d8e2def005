"""Rates of a sample that was drawn in strata of unequal size or at unequal shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.rates import wilson_interval_of_share

Counts = NDArray[np.int64]

# How much more than a simple sample strata are credited with at most. Strata with nothing but hits show no variance,
# which is luck rather than knowledge; without a bound they cover 93 % instead of 95 %.
MOST_CREDIT = 1.25

NOTHING_COUNTED = "No statement has a verdict."
EMPTY_STRATUM = "A stratum has no verdict yet, so nothing is known about its part of the harvest."
UNKNOWN_POPULATION = "It is not known how many tuples the statements were drawn from."


class WeightedRate(NamedTuple):
    """A share of a population in [0, 1] with its 95 % interval; `reason` says why they are None.

    n_effective: the size of the simple sample, with replacement, that would tell as much.
    """

    value: float | None
    low: float | None
    high: float | None
    n_effective: float | None
    reason: str | None


def stratified_rate(n_hits: Counts, n: Counts, population: Counts) -> WeightedRate:
    """Return the share of hits among all of `population`, from n draws in each stratum; shapes (S,).

    The stratified mean, which is Horvitz and Thompson's (1952) estimate over the known population, its variance with
    finite population correction (Cochran 1977, section 5.6), and Wilson's interval on the effective size, as Korn and
    Graubard (1998) do with Clopper and Pearson's.
    """
    if not n.sum():
        return WeightedRate(None, None, None, None, NOTHING_COUNTED)
    if not n.all():
        return WeightedRate(None, None, None, None, EMPTY_STRATUM)
    share = float(population @ (n_hits / n) / population.sum())
    n_effective = _effective_size(share, n_hits, n, population)
    if np.isinf(n_effective):  # the whole population was judged
        return WeightedRate(share, share, share, float(n.sum()), None)
    return WeightedRate(share, *wilson_interval_of_share(share, n_effective), n_effective, None)


def _effective_size(share: float, n_hits: Counts, n: Counts, population: Counts) -> float:
    """Return share * (1 - share) / variance, bounded by MOST_CREDIT times that of a simple sample of as many."""
    total, drawn = population.sum(), n.sum()
    if drawn == total:
        return np.inf
    bound = MOST_CREDIT * drawn / (1 - drawn / total)
    shares = n_hits / n
    # One draw shows no spread; the whole sample's stands in for it.
    spreads = np.where(n > 1, shares * (1 - shares) / np.maximum(n - 1, 1), share * (1 - share))
    variance = ((population / total) ** 2 * (1 - n / population) * spreads).sum()
    if variance <= 0:
        return float(bound)
    return float(min(share * (1 - share) / variance, bound))
