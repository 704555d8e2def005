"""Intervals of a finite population's rate that hold at every look: how wide they are may decide when to stop.

The usual 95 % interval holds where the size of the sample was fixed beforehand; of those who look again and again, and
stop when it is narrow, more than 5 % see it miss at some look. Here all looks together miss in at most 5 % of rounds,
however many there are and whatever makes one look or stop: a confidence sequence for sampling without replacement
(Waudby-Smith and Ramdas 2020, "Confidence sequences for sampling without replacement", NeurIPS 33, section 2.1). It
holds every number of hits whose prior-to-posterior ratio is below 20. By Ville's inequality the ratio of the true
number, a martingale of mean 1, reaches 20 at any time with probability 1 / 20 at most; the prior does not matter for
that.

Averages over relations would pay for the prior of each stratum: ratios that multiply make the interval of fourteen
relations four times as wide as the usual one. Their estimates have a normal error with independent increments in
information, one over the variance, so that a normal mixture holds at all looks in the limit (Robbins 1970, "Statistical
methods related to the law of the iterated logarithm", Ann. Math. Stat. 41; Waudby-Smith et al. 2024, "Time-uniform
central limit theory and asymptotic confidence sequences", Ann. Statist. 52): about 1.6 times as wide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import SIGNIFICANCE

PRIOR = 0.5  # both parameters of the beta-binomial prior of a stratum's hits: Jeffreys's
LOG_LIMIT = -float(np.log(SIGNIFICANCE))

# Information, in units of the mixture's, when all that was drawn is judged: from a quarter of that on the interval is
# within 2 % of the narrowest that a mixture can be.
INFORMATION_AT_END = 20.0

METHOD = (
    "Interval that holds at every look: the numbers of hits whose prior-to-posterior ratio has stayed below 20, for a "
    "beta-binomial prior (1/2, 1/2) in each stratum (Waudby-Smith and Ramdas 2020); ratios of strata multiply, and "
    "those of people alone and with the judge are averaged. All looks together miss in at most 5 % of rounds. Averages "
    "over relations: normal mixture (Robbins 1970), variances from shares with a hit and a miss added; they hold in "
    "the limit: of two or three relations with few statements, up to 6 of 100 simulated rounds had a look that missed."
)


class SeenStrata(NamedTuple):
    """What was judged of a population's strata, all of shape (S,), whole numbers.

    least, most: hits among the `n` statements judged so far, whatever labels are still missing; alike where none is.
    population: of which these are the first of a random order; of strata that nobody looked at yet, n is 0.
    """

    n: Counts
    least: Counts
    most: Counts
    population: Counts


def anytime_interval(people: SeenStrata, with_judge: SeenStrata | None = None) -> tuple[float, float] | None:
    """Return the interval of the share of hits in a population that holds at every look; None where nothing is known.

    with_judge: the same statements with strata split by a judge's label, which must not depend on people's. Both count
    then: the interval holds every share of which the mean of both ratios is below 20, so that a judge who tells nothing
    costs little. Strata without a statement say nothing, and the interval allows for all that they may hold.
    """
    size = int(people.population.sum())
    if not people.n.sum() or not people.population.all():
        return None
    samples = [people] if with_judge is None else [people, with_judge]
    low = _first_possible([_log_ratios(sample, sample.least) for sample in samples])
    high = size - _first_possible([_log_ratios(sample, sample.most)[::-1] for sample in samples])
    return low / size, high / size


def anytime_average(strata: SeenStrata, weights: Floats, n_drawn: Counts) -> tuple[float, float] | None:
    """Return the interval of the weighted mean of strata's shares that holds at every look; None where one has no
    statement yet.

    weights (S,): of sum 1. n_drawn (S,): statements to be judged in all, fixed when the round was opened.
    """
    if not strata.n.all() or not strata.population.all():
        return None
    low, _ = _mixture_interval(strata.least, strata, weights, n_drawn)
    _, high = _mixture_interval(strata.most, strata, weights, n_drawn)
    return low, high


def _mixture_interval(n_hits: Counts, strata: SeenStrata, weights: Floats, n_drawn: Counts) -> tuple[float, float]:
    smoothed = (n_hits + 1) / (strata.n + 2)
    spread = weights**2 * smoothed * (1 - smoothed)
    unseen = (strata.population - strata.n) / np.maximum(strata.population - 1, 1)
    variance = float((spread / strata.n * unseen).sum())
    value = float(weights @ (n_hits / strata.n))
    if variance == 0:
        return value, value
    information = INFORMATION_AT_END * float((spread / n_drawn).sum()) / variance
    half = float(np.sqrt(variance * (1 + 1 / information) * (np.log1p(information) + 2 * LOG_LIMIT)))
    return max(0.0, value - half), min(1.0, value + half)


def _first_possible(log_ratios: list[Floats]) -> int:
    """Return the smallest number of hits in all whose mean ratio is below the limit. log_ratios: (N + 1,) each.

    One always is: under the likeliest number the sample is at least as probable as under the prior.
    """
    mean = logsumexp(log_ratios, axis=0) - np.log(len(log_ratios))
    return int(np.flatnonzero(mean < LOG_LIMIT)[0])


def _log_ratios(sample: SeenStrata, n_hits: Counts) -> Floats:
    """Return (N + 1,) for each number of hits in all the least log of the product of the strata's ratios.

    The log ratio of a stratum is convex in its hits, so the least sum over all ways to share them out takes the
    strata's increments in ascending order (the infimal convolution of convex sequences).
    """
    below, increments, total = 0, [], 0.0
    for n, hits, size in zip(sample.n.tolist(), n_hits.tolist(), sample.population.tolist(), strict=True):
        log_ratio = log_prior_to_posterior(hits, n, size)
        below += hits
        total += float(log_ratio[0])
        increments.append(np.diff(log_ratio))
    steps = np.sort(np.concatenate(increments)) if increments else np.zeros(0)
    log_ratios = np.full(int(sample.population.sum()) + 1, np.inf)
    log_ratios[below : below + len(steps) + 1] = total + np.concatenate([[0.0], np.cumsum(steps)])
    return log_ratios


def log_prior_to_posterior(n_hits: int, n: int, population: int) -> Floats:
    """Return (N - n + 1,) the log of prior over posterior probability of `n_hits` .. `n_hits` + N - n hits in all.

    By Bayes that is the probability of the sample's order under the prior over that under these hits.
    """
    in_all = np.arange(n_hits, n_hits + population - n + 1, dtype=np.float64)
    under_prior = betaln(PRIOR + n_hits, PRIOR + n - n_hits) - betaln(PRIOR, PRIOR)
    misses = population - in_all
    under_hits = (
        gammaln(in_all + 1) - gammaln(in_all - n_hits + 1)
        + gammaln(misses + 1) - gammaln(misses - (n - n_hits) + 1)
        - (gammaln(population + 1) - gammaln(population - n + 1))
    )  # fmt: skip
    log_ratio: Floats = under_prior - under_hits
    return log_ratio
