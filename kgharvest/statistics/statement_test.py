"""Comparison of the accuracies of two sides on given relations by statements: interval, p value, and equivalence.

The difference is between two averages over strata (kgharvest.statistics.rates). Its interval combines the intervals of
the sides (MOVER: Zou and Donner 2008, "Construction of confidence limits about effect measures: a general approach",
Stat. Med. 27) and accounts for the correlation due to statements drawn for both sides, which share a verdict. p is 1
minus the confidence level of the interval that ends at 0, so p and the interval are consistent.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import SIGNIFICANCE, Z_95, Rate, VerdictSample, sample_rate, wilson_interval_of_share

FARTHEST = 38.0  # number of standard errors beyond which p is 0 in floating point
ROUNDING = 1e-9


class SideSample(NamedTuple):
    """Strata of one side over all compared relations. All arrays have shape (S,).

    accepted: evidence for acceptance. population: 0 if unknown. weight: weight of the stratum in the side's average;
    weights add up to 1. relation: number of the stratum's relation; both sides use the same numbers.
    """

    accepted: VerdictSample
    population: Counts
    weight: Floats
    relation: Counts


class SharedStatements(NamedTuple):
    """Numbers (S_a, S_b) of statements drawn for both stratum a and stratum b, and of accepted ones among them."""

    n: Floats
    n_hits: Floats


@dataclass(frozen=True)
class StatementDifference:
    """Difference of two sides. a, b: value and 95 % limits of each side.

    correlation: correlation of the two estimates, in [0, 1].
    """

    a: tuple[float, float, float]
    b: tuple[float, float, float]
    correlation: float

    @property
    def value(self) -> float:
        difference = self.a[0] - self.b[0]
        return 0.0 if abs(difference) < ROUNDING else difference

    @property
    def interval(self) -> tuple[float, float]:
        return max(-1.0, self.low_at(Z_95)), min(1.0, self.high_at(Z_95))

    @property
    def p(self) -> float:
        """Return the two-sided p value of the null hypothesis of no difference.

        It is 0 if both harvests are fully judged and differ.
        """
        return 2 * _tail(self.low_at if self.value > 0 else lambda z: -self.high_at(z))

    @property
    def smallest_margin(self) -> float:
        """Return the smallest margin within which two one-sided tests at .05 hold (Schuirmann 1987).

        It is the outer limit of the 90 % interval.
        """
        z = float(scipy.special.ndtri(1 - SIGNIFICANCE))
        return min(1.0, max(self.high_at(z), -self.low_at(z)))

    def low_at(self, z: float) -> float:
        return self.value - self._distance(_below(self.a, z), _above(self.b, z))

    def high_at(self, z: float) -> float:
        return self.value + self._distance(_above(self.a, z), _below(self.b, z))

    def _distance(self, of_a: float, of_b: float) -> float:
        return math.sqrt(max(0.0, of_a**2 + of_b**2 - 2 * self.correlation * of_a * of_b))


def statement_difference(
    a: SideSample, b: SideSample, shared: SharedStatements | None = None, rates: tuple[Rate, Rate] | None = None
) -> StatementDifference | None:
    """Compare the averages of two sides. Returns None if a side has no interval.

    shared: shared statements, None if there are none. rates: averages to use instead of those based on `a` and `b`
    alone.
    """
    rates = rates or (sample_rate(a.accepted, a.population, a.weight), sample_rate(b.accepted, b.population, b.weight))
    (value_a, low_a, high_a), (value_b, low_b, high_b) = (rate[:3] for rate in rates)
    if value_a is None or low_a is None or high_a is None or value_b is None or low_b is None or high_b is None:
        return None
    return StatementDifference(
        (value_a, low_a, high_a), (value_b, low_b, high_b), _correlation(a, b, shared) if shared else 0.0
    )


def _correlation(a: SideSample, b: SideSample, shared: SharedStatements) -> float:
    """Return the correlation of the two averages due to shared statements.

    For infinite harvests, the covariance is the sum of W_a W_b m s / (n_a n_b) over pairs of strata that share m
    statements, where s is the mean squared deviation of their verdicts from the relation's share p. If the shared
    statements are mostly true, s is less than the p (1 - p) of all statements. Samples that are drawn independently
    from harvests of N tuples also share some statements by chance, which does not make the estimates dependent.
    Therefore, an upper bound on the part of the covariance due to such statements is subtracted. The bound is half of
    both finite population corrections, the sum of W^2 p (1 - p) / N.
    """
    # Shares of hits (R,) over both sides together. They are shrunk toward one half (Agresti and Coull).
    relation = np.concatenate([a.relation, b.relation])
    n = np.bincount(relation, np.concatenate([a.accepted.n, b.accepted.n]))
    n_hits = np.bincount(relation, np.concatenate([a.accepted.n_hits, b.accepted.n_hits]))
    share = (n_hits + 2) / (n + 4)
    spread = share * (1 - share)
    of_a = share[a.relation][:, np.newaxis]
    squares = shared.n_hits * (1 - of_a) ** 2 + (shared.n - shared.n_hits) * of_a**2  # (S_a, S_b)
    squares = np.minimum(squares, shared.n * spread[a.relation][:, np.newaxis])
    covariances = squares * np.outer(a.weight / a.accepted.n, b.weight / b.accepted.n)
    covariance = np.bincount(a.relation, covariances.sum(axis=1), len(share))
    by_chance = np.zeros(len(share))
    variances = 1.0
    for side in (a, b):
        fraction = np.where(side.population > 0, side.accepted.n / np.maximum(side.population, 1), 0)
        variance = side.weight**2 / side.accepted.n * spread[side.relation]
        by_chance += np.bincount(side.relation, variance * fraction, len(share)) / 2
        variances *= float(variance @ np.maximum(1 - fraction, 0))
    if variances <= 0:
        return 0.0
    return min(1.0, float(np.maximum(covariance - by_chance, 0).sum()) / math.sqrt(variances))


def _below(rate: tuple[float, float, float], z: float) -> float:
    """Return the distance from the value down to its lower limit at `z` standard errors.

    The Wilson interval that matches the 95 % limit is used, because distances of exact limits are not proportional to
    z.
    """
    value, low, _ = rate
    if value - low < ROUNDING:  # the distance is zero except for a rounding error, whose square is 0
        return 0.0
    size = Z_95**2 * low * (1 - low) / (value - low) ** 2
    return value - wilson_interval_of_share(value, size, z)[0] if size > 0 else value - low


def _above(rate: tuple[float, float, float], z: float) -> float:
    value, low, high = rate
    return _below((1 - value, 1 - high, 1 - low), z)


def _tail(room_at: Callable[[float], float]) -> float:
    """Return the tail probability beyond the z at which `room_at` is 0. Requires `room_at(0)` >= 0."""
    if room_at(0.0) <= 0:
        return 0.5
    if room_at(FARTHEST) > 0:
        return 0.0
    return float(scipy.special.ndtr(-scipy.optimize.brentq(room_at, 0.0, FARTHEST, xtol=1e-9)))
