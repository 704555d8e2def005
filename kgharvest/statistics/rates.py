"""Rates with their 95 % intervals: of simple samples and weighted draws, of cells, averages and differences of rates.

Every rate of a harvest comes from `population_rate`: of a cell, of a cut, of a point of a curve, of an average over
these relations. A stratum is a part of the population, known in size, of which a simple random sample has been judged.
The interval is about the tuples that were not judged, so that a census has no width. The other functions are about no
finite population.

The interval inverts a test: it holds every rate at which the observed estimate is not among the least expected 5 %.
Its distribution is exact: hypergeometric in each stratum, convolved over strata. Acceptability is Blaker's (2000),
"Confidence curves and improved exact confidence intervals for discrete distributions", Canad. J. Statist. 28, which is
never wider than Clopper and Pearson's. If several strata share a rate, each takes its most likely part of it (profile
likelihood, as in Miettinen and Nurminen 1985). docs/statistics.md has the coverage measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import gammaln, ndtr, ndtri, stdtrit

from kgharvest.statistics.arrays import Counts, Floats

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


# Rates of cells


ROUNDING = 1e-9  # tail probabilities that differ by less are equal
DISTANCE_OF_LIMITS = float(np.sqrt(-2 * np.log(SIGNIFICANCE)))
DECIMALS = 11  # of hits and weights; more of them depend on the order of additions
PRECISION = 1e-4  # of a limit of a stratified interval, as a rate
GRID = 4096  # points of [0, 1] on which estimates of several strata are distributed
STEEPEST = 20.0  # asinh of the multiple at which every stratum has its least or most hits
MOST_CONVOLVED = 60  # strata; the mean of more is normal but for its skewness
# So is one of fewer that is no more skewed, and that single draws move by less in standard errors.
MOST_SKEWED, COARSEST = 0.15, 0.2
AS_GOOD_AS_INFINITE = 10_000_000  # tuples; gamma functions of more lose digits
CANDIDATES = 2000  # numbers of hits tried at most for one limit of a simple sample
FINEST = 1_000_000  # shares of an infinite population that are told apart

EMPTY_STRATUM = "A stratum has no verdict yet, so nothing is known about its part of the harvest."
UNKNOWN_POPULATION = "It is not known how many tuples the statements were drawn from."


class VerdictSample(NamedTuple):
    """What statements say of one verdict; by stratum (S,) or by draw (D,), which adds up to the same.

    n: how many complete statements they tell as much as. n_hits: with the verdict. least, most: the same where the
    labels tell how many; else those for certain, and those possible (kgharvest.statistics.verdicts).
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
        """Return the sums by stratum, from what draws of `stratum` (D,) say."""
        return VerdictSample(*(np.bincount(stratum, column, n_strata).astype(np.float64) for column in self))

    def at(self, positions: Counts | NDArray[np.bool_] | list[int]) -> VerdictSample:
        return VerdictSample(*(column[positions] for column in self))


def sample_rate(sample: VerdictSample, population: ArrayLike, weights: ArrayLike | None = None) -> Rate:
    """Return `population_rate` of a sample, from the lower limit at its least to the upper one at its most hits."""
    rate = population_rate(sample.n_hits, sample.n, population, weights)
    if rate.value is None or np.array_equal(sample.least, sample.most):
        return rate
    least, most = (population_rate(hits, sample.n, population, weights) for hits in (sample.least, sample.most))
    return Rate(rate.value, least.low, most.high)


def population_rate(n_hits: ArrayLike, n: ArrayLike, population: ArrayLike, weights: ArrayLike | None = None) -> Rate:
    """Return the share of hits in a population of which `n` of each stratum's `population` were judged; shapes (S,).

    n_hits and n need not be whole where some statements are incomplete; then the limits are those of the nearest
    samples that are, on either side of the share.
    population: 0 where nobody knows it; it counts as infinite then, and several strata need weights.
    weights: of the strata in the rate, of sum 1; None for their shares of the population. An average over cells gives
    each cell's strata their part of the cell's weight.
    """
    estimate = population_share(n_hits, n, population, weights)
    value = estimate.value
    if value is None:
        return estimate
    worth, sizes = np.asarray(n, dtype=np.float64), np.asarray(population, dtype=np.int64)
    judged = whole_statements(worth)
    if len(sizes) > 1:
        sizes = np.where(sizes, sizes, AS_GOOD_AS_INFINITE)
    # Sums of probabilities may leave [0, n] by a rounding error.
    shares, parts = np.clip(np.asarray(n_hits, dtype=np.float64) / worth, 0, 1), _parts(sizes, weights)
    open_strata = np.flatnonzero(judged != sizes)  # the others are known entirely
    if not len(open_strata):
        return Rate(value, value, value)
    if len(open_strata) > 1:
        return Rate(value, *_interval_over_strata(value, shares * judged, judged, sizes, parts))
    [stratum] = open_strata.tolist()
    share, weight = float(shares[stratum]), float(parts[stratum])
    drawn, size = int(judged[stratum]), int(sizes[stratum])
    low, _ = simple_interval(int(np.floor(share * drawn + ROUNDING)), drawn, size)
    _, high = simple_interval(int(np.ceil(share * drawn - ROUNDING)), drawn, size)
    return Rate(value, _inside(value - weight * (share - low)), _inside(value + weight * (high - share)))


def population_share(n_hits: ArrayLike, n: ArrayLike, population: ArrayLike, weights: ArrayLike | None = None) -> Rate:
    """Return what population_rate does but the limits, which take time."""
    worth, sizes = np.asarray(n, dtype=np.float64), np.asarray(population, dtype=np.int64)
    judged = whole_statements(worth)
    if not judged.sum():
        return unknown_rate(NOTHING_COUNTED)
    if not judged.all():
        return unknown_rate(EMPTY_STRATUM)
    if len(sizes) > 1 and not sizes.all() and weights is None:
        return unknown_rate(UNKNOWN_POPULATION)
    shares = np.asarray(n_hits, dtype=np.float64) / worth
    return Rate(_inside(float(_parts(sizes, weights) @ shares)), None, None)


def _inside(share: float) -> float:
    """Return the share without what rounding adds beyond 0 and 1."""
    return min(max(share, 0.0), 1.0)


def whole_statements(worth: Floats) -> Counts:
    """Return how many complete statements tell at most as much; one for more than half of one."""
    return np.where(worth > 0.5, np.maximum(np.floor(worth + ROUNDING), 1), 0).astype(np.int64)


def _parts(sizes: Counts, weights: ArrayLike | None) -> Floats:
    """Return the weights of the strata, their shares of the population if none are given; shapes (S,)."""
    if weights is not None:
        return np.asarray(weights, dtype=np.float64)
    return sizes / sizes.sum() if sizes.all() else np.ones(1)


# -- simple samples ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=100_000)
def simple_interval(n_hits: int, n: int, population: int = 0) -> tuple[float, float]:
    """Return Blaker's exact interval of a share, from `n_hits` among `n` >= 1 drawn without replacement.

    population: 0 for an infinite one (binomial). For a population the limits are shares it can have.
    """
    if 2 * n_hits < n:
        low, high = simple_interval(n - n_hits, n, population)
        return 1 - high, 1 - low
    if population == n:
        return n_hits / n, n_hits / n
    return _limit(n_hits, n, population, lower=True), _limit(n_hits, n, population, lower=False)


def _limit(n_hits: int, n: int, population: int, *, lower: bool) -> float:
    """Return the acceptable share that is farthest from the observed one, below or above it.

    Clopper and Pearson's limit is found first, by bisection of its monotone tail; Blaker's is the first acceptable
    share from there inwards.
    """
    if n_hits == n and not lower:
        return 1.0
    known_hits, known_misses = (n_hits, n - n_hits) if population else (0, 0)
    size = population or FINEST
    least, most = known_hits, size - known_misses  # how many hits the population can have
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
    """Return how likely at least (at most) as many hits as observed are, if the population has `hits_in_all`."""
    [probabilities] = _outcomes(np.array([hits_in_all]), n, size, population)
    return float(probabilities[n_hits:].sum() if lower else probabilities[: n_hits + 1].sum())


def _outcomes(hits_in_all: Counts, n: int, size: int, population: int) -> Floats:
    """Return (K, n + 1) the probability of each number of hits among n, for each number of hits in all."""
    if population:
        return hypergeometric(hits_in_all.astype(np.float64), n, size)
    share = (hits_in_all / size)[:, None]  # (K, 1)
    hits = np.arange(n + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds = np.where(hits > 0, hits * np.log(share), 0) + np.where(hits < n, (n - hits) * np.log1p(-share), 0)
    log_choose = gammaln(n + 1) - gammaln(hits + 1) - gammaln(n - hits + 1)
    probabilities: Floats = np.exp(log_odds + log_choose)
    return probabilities


def hypergeometric(hits_in_all: Floats, n: int, population: int) -> Floats:
    """Return (K, n + 1) the hypergeometric probabilities of 0..n hits; `hits_in_all` (K,) need not be whole.

    Between whole numbers the binomial coefficients go on as gamma functions do, so that a rate can vary continuously.
    """
    hits = np.arange(n + 1)
    inside, outside = hits_in_all[:, None] - hits, (population - hits_in_all)[:, None] - (n - hits)  # (K, n + 1)
    possible = (inside > -ROUNDING) & (outside > -ROUNDING)
    # Of the binomial coefficients, without the factorials that all outcomes share.
    factorials = gammaln(hits + 1)
    logs = -(factorials + factorials[::-1] + gammaln(np.maximum(inside, 0) + 1) + gammaln(np.maximum(outside, 0) + 1))
    logs = np.where(possible, logs, -np.inf)
    probabilities: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def _acceptability(probabilities: Floats, observed: int) -> Floats:
    """Return (K,) Blaker's acceptability of each distribution (K, n + 1): the smaller tail at what was observed, and
    the largest tail at the other end that is no larger."""
    below, above = probabilities.cumsum(axis=1), probabilities[:, ::-1].cumsum(axis=1)[:, ::-1]
    smaller = np.minimum(below[:, observed], above[:, observed])
    others = np.where((below[:, observed] <= above[:, observed])[:, None], above, below)
    opposite = np.where(others <= smaller[:, None] + ROUNDING, others, 0).max(axis=1)
    acceptability: Floats = np.minimum(smaller + opposite, 1)
    return acceptability


# -- several strata ----------------------------------------------------------------------------------------------------


def _interval_over_strata(
    value: float, n_hits: Floats, n: Counts, population: Counts, weights: Floats
) -> tuple[float, float]:
    """Return the farther limits of the nearest sample with whole hits and of that sample moved to `value`."""
    # In one order and without last bits, so that the limits are the same in whatever order the strata come, and however
    # their weights and the worth of incomplete statements were added up: at a half, and at a step, a bit would decide.
    nearest = np.rint(n_hits.round(DECIMALS))
    columns = (nearest, n, population, weights.round(DECIMALS))
    strata = sorted(zip(*(column.tolist() for column in columns), strict=True))
    low, high = _stratified_interval(tuple(strata))
    moved = value - float(weights @ (nearest / n))
    if abs(moved) < ROUNDING:
        return _inside(low), _inside(high)
    return _inside(low + min(moved, 0)), _inside(high + max(moved, 0))


@lru_cache(maxsize=10_000)
def _stratified_interval(strata: tuple[tuple[float, int, int, float], ...]) -> tuple[float, float]:
    """strata: hits, n, population and weight of each."""
    columns = [np.array(column) for column in zip(*strata, strict=True)]
    n_hits, n, population, weights = columns[0], columns[1], columns[2], columns[3]
    value = float(weights @ (n_hits / n))
    of_misses = tuple(sorted((n - hits, n, size, weight) for hits, n, size, weight in strata))
    # The same search for both, so that misses mirror hits at one half, too.
    if value < 0.5 - ROUNDING or (value <= 0.5 + ROUNDING and strata < of_misses):
        low, high = _stratified_interval(of_misses)
        return 1 - high, 1 - low

    def distance(rate: float) -> float:
        """Return how many standard errors `rate` is from being rejected, about linear in it."""
        acceptability = _stratified_acceptability(rate, n_hits, n, population, weights)
        return DISTANCE_OF_LIMITS - float(np.sqrt(-2 * np.log(max(acceptability, 1e-300))))

    least, most = float(weights @ (n_hits / population)), 1 - float(weights @ ((n - n_hits) / population))
    low, high = (
        outside if distance(outside) > 0 else brentq(distance, outside, value, xtol=PRECISION, rtol=PRECISION)
        for outside in (least, most)
    )
    if strata == of_misses:
        low, high = min(low, 1 - high), max(high, 1 - low)
    return float(low), float(high)


def _stratified_acceptability(rate: float, n_hits: Floats, n: Counts, population: Counts, weights: Floats) -> float:
    """Return how acceptable the observed estimate is if the population has `rate`, strata at their likeliest."""
    shares = likeliest_shares(rate, n_hits, n, population, weights)
    score = _normal_score(float(weights @ (n_hits / n)) - rate, shares, n, population, weights)
    if score is not None:
        return float(2 * ndtr(-abs(score)))
    probabilities = _distribution(shares, n, population, weights)
    # Estimates are spread over two neighbouring points in each stratum: by one for each at most, and over many strata
    # by a normal error whose deviation is at most half the root of their number. What is that near counts as equal.
    observed, near = float(weights @ (n_hits / n)) * (GRID - 1), 0.5 + min(0.5 * len(n), len(n) ** 0.5)
    up_to, down_to = int(observed + near), max(0, int(np.ceil(observed - near)))
    below, above = probabilities.cumsum(), probabilities[::-1].cumsum()[::-1]
    tails = below[min(up_to, GRID - 1)], above[min(down_to, GRID - 1)]
    smaller, others = min(tails), above if tails[0] <= tails[1] else below
    return float(min(1, smaller + others[others <= smaller + ROUNDING].max(initial=0)))


def _normal_score(difference: float, shares: Floats, n: Counts, population: Counts, weights: Floats) -> float | None:
    """Return the score statistic corrected for skewness (Gart and Nam 1988), None where strata should be convolved.

    In the form that never turns back (after Hall 1992, JRSS B 54): score - a (score^2 - 1) with a = skewness / 6 would
    accept rates that are twenty standard errors away.
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
    """Return (GRID,) the probabilities of the weighted mean of the strata's sample shares.

    Each outcome of a stratum is split between the two nearest points, which keeps the mean exact.
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
    """Return (S,) the shares of hits under which the sample is most likely, among those whose weighted mean is `rate`.

    The log-likelihood of stratum h, with n_h (N_h - 1) / (N_h - n_h) draws' worth of information, has its maximum under
    the constraint where its slope is a multiple t of the weight w_h: a quadratic in the share for each t, and the mean
    falls in t. A share stays within what the stratum's judged part allows.
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
        # The root inside [0, 1], in the form that does not cancel.
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
        shares[is_open] = shares_at(float(np.sinh(brentq(excess, -STEEPEST, STEEPEST, xtol=1e-7))))
    return shares
