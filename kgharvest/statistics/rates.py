"""Rates with 95 % intervals for simple samples, weighted draws, and strata, and averages and differences of rates.

`population_rate` computes every rate of a harvest: for a cell, a cut, a point of a curve, or an average over the given
relations. A stratum is a part of the population with a known size, from which a simple random sample was judged. The
intervals of `population_rate` hold for a finite population, so the interval of a census has no width. The other
functions assume an infinite population.

The interval of `population_rate` inverts a test at level 5 %. It uses the exact distribution of the estimate:
hypergeometric in each stratum, and convolved over strata. Acceptability follows Blaker (2000), "Confidence curves and
improved exact confidence intervals for discrete distributions", Canad. J. Statist. 28. Blaker's interval is never wider
than Clopper and Pearson's. The shares of several strata are profiled out (profile likelihood, Miettinen and Nurminen
1985). docs/statistics.md reports the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from kgharvest.statistics.arrays import Codes, Counts, Flags, Floats
from kgharvest.statistics.clusters import design_effects

SIGNIFICANCE = 0.05  # level of every test; intervals have the confidence level 1 - SIGNIFICANCE
Z_95 = 1.959963984540054  # scipy.special.ndtri(1 - SIGNIFICANCE / 2); a literal, because scipy.special loads slowly

NOTHING_COUNTED = "No statement has a verdict."


class Rate(NamedTuple):
    """A share in [0, 1] with its 95 % interval. `reason` explains a missing value."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    @property
    def with_interval(self) -> tuple[float, float, float] | None:
        """Return (value, low, high), or None if any of them is undefined."""
        if self.value is None or self.low is None or self.high is None:
            return None
        return self.value, self.low, self.high


def rate(n_hits: int, n: int) -> Rate:
    """Return the share of `n_hits` in a simple sample of `n`, with its Wilson interval."""
    if n == 0:
        return Rate(reason=NOTHING_COUNTED)
    return Rate(n_hits / n, *wilson_interval(n_hits, n))


def hajek_share(weight: float, hits: float, squares: float) -> tuple[float, float, float]:
    """Return Hajek's estimate and its 95 % interval, given sums over draws of unequal weight.

    The interval is Wilson's interval with Kish's effective sample size. squares: sum of the squared weights.
    """
    share = min(float(hits / weight), 1.0)
    return share, *wilson_interval_of_share(share, float(weight**2 / squares))


def wilson_interval(n_hits: int, n: int) -> tuple[float, float]:
    """Return the score interval in [0, 1] of a proportion from a simple sample of n >= 1 (Wilson 1927)."""
    return wilson_interval_of_share(n_hits / n, n)


def wilson_interval_of_share(share: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's interval for an effective sample size `n` > 0, which can be fractional."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half_width = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    # At 0 and 1, the formula gives exact limits, but floating-point arithmetic does not.
    low = 0.0 if share == 0 else centre - half_width
    high = 1.0 if share == 1 else centre + half_width
    return low, high


def macro_average(rates: Iterable[float | None]) -> float | None:
    """Return the unweighted mean over relations. Relations without a rate are ignored."""
    defined_rates = [value for value in rates if value is not None]
    return sum(defined_rates) / len(defined_rates) if defined_rates else None


def macro_interval(rates: Sequence[float]) -> tuple[float | None, float | None]:
    """Return Student's t interval of the mean over similar relations, clipped to [0, 1]. Requires two relations.

    The spread of the rates contains both the variance between relations and the sampling variance within them.
    """
    n = len(rates)
    if n < 2:
        return None, None
    mean, standard_error = float(np.mean(rates)), float(np.std(rates, ddof=1)) / math.sqrt(n)
    if standard_error == 0:
        return None, None
    half_width = float(scipy.special.stdtrit(n - 1, 0.975)) * standard_error
    return max(0.0, mean - half_width), min(1.0, mean + half_width)


def difference_interval(a: Rate, b: Rate) -> tuple[float | None, float | None]:
    """Return the interval of a - b for two independent rates.

    This is method 10 of Newcombe (1998), Interval estimation for the difference between independent proportions,
    applied to the given intervals. The result is conservative if the two samples share statements.
    """
    if a.with_interval is None or b.with_interval is None:
        return None, None
    value_a, low_a, high_a = a.with_interval
    value_b, low_b, high_b = b.with_interval
    difference = value_a - value_b
    below = math.hypot(value_a - low_a, high_b - value_b)
    above = math.hypot(high_a - value_a, value_b - low_b)
    return max(-1.0, difference - below), min(1.0, difference + above)


# Accuracy by score

MOST_BINS = 10
FEWEST_PER_BIN = 5


class Bin(NamedTuple):
    """Accuracy of the tuples represented by the n draws whose score is in [score_low, score_high].

    accepted: number of accepted draws. Incomplete statements count with their expected verdict.
    """

    score_low: float
    score_high: float
    n: int
    accepted: float
    accuracy: float
    low: float
    high: float


def accuracy_by_score(score: Floats, n: Floats, n_accepted: Floats, weight: Floats) -> list[Bin]:
    """Return bins with about equal numbers of draws, in ascending order of scores. Equal scores share a bin.

    All arrays have shape (D,). n, n_accepted: numbers of complete statements, and of accepted complete statements, to
    which a draw is equivalent. weight: number of tuples that a complete statement represents.
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


# Rates of cells

ROUNDING = 1e-9  # tolerance for comparing tail probabilities
DISTANCE_OF_LIMITS = float(np.sqrt(-2 * np.log(SIGNIFICANCE)))
DECIMALS = 11  # number of decimals of hits and weights; further digits depend on the order of summation
PRECISION = 1e-4  # precision of the limits of a stratified interval
GRID = 4096  # number of grid points in [0, 1] for the distribution of stratified estimates
STEEPEST = 20.0  # asinh of the multiplier at which every stratum reaches its minimum or maximum
MOST_CONVOLVED = 60  # maximum number of convolved strata; with more strata, the mean is normal except for its skewness
# With fewer strata, the normal approximation is used only if the skewness is below the first limit, and the effect of a
# single draw in standard errors is below the second limit.
MOST_SKEWED, COARSEST = 0.15, 0.2
MANY_STRATA, FEW_DRAWS = 8, 10  # effective number of strata, and mean number of draws, from which strata are thin
uses_thin_rule = ContextVar("uses_thin_rule", default=True)  # False to reproduce the numbers of older reports
AS_GOOD_AS_INFINITE = 10_000_000  # number of tuples; gamma functions of larger numbers lose digits
CANDIDATES = 2000  # approximate maximum of the numbers of hits that are tried for a limit of a simple sample
FINEST = 1_000_000  # resolution of shares of an infinite population

EMPTY_STRATUM = "A stratum has no verdict yet, so its part of the harvest is unknown."
UNKNOWN_POPULATION = "The number of tuples from which the statements were drawn is unknown."


class VerdictSample(NamedTuple):
    """Evidence for one verdict, by stratum (S,) or by draw (D,). The evidence of a stratum is the sum over its draws.

    n: equivalent number of complete statements. n_hits: number of these statements that have the verdict. least, most:
    bounds on n_hits, which differ if the labels do not identify the share (kgharvest.statistics.verdicts).
    """

    n: Floats
    n_hits: Floats
    least: Floats
    most: Floats

    @classmethod
    def of_complete(cls, n: ArrayLike, n_hits: ArrayLike) -> VerdictSample:
        hits = np.asarray(n_hits, dtype=np.float64)
        return cls(np.asarray(n, dtype=np.float64), hits, hits, hits)

    def summed(self, stratum: Counts, n_strata: int) -> VerdictSample:
        """Return sums by stratum. `stratum` (D,) is the stratum of each draw."""
        return VerdictSample(*(np.bincount(stratum, column, n_strata).astype(np.float64) for column in self))

    def divided(self, effects: Floats) -> VerdictSample:
        """Return the sample with its numbers of statements divided by `effects`, which have the same shape.

        Shares do not change.
        """
        return VerdictSample(*(column / effects for column in self))

    def effective(self, effects: Floats) -> VerdictSample:
        """Return the sample divided by the design effects of its groups, but by at most its number of statements.

        The limit keeps every group at one effective statement or more: with incomplete statements, a design effect can
        exceed the number of statements that a group is worth.
        """
        return self.divided(np.minimum(effects, np.maximum(self.n, 1)))

    def at(self, positions: Counts | NDArray[np.bool_] | list[int]) -> VerdictSample:
        return VerdictSample(*(column[positions] for column in self))


def sample_rate(sample: VerdictSample, population: ArrayLike, weights: ArrayLike | None = None) -> Rate:
    """Return `population_rate` of a sample. The limits are computed from its minimum and maximum numbers of hits."""
    rate = population_rate(sample.n_hits, sample.n, population, weights)
    if rate.value is None or np.array_equal(sample.least, sample.most):
        return rate
    least, most = (population_rate(hits, sample.n, population, weights) for hits in (sample.least, sample.most))
    return Rate(rate.value, least.low, most.high)


def population_rate(
    n_hits: ArrayLike, n: ArrayLike, population: ArrayLike, weights: ArrayLike | None = None, *, has_limits: bool = True
) -> Rate:
    """Return the share of hits in a stratified population. In each stratum, `n` of `population` tuples were judged.

    n_hits, n (S,): numbers of hits and judged tuples. They can be fractional if statements are incomplete. The limits
    are then those of the nearest integer samples on either side of the share. population: 0 if unknown. An unknown
    population is treated as infinite, and several strata then need weights. weights: weights of the strata, which add
    up to 1. If None, the shares of the population are used. In an average over cells, each cell's weight is divided
    among its strata. has_limits: if False, the limits are omitted, because they are slow to compute.
    """
    worth, sizes = np.asarray(n, dtype=np.float64), np.asarray(population, dtype=np.int64)
    judged = whole_statements(worth)
    if not judged.sum():
        return Rate(reason=NOTHING_COUNTED)
    if not judged.all():
        return Rate(reason=EMPTY_STRATUM)
    if len(sizes) > 1 and not sizes.all() and weights is None:
        return Rate(reason=UNKNOWN_POPULATION)
    shares = np.asarray(n_hits, dtype=np.float64) / worth
    if weights is None:
        parts = sizes / sizes.sum() if sizes.all() else np.ones(1)
    else:
        parts = np.asarray(weights, dtype=np.float64)
    value = float(np.clip(parts @ shares, 0, 1))  # rounding errors can lead outside [0, 1]
    if not has_limits:
        return Rate(value, None, None)
    if len(sizes) > 1:
        sizes = np.where(sizes, sizes, AS_GOOD_AS_INFINITE)
    shares = np.clip(shares, 0, 1)  # rounding errors can move sums of probabilities outside [0, n]
    open_strata = np.flatnonzero(judged != sizes)  # strata in which some tuples are not judged
    if not len(open_strata):
        return Rate(value, value, value)
    if len(open_strata) > 1:
        if uses_thin_rule.get() and _are_thin(judged[open_strata], parts[open_strata]):
            return Rate(value, *_thin_interval(value, shares * judged, judged, sizes, parts))
        return Rate(value, *_interval_over_strata(value, shares * judged, judged, sizes, parts))
    [stratum] = open_strata.tolist()
    share, weight = float(shares[stratum]), float(parts[stratum])
    drawn, size = int(judged[stratum]), int(sizes[stratum])
    low, _ = simple_interval(int(np.floor(share * drawn + ROUNDING)), drawn, size)
    _, high = simple_interval(int(np.ceil(share * drawn - ROUNDING)), drawn, size)
    low, high = np.clip([value - weight * (share - low), value + weight * (high - share)], 0, 1).tolist()
    return Rate(value, low, high)


def whole_statements(worth: Floats) -> Counts:
    """Round down equivalent numbers of complete statements. More than half of a statement counts as one."""
    return np.where(worth > 0.5, np.maximum(np.floor(worth + ROUNDING), 1), 0).astype(np.int64)


# Simple samples


@lru_cache(maxsize=100_000)
def simple_interval(n_hits: int, n: int, population: int = 0) -> tuple[float, float]:
    """Return Blaker's exact interval of a share for `n_hits` among `n` >= 1 draws without replacement.

    population: 0 if infinite, which gives the binomial interval. If the population is finite, the limits are shares
    that it can have.
    """
    if 2 * n_hits < n:
        low, high = simple_interval(n - n_hits, n, population)
        return 1 - high, 1 - low
    if population == n:
        return n_hits / n, n_hits / n
    return _limit(n_hits, n, population, lower=True), _limit(n_hits, n, population, lower=False)


def _limit(n_hits: int, n: int, population: int, *, lower: bool) -> float:
    """Return the acceptable share that is farthest from the observed share, below it if `lower`, otherwise above it.

    The monotone tail is bisected to find Clopper and Pearson's limit. A search from there inward finds Blaker's limit.
    """
    if n_hits == n and not lower:
        return 1.0
    known_hits, known_misses = (n_hits, n - n_hits) if population else (0, 0)
    size = population or FINEST
    least, most = known_hits, size - known_misses  # possible numbers of hits in the population
    observed = min(max(round(n_hits / n * size), least), most)
    outside, inside = (least, observed) if lower else (most, observed)
    if _tail(outside, n_hits, n, size, population, lower) <= SIGNIFICANCE / 2:
        while abs(inside - outside) > 1:
            middle = (inside + outside) // 2
            if _tail(middle, n_hits, n, size, population, lower) > SIGNIFICANCE / 2:
                inside = middle
            else:
                outside = middle
    else:
        inside = outside
    step = max(1, abs(observed - inside) // CANDIDATES)
    direction = step if lower else -step
    start, n_at_once = 0, 8
    while start <= abs(observed - inside) // step:
        candidates = inside + direction * np.arange(start, start + n_at_once)
        candidates = candidates[(candidates <= observed) if lower else (candidates >= observed)]
        acceptable = _acceptability(_outcomes(candidates, n, size, population), n_hits) > SIGNIFICANCE
        if acceptable.any():
            return float(candidates[acceptable.argmax()] / size)
        start, n_at_once = start + n_at_once, min(2 * n_at_once, 256)
    return observed / size


def _tail(hits_in_all: int, n_hits: int, n: int, size: int, population: int, lower: bool) -> float:
    """Return the probability of at least (`lower`) or at most `n_hits` if the population has `hits_in_all` hits."""
    [probabilities] = _outcomes(np.array([hits_in_all]), n, size, population)
    return float(probabilities[n_hits:].sum() if lower else probabilities[: n_hits + 1].sum())


def _outcomes(hits_in_all: Counts, n: int, size: int, population: int) -> Floats:
    """Return the probabilities of 0..n hits in the sample (K, n + 1) for each number of hits in the population."""
    if population:
        return hypergeometric(hits_in_all.astype(np.float64), n, size)
    share = (hits_in_all / size)[:, None]  # (K, 1)
    hits = np.arange(n + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds = np.where(hits > 0, hits * np.log(share), 0) + np.where(hits < n, (n - hits) * np.log1p(-share), 0)
    gammaln = scipy.special.gammaln
    log_choose = gammaln(n + 1) - gammaln(hits + 1) - gammaln(n - hits + 1)
    probabilities: Floats = np.exp(log_odds + log_choose)
    return probabilities


def hypergeometric(hits_in_all: Floats, n: int, population: int) -> Floats:
    """Return the hypergeometric probabilities (K, n + 1) of 0..n hits. `hits_in_all` (K,) can be fractional.

    Gamma functions interpolate the binomial coefficients, so the rate can vary continuously.
    """
    hits = np.arange(n + 1)
    inside, outside = hits_in_all[:, None] - hits, (population - hits_in_all)[:, None] - (n - hits)  # (K, n + 1)
    possible = (inside > -ROUNDING) & (outside > -ROUNDING)
    gammaln = scipy.special.gammaln
    # Binomial coefficients without the factorials that all outcomes have in common.
    factorials = gammaln(hits + 1)
    logs = -(factorials + factorials[::-1] + gammaln(np.maximum(inside, 0) + 1) + gammaln(np.maximum(outside, 0) + 1))
    logs = np.where(possible, logs, -np.inf)
    probabilities: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def _acceptability(probabilities: Floats, observed: int) -> Floats:
    """Return Blaker's acceptability (K,) of the distributions (K, n + 1).

    The acceptability is the smaller tail at the observed value, plus the largest opposite tail that does not exceed the
    smaller tail.
    """
    below, above = probabilities.cumsum(axis=1), probabilities[:, ::-1].cumsum(axis=1)[:, ::-1]
    smaller = np.minimum(below[:, observed], above[:, observed])
    others = np.where((below[:, observed] <= above[:, observed])[:, None], above, below)
    opposite = np.where(others <= smaller[:, None] + ROUNDING, others, 0).max(axis=1)
    acceptability: Floats = np.minimum(smaller + opposite, 1)
    return acceptability


# Several strata


def _are_thin(n: Counts, weights: Floats) -> bool:
    """Return whether there are many strata with few draws, none of which dominates the variance."""
    spread = weights**2 / n
    return bool(n.mean() < FEW_DRAWS and spread.sum() ** 2 >= MANY_STRATA * (1 - ROUNDING) * (spread**2).sum())


def _thin_interval(value: float, n_hits: Floats, n: Counts, population: Counts, weights: Floats) -> tuple[float, float]:
    """Return Wilson's interval with an effective sample size, for many strata with few draws.

    Strata of two or three draws without a miss would have no variance, so a hit and a miss are added to each. The
    quantile is Student's, with the degrees of freedom of draws within strata.
    """
    smoothed = (n_hits + 1) / (n + 2)
    variances = weights**2 * smoothed * (1 - smoothed) / n * (population - n) / np.maximum(population - 1, 1)
    mean, freedom = float(weights @ smoothed), max(int(n.sum()) - len(n), 1)
    quantile = float(scipy.special.stdtrit(freedom, 1 - SIGNIFICANCE / 2))
    low, high = wilson_interval_of_share(value, mean * (1 - mean) / float(variances.sum()), quantile)
    least, most = float(weights @ (n_hits / population)), 1 - float(weights @ ((n - n_hits) / population))
    return min(max(low, least), value), max(min(high, most), value)


def _interval_over_strata(
    value: float, n_hits: Floats, n: Counts, population: Counts, weights: Floats
) -> tuple[float, float]:
    """Return the outer limits of the nearest integer sample and of this sample shifted to `value`."""
    # Sorting and rounding make the limits independent of the order of strata and of summation. Otherwise, the order
    # would decide ties at one half and at steps.
    nearest = np.rint(n_hits.round(DECIMALS))
    columns = (nearest, n, population, weights.round(DECIMALS))
    strata = sorted(zip(*(column.tolist() for column in columns), strict=True))
    low, high = _stratified_interval(tuple(strata))
    moved = value - float(weights @ (nearest / n))
    if abs(moved) < ROUNDING:
        moved = 0.0
    low, high = np.clip([low + min(moved, 0), high + max(moved, 0)], 0, 1).tolist()
    return low, high


@lru_cache(maxsize=10_000)
def _stratified_interval(strata: tuple[tuple[float, int, int, float], ...]) -> tuple[float, float]:
    """Return the interval of a stratified sample. strata: tuples of hits, n, population, and weight."""
    columns = [np.array(column) for column in zip(*strata, strict=True)]
    n_hits, n, population, weights = columns[0], columns[1], columns[2], columns[3]
    value = float(weights @ (n_hits / n))
    of_misses = tuple(sorted((n - hits, n, size, weight) for hits, n, size, weight in strata))
    # Use the same search for hits and misses, so that the limits are symmetric, even at one half.
    if value < 0.5 - ROUNDING or (value <= 0.5 + ROUNDING and strata < of_misses):
        low, high = _stratified_interval(of_misses)
        return 1 - high, 1 - low

    def distance(rate: float) -> float:
        """Return the distance of `rate` from rejection in standard errors. It is almost linear in `rate`."""
        acceptability = _stratified_acceptability(rate, n_hits, n, population, weights)
        return DISTANCE_OF_LIMITS - float(np.sqrt(-2 * np.log(max(acceptability, 1e-300))))

    least, most = float(weights @ (n_hits / population)), 1 - float(weights @ ((n - n_hits) / population))
    low, high = (
        outside
        if distance(outside) > 0
        else scipy.optimize.brentq(distance, outside, value, xtol=PRECISION, rtol=PRECISION)
        for outside in (least, most)
    )
    if strata == of_misses:
        low, high = min(low, 1 - high), max(high, 1 - low)
    return float(low), float(high)


def _stratified_acceptability(rate: float, n_hits: Floats, n: Counts, population: Counts, weights: Floats) -> float:
    """Return the acceptability of the observed estimate if the population has the rate `rate`.

    Strata are profiled out.
    """
    shares = likeliest_shares(rate, n_hits, n, population, weights)
    score = _normal_score(float(weights @ (n_hits / n)) - rate, shares, n, population, weights)
    if score is not None:
        return float(2 * scipy.special.ndtr(-abs(score)))
    probabilities = _distribution(shares, n, population, weights)
    # Each outcome is split between two neighboring grid points. The resulting error is at most one grid point per
    # stratum. Over many strata, it is normal, with a standard deviation of at most half the square root of the number
    # of strata. Differences within the error count as ties.
    observed, near = float(weights @ (n_hits / n)) * (GRID - 1), 0.5 + min(0.5 * len(n), len(n) ** 0.5)
    up_to, down_to = int(observed + near), max(0, int(np.ceil(observed - near)))
    below, above = probabilities.cumsum(), probabilities[::-1].cumsum()[::-1]
    tails = below[min(up_to, GRID - 1)], above[min(down_to, GRID - 1)]
    smaller, others = min(tails), above if tails[0] <= tails[1] else below
    return float(min(1, smaller + others[others <= smaller + ROUNDING].max(initial=0)))


def _normal_score(difference: float, shares: Floats, n: Counts, population: Counts, weights: Floats) -> float | None:
    """Return the score statistic corrected for skewness (Gart and Nam 1988), or None if strata must be convolved.

    The correction has a monotone form (after Hall 1992, JRSS B 54). The simpler form score - a (score^2 - 1) with a =
    skewness / 6 would accept rates that are twenty standard errors away.
    """
    others = np.maximum(population - 1, 1)
    spread = weights**2 * shares * (1 - shares) / n * (population - n) / others
    skew = weights * spread * (1 - 2 * shares) / n * (population - 2 * n) / np.maximum(population - 2, 1)
    variance = float(spread.sum())
    is_open = n < population
    too_many = np.count_nonzero(is_open) > MOST_CONVOLVED
    if variance <= 0:
        return (0.0 if abs(difference) < ROUNDING else np.inf) if too_many else None
    deviation, skewness = np.sqrt(variance), float(skew.sum()) / variance**1.5
    is_normal = abs(skewness) < MOST_SKEWED and (weights / n)[is_open].max() < COARSEST * deviation
    if not (too_many or is_normal):
        return None
    score = difference / deviation
    a = skewness / 6
    return float(score - a * (score**2 - 1) + a**2 * score**3 / 3)


def _distribution(shares: Floats, n: Counts, population: Counts, weights: Floats) -> Floats:
    """Return the distribution (GRID,) of the weighted mean of the strata's sample shares.

    Splitting each outcome between the two nearest grid points preserves the mean.
    """
    transformed = np.ones(GRID + 1, dtype=np.complex128)
    for share, drawn, size, weight in zip(shares, n.tolist(), population.tolist(), weights, strict=True):
        if drawn == size:
            positions, probabilities = np.array([weight * share * (GRID - 1)]), np.ones(1)
        else:
            positions = weight * np.arange(drawn + 1) / drawn * (GRID - 1)
            [probabilities] = hypergeometric(np.array([share * size]), drawn, size)
        left = positions.astype(np.int64)
        to_the_right = positions - left
        stratum = np.bincount(left, probabilities * (1 - to_the_right), 2 * GRID)
        stratum += np.bincount(left + 1, probabilities * to_the_right, 2 * GRID)
        transformed *= np.fft.rfft(stratum)
    whole: Floats = np.maximum(np.fft.irfft(transformed)[: GRID + len(n)], 0)
    whole[GRID - 1] += whole[GRID:].sum()
    return whole[:GRID]


def likeliest_shares(rate: float, n_hits: Floats, n: Counts, population: Counts, weights: Floats) -> Floats:
    """Return the most likely shares of hits (S,) among all shares with the weighted mean `rate`.

    Stratum h contributes the information of n_h (N_h - 1) / (N_h - n_h) draws. At the constrained maximum, the
    stratum's log-likelihood has the slope t w_h, where w_h is the weight. This gives a quadratic equation in the share.
    The mean decreases in t. Shares stay in the range that the judged part of the stratum allows.
    """
    is_open = n < population
    shares: Floats = n_hits / n
    hits, drawn, size, weight = n_hits[is_open], n[is_open], population[is_open], weights[is_open]
    worth = drawn * (size - 1) / (size - drawn)
    least, most = hits / size, 1 - (drawn - hits) / size
    wanted = rate - float(weights[~is_open] @ shares[~is_open])

    def shares_at(multiple: float) -> Floats:
        slope = multiple * weight
        root = np.sqrt(np.maximum((worth + slope) ** 2 - 4 * slope * worth * (hits / drawn), 0))
        # The root inside [0, 1], in a form without cancellation.
        inside = 2 * worth * (hits / drawn) / np.maximum(worth + slope + root, 1e-300)
        inside = np.where(worth + slope < 0, (worth + slope - root) / np.where(slope < 0, 2 * slope, 1), inside)
        return np.clip(inside, least, most)

    def excess(asinh_of_multiple: float) -> float:
        return float(weight @ shares_at(float(np.sinh(asinh_of_multiple)))) - wanted

    if excess(-STEEPEST) <= 0:
        shares[is_open] = most
    elif excess(STEEPEST) >= 0:
        shares[is_open] = least
    else:
        shares[is_open] = shares_at(float(np.sinh(scipy.optimize.brentq(excess, -STEEPEST, STEEPEST, xtol=1e-7))))
    return shares


# Cuts of ranked harvests
#
# A cut contains a part of each stratum. The judged draws up to the cut's rank are a simple sample of this part. The
# rate of the top R tuples is therefore a `population_rate` over these parts. The rate of all tuples is the rate of the
# cell.

MOST_BOUNDS = 200  # maximum number of intervals to compute; thousands would take minutes


class Parts(NamedTuple):
    """Parts of strata (..., S) inside a cut: numbers of tuples and of draws with a verdict; evidence of the draws."""

    population: Codes
    n: Codes
    accepted: VerdictSample


class Cumulated:
    """Sums of columns (J,) over ranges of ranks in groups, such as strata.

    group, rank (J,): group and rank of each value. most: a number above all ranks.
    """

    def __init__(self, group: Codes, rank: Codes, most: int, columns: Sequence[ArrayLike]) -> None:
        self.most = most
        order = np.argsort(place := group * most + rank, kind="stable")
        self._place = place[order]
        self._sums = np.zeros((len(columns), len(place) + 1))
        self._sums[:, 1:] = np.cumsum([np.asarray(column)[order] for column in columns], axis=1)

    def up_to(self, groups: Codes, last_rank: ArrayLike) -> Floats:
        """Return the sums (columns, ...) over ranks 0 to `last_rank` of `groups`. Both arguments are broadcast."""
        first = groups * self.most + np.zeros_like(last_rank)
        start = np.searchsorted(self._place, first)
        end = np.searchsorted(self._place, first + np.clip(last_rank, 0, self.most - 1), side="right")
        up_to: Floats = self._sums[:, end] - self._sums[:, start]
        return up_to


class Members:
    """Tuples of strata whose ranks are interleaved with those of other strata.

    stratum, rank (M,): stratum and rank of each tuple.
    """

    def __init__(self, stratum: Codes, rank: Codes) -> None:
        self._stratum, self._rank = stratum, rank
        self._all = Cumulated(stratum, rank, int(rank.max(initial=0)) + 1, [np.ones(len(rank))])

    def n_up_to(self, strata: Codes, last_rank: Codes, otherwise: Floats) -> Floats:
        """Return the number of members with a rank <= `last_rank` (..., S); `otherwise` for strata without members."""
        [n], [whole] = self._all.up_to(strata, last_rank), self._all.up_to(strata, self._all.most)
        return np.where(whole > 0, n, otherwise)

    def n_among(self, strata: Codes, ranks: Codes, otherwise: Floats) -> Floats:
        """Return the number of members of `strata` (S,) with a rank in `ranks` (R,).

        otherwise (S,): result for strata without members.
        """
        n = np.bincount(self._stratum[np.isin(self._rank, ranks)], minlength=strata.max() + 1)
        [whole] = self._all.up_to(strata, self._all.most)
        return np.where(whole > 0, n[strata], otherwise)


class RankedStrata:
    """Strata of ranks `first` to `last` (S,) with `population` tuples, and all their draws (D,), whether judged or not.

    If tuples are hidden, there are fewer tuples than ranks. The remaining tuples are assumed to be evenly spread over
    the ranks, except in strata with `members`, because the ranks of members are known.
    """

    def __init__(
        self,
        first: Codes,
        last: Codes,
        population: Codes,
        draws: tuple[Codes, Codes, VerdictSample, Flags],
        members: Members | None = None,
        clusters: tuple[Codes, Flags] | None = None,
    ) -> None:
        """draws: stratum, rank (from 1), evidence for acceptance, and whether the draw has a verdict.

        clusters: cluster of each draw, and whether its verdict is ACCEPTED. None if tuples were drawn one by one.
        """
        self.first, self.last, self.population = first, last, population
        stratum, rank, accepted, has_verdict = draws
        self._stratum, self._rank, self._has_verdict, self._clusters = stratum, rank, has_verdict, clusters
        most = int(max(rank.max(initial=0), last.max(initial=0))) + 1
        self._draws = Cumulated(stratum, rank, most, [np.ones(len(rank)), has_verdict, *accepted])
        self.members = members

    def parts(self, strata: Codes, last_rank: Codes) -> Parts:
        """Return the parts of `strata` (S,) inside a cut after `last_rank` (..., S)."""
        drawn, n, *accepted = self._draws.up_to(strata, last_rank)
        first, last, size = self.first[strata], self.last[strata], self.population[strata]
        share = np.clip((last_rank - first + 1) / (last - first + 1), 0, 1)
        below = self._draws.up_to(strata, self._draws.most)[0] - drawn  # number of tuples drawn below the cut
        expected = np.rint(share * size)
        if self.members is not None:
            expected = self.members.n_up_to(strata, last_rank, expected)
        population = np.clip(expected, drawn, np.maximum(size - below, drawn)).astype(np.int64)
        return Parts(population, n.astype(np.int64), VerdictSample(*accepted))

    def effects(self, is_in: Flags, population: Codes, group: Codes | None = None) -> Floats:
        """Return the design effects on the accuracy of a part of each stratum (of all S).

        is_in (D,): True for draws in the part. population (S,): number of tuples in the part. group (D,): group of each
        draw, for the effects on the post-stratified accuracy. The number of complete statements divided by the effect
        is at least 1.
        """
        if self._clusters is None:
            return np.ones(len(self.first))
        chosen = is_in & self._has_verdict
        cluster, is_hit = self._clusters
        columns = (is_hit[chosen], self._stratum[chosen], cluster[chosen])
        group = None if group is None else group[chosen]
        return design_effects(*columns, len(self.first), population.astype(np.float64), group)

    def effects_up_to(self, strata: Codes, last_rank: Codes, population: Codes, group: Codes | None = None) -> Floats:
        """Return `effects` (S,) of `strata` (S,) up to `last_rank` (S,)."""
        end, size = np.zeros((2, len(self.first)), dtype=np.int64)
        end[strata], size[strata] = last_rank, population
        return self.effects(self._rank <= end[self._stratum], size, group)[strata]

    def rate(self, strata: Codes, last_rank: Codes) -> tuple[Rate, Parts]:
        """Return the accuracy of the union of the cuts of `strata` (S,) after `last_rank` (S,)."""
        parts = self.parts(strata, last_rank)
        is_taken = parts.population > 0
        if not is_taken.any():
            return Rate(reason=NOTHING_COUNTED), parts
        accepted = parts.accepted.effective(self.effects_up_to(strata, last_rank, parts.population))
        return sample_rate(accepted.at(is_taken), parts.population[is_taken]), parts

    def shares(self, strata: Codes, last_ranks: Codes) -> Floats:
        """Return the values of `rate` (K,) for cuts of all `strata` after `last_ranks` (K,), NaN if undefined."""
        population, _, sample = self.parts(strata, last_ranks[:, None])  # (K, S)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(sample.n > 0.5, sample.n_hits / sample.n, np.nan)  # same treatment as in population_rate
            accepted = np.where(population > 0, population * share, 0).sum(axis=1)
            shares: Floats = accepted / population.sum(axis=1)
        return shares


class KeptPart(NamedTuple):
    """Precision of the tuples with a score >= `score`, with a 95 % interval. n: number of judged tuples among them."""

    score: float
    precision: float
    low: float
    high: float
    n: int


class Cuts(NamedTuple):
    """Cuts of one harvest at the scores of judged tuples, best score first. last_rank, score, share: (K,)."""

    ranked: RankedStrata
    strata: Codes
    last_rank: Codes
    score: Floats
    share: Floats

    def part(self, number: int) -> KeptPart:
        rate, parts = self.ranked.rate(self.strata, np.full(len(self.strata), self.last_rank[number]))
        value, low, high = rate.with_interval or (np.nan, np.nan, np.nan)
        return KeptPart(float(self.score[number]), value, low, high, int(parts.n.sum()))


def score_cuts(ranked: RankedStrata, strata: Codes, rank: Codes, score: Floats) -> Cuts:
    """Return the cuts at the scores of judged tuples, given their `rank` and `score` (D,).

    The tuples were drawn from some of `strata`. Cuts through a stratum without a verdict are omitted.
    """
    order = np.argsort(-score, kind="stable")
    scores, last_rank = score[order], np.maximum.accumulate(rank[order])
    ends = np.flatnonzero(np.append(np.diff(scores) != 0, True)) if len(scores) else np.zeros(0, dtype=np.int64)
    shares = ranked.shares(strata, last_rank[ends])
    known = ~np.isnan(shares)
    return Cuts(ranked, strata, last_rank[ends][known], scores[ends][known], shares[known])


def largest_part(cuts: Cuts, target: float) -> KeptPart | None:
    """Return the largest part with a precision of at least `target`, or None."""
    reached = np.flatnonzero(cuts.share >= target - 1e-9)
    return cuts.part(int(reached[-1])) if len(reached) else None


def bounded_parts(cuts: Cuts) -> list[KeptPart]:
    """Return the parts of `bounded_numbers`, in ascending size."""
    return [cuts.part(number) for number in bounded_numbers(cuts)]


def bounded_numbers(cuts: Cuts) -> list[int]:
    """Return the numbers of at most MOST_BOUNDS evenly spaced cuts."""
    numbers = np.linspace(0, len(cuts.share) - 1, min(len(cuts.share), MOST_BOUNDS)).astype(np.int64)
    return list(np.unique(numbers).tolist())


def surely_largest_part(cuts: Cuts, target: float) -> KeptPart | None:
    """Return the largest of `bounded_parts` with a lower limit of at least `target`, or None."""
    reached = [part for part in bounded_parts(cuts) if part.low >= target - 1e-9]
    return reached[-1] if reached else None
