"""Rates of a sample, their intervals, and averages over relations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

Z_95 = 1.959963984540054  # the 97.5 % quantile of the standard normal distribution


class Rate(NamedTuple):
    """A proportion in [0, 1] with its 95 % interval; all three are None where nothing was counted."""

    value: float | None
    low: float | None
    high: float | None


def rate(n_hits: int, n: int) -> Rate:
    """Return `n_hits` / `n` with its Wilson interval."""
    if n == 0:
        return Rate(None, None, None)
    low, high = wilson_interval(n_hits, n)
    return Rate(n_hits / n, low, high)


def wilson_interval(n_hits: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """Return the score interval of a proportion from a simple sample of n >= 1 (Wilson 1927), inside [0, 1]."""
    share = n_hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half_width = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    # At 0 and n hits the bound is exact in the formula but not in floating point.
    low = 0.0 if n_hits == 0 else centre - half_width
    high = 1.0 if n_hits == n else centre + half_width
    return low, high


def macro_average(rates: Iterable[float | None]) -> float | None:
    """Return the mean over relations, each with the same weight; relations without a rate do not take part."""
    known = [value for value in rates if value is not None]
    return sum(known) / len(known) if known else None
