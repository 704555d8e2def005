"""Rates and their intervals: of simple samples, of strata, of weighted draws; averages over relations, differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

Z_95 = float(ndtri(0.975))  # the 97.5 % quantile of the standard normal distribution


NOTHING_COUNTED = "No statement has a verdict."
EMPTY_STRATUM = "A stratum has no verdict yet, so nothing is known about its part of the harvest."
UNKNOWN_POPULATION = "It is not known how many tuples the statements were drawn from."


class Rate(NamedTuple):
    """A share of a population in [0, 1] with its 95 % interval; `reason` says why there is no share.

    n_effective: the size of the simple sample, with replacement, that would tell as much.
    """

    value: float | None
    low: float | None
    high: float | None
    n_effective: float | None = None
    reason: str | None = None

    @property
    def with_interval(self) -> tuple[float, float, float] | None:
        """Return value, low and high; None where one of them is not known."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.value, self.low, self.high


def unknown_rate(reason: str) -> Rate:
    return Rate(None, None, None, reason=reason)


def rate(n_hits: int, n: int) -> Rate:
    """Return `n_hits` / `n` of a simple sample with its Wilson interval."""
    if n == 0:
        return unknown_rate(NOTHING_COUNTED)
    return Rate(n_hits / n, *wilson_interval(n_hits, n), float(n))


def hajek_rate(is_hit: Flags, weight: Floats) -> Rate:
    """Return the share of hits among all that draws stand for; weight: for how many each does. Shapes (D,)."""
    if not len(weight):
        return unknown_rate(NOTHING_COUNTED)
    return Rate(*hajek_share(float(weight.sum()), float(weight @ is_hit), float(weight @ weight)))


def hajek_share(weight: float, hits: float, squares: float) -> tuple[float, float, float]:
    """Return Hajek's estimate with its 95 % interval from sums over draws of unequal weight.

    Weighted hits over weights, and Wilson's interval on Kish's effective size. squares: the sum of squared weights.
    """
    share = min(float(hits / weight), 1.0)
    return share, *wilson_interval_of_share(share, float(weight**2 / squares))


def wilson_interval(n_hits: int, n: int) -> tuple[float, float]:
    """Return the score interval of a proportion from a simple sample of n >= 1 (Wilson 1927), inside [0, 1]."""
    return wilson_interval_of_share(n_hits / n, n)


def wilson_interval_of_share(share: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's interval for a share seen in a sample worth `n` > 0 simple draws, a whole number or not."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half_width = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    # At 0 and 1 the bound is exact in the formula but not in floating point.
    low = 0.0 if share == 0 else centre - half_width
    high = 1.0 if share == 1 else centre + half_width
    return low, high


def macro_average(rates: Iterable[float | None]) -> float | None:
    """Return the mean over relations, each with the same weight; relations without a rate do not take part."""
    known = [value for value in rates if value is not None]
    return sum(known) / len(known) if known else None


def macro_interval(rates: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the interval of the mean over relations like these: Student's t over relations, cut to [0, 1].

    What relations differ by and what sampling within them adds are both in their spread. Needs two relations.
    """
    n = len(rates)
    if n < 2:
        return None, None
    mean, standard_error = float(np.mean(rates)), float(np.std(rates, ddof=1)) / math.sqrt(n)
    if standard_error == 0:
        return None, None
    half_width = float(stdtrit(n - 1, 0.975)) * standard_error
    return max(0.0, mean - half_width), min(1.0, mean + half_width)


def mean_of_these(rates: Sequence[float], n_effective: Sequence[float]) -> Rate:
    """Return the mean over these very relations; its interval knows only the sampling within each.

    Wilson's interval for the mean, on the size of a simple sample with the mean's variance. A relation of share p from
    a sample worth n varies by p (1 - p) / n, p drawn towards one half (Agresti and Coull 1998): at 0 or 1 it would not.
    """
    if not len(rates):
        return Rate(None, None, None)
    shares, sizes = np.asarray(rates, dtype=np.float64), np.asarray(n_effective, dtype=np.float64)  # (R,)
    drawn_in = (shares * sizes + Z_95**2 / 2) / (sizes + Z_95**2)
    variance = float((drawn_in * (1 - drawn_in) / sizes).sum()) / len(shares) ** 2
    mean = float(shares.mean())
    middle = min(max(mean, float(drawn_in.min())), float(drawn_in.max()))
    return Rate(mean, *wilson_interval_of_share(mean, middle * (1 - middle) / variance))


def difference_interval(a: Rate, b: Rate) -> tuple[float | None, float | None]:
    """Return the interval of a minus b for two independent rates, from their own intervals.

    Newcombe (1998), Interval estimation for the difference between independent proportions, method 10, where the two
    intervals are Wilson's. Too wide rather than too narrow if the two samples share statements.
    """
    if a.with_interval is None or b.with_interval is None:
        return None, None
    value_a, low_a, high_a = a.with_interval
    value_b, low_b, high_b = b.with_interval
    difference = value_a - value_b
    below = math.hypot(value_a - low_a, high_b - value_b)
    above = math.hypot(high_a - value_a, value_b - low_b)
    return max(-1.0, difference - below), min(1.0, difference + above)


# How much more than a simple sample strata are credited with at most. Strata with nothing but hits show no variance,
# which is luck rather than knowledge; without a bound they cover 93 % instead of 95 %.
MOST_CREDIT = 1.25


def stratified_rate(n_hits: Counts, n: Counts, population: Counts) -> Rate:
    """Return the share of hits among all of `population`, from n draws in each stratum; shapes (S,).

    The stratified mean, which is Horvitz and Thompson's (1952) estimate over the known population, its variance with
    finite population correction (Cochran 1977, section 5.6), and Wilson's interval on the effective size, as Korn and
    Graubard (1998) do with Clopper and Pearson's.
    """
    if not n.sum():
        return unknown_rate(NOTHING_COUNTED)
    if not n.all():
        return unknown_rate(EMPTY_STRATUM)
    share = float(population @ (n_hits / n) / population.sum())
    n_effective = _effective_size(share, n_hits, n, population)
    if np.isinf(n_effective):  # the whole population was judged
        return Rate(share, share, share, float(n.sum()))
    return Rate(share, *wilson_interval_of_share(share, n_effective), n_effective)


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
