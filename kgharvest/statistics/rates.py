"""Rates that are about no finite population: of simple samples, of weighted draws; averages and differences of rates.

Rates of a harvest, and averages over these relations, are those of kgharvest.statistics.cell_rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from kgharvest.statistics.arrays import Floats

SIGNIFICANCE = 0.05  # the level of every test and, as 1 minus it, of every interval
Z_95 = float(ndtri(1 - SIGNIFICANCE / 2))  # the 97.5 % quantile of the standard normal distribution


NOTHING_COUNTED = "No statement has a verdict."


class Rate(NamedTuple):
    """A share in [0, 1] with its 95 % interval; `reason` says why there is no share."""

    value: float | None
    low: float | None
    high: float | None
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
    return Rate(n_hits / n, *wilson_interval(n_hits, n))


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


def difference_interval(a: Rate, b: Rate) -> tuple[float | None, float | None]:
    """Return the interval of a minus b for two independent rates, from their own intervals.

    Newcombe (1998), Interval estimation for the difference between independent proportions: method 10 with whichever
    intervals the two have. Too wide rather than too narrow if the two samples share statements.
    """
    if a.with_interval is None or b.with_interval is None:
        return None, None
    value_a, low_a, high_a = a.with_interval
    value_b, low_b, high_b = b.with_interval
    difference = value_a - value_b
    below = math.hypot(value_a - low_a, high_b - value_b)
    above = math.hypot(high_a - value_a, value_b - low_b)
    return max(-1.0, difference - below), min(1.0, difference + above)


# -- by score ----------------------------------------------------------------------------------------------------------

MOST_BINS = 10
FEWEST_PER_BIN = 5


class Bin(NamedTuple):
    """The n draws with a score in [score_low, score_high], and the accuracy of the tuples that they stand for.

    accepted: how many of them, incomplete ones with what their labels say.
    """

    score_low: float
    score_high: float
    n: int
    accepted: float
    accuracy: float
    low: float
    high: float


def accuracy_by_score(score: Floats, n: Floats, n_accepted: Floats, weight: Floats) -> list[Bin]:
    """Return bins of about equally many draws, lowest scores first; equal scores stay in one bin. Shapes (D,).

    n, n_accepted: for how many complete statements a draw counts, and for how many accepted ones. weight: for how many
    tuples one of these stands.
    """
    order = np.argsort(score, kind="stable")
    n_bins = max(1, min(MOST_BINS, len(score) // FEWEST_PER_BIN))
    columns = [column[order] for column in (score, n, n_accepted, weight)]
    edges = np.unique(np.searchsorted(columns[0], columns[0][np.arange(n_bins) * len(score) // n_bins]))
    ends = [*edges[1:].tolist(), len(score)]
    bins = []
    for start, end in zip(edges.tolist(), ends, strict=True):
        score, n, n_accepted, weight = (column[start:end] for column in columns)
        accuracy = hajek_share(float(weight @ n), float(weight @ n_accepted), float(weight**2 @ n))
        bins.append(Bin(float(score[0]), float(score[-1]), len(score), float((n_accepted / n).sum()), *accuracy))
    return bins
