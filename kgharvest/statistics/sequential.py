"""Confidence sequences: anytime-valid intervals for the rate of a finite population.

They permit optional stopping, for example.

A fixed-sample 95 % interval is invalid under repeated looks: if sampling stops when the interval is narrow, the
interval misses the true value in more than 5 % of rounds. These functions use a confidence sequence for sampling
without replacement (Waudby-Smith and Ramdas 2020, "Confidence sequences for sampling without replacement", NeurIPS 33,
section 2.1): the probability that one or more of its intervals miss the true value is at most 5 %, for any number of
looks and any stopping rule. An interval contains every number of hits with a prior-to-posterior ratio below 20. The
ratio at the true number is a martingale with mean 1, so for any prior the probability that it ever reaches 20 is at
most 1 / 20 (Ville's inequality).

For averages over relations, multiplying the ratios of strata would make intervals too wide: with fourteen relations,
four times as wide as fixed-sample intervals. The averages have a normal error with independent increments in
information (inverse variance), so a normal mixture is asymptotically anytime-valid (Robbins 1970, "Statistical methods
related to the law of the iterated logarithm", Ann. Math. Stat. 41; Waudby-Smith et al. 2024, "Time-uniform central
limit theory and asymptotic confidence sequences", Ann. Statist. 52). The intervals of this mixture are about 1.6 times
as wide as fixed-sample intervals.
"""

from typing import NamedTuple

import numpy as np
import scipy

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import SIGNIFICANCE

PRIOR = 0.5  # both parameters of the beta-binomial prior of a stratum's hits (Jeffreys)
LOG_LIMIT = -float(np.log(SIGNIFICANCE))

# Information when all draws are judged, relative to the mixture's information. Once a quarter of this value is reached,
# the interval is at most 2 % wider than the narrowest mixture interval.
INFORMATION_AT_END = 20.0


class SeenStrata(NamedTuple):
    """Judgments so far in the strata of a population. The arrays contain integers and have shape (S,).

    n: number of statements so far; 0 for strata without statements. least, most: bounds on the number of hits among
    these statements for any missing labels. The bounds are equal if no labels are missing. population: number of
    tuples. The statements are the first tuples in a random order.
    """

    n: Counts
    least: Counts
    most: Counts
    population: Counts


def anytime_interval(people: SeenStrata, with_judge: SeenStrata | None = None) -> tuple[float, float] | None:
    """Return the anytime-valid interval of the share of hits in a population, or None if there are no statements.

    with_judge: the same statements, with strata split by a judge's label, which must not depend on people's judgments.
    The interval then contains every share for which the mean of the two ratios, without and with the judge, is below
    20. Therefore, an uninformative judge widens the interval only slightly. Strata without statements can have any
    share.
    """
    size = int(people.population.sum())
    if not people.n.sum() or not people.population.all():
        return None
    samples = [people] if with_judge is None else [people, with_judge]
    logsumexp = scipy.special.logsumexp
    of_least = logsumexp([_log_ratios(sample, sample.least) for sample in samples], axis=0) - np.log(len(samples))
    of_most = logsumexp([_log_ratios(sample, sample.most) for sample in samples], axis=0) - np.log(len(samples))
    # No interval is empty, because the sample is at least as likely under the most likely number of hits as under the
    # prior.
    low, high = np.flatnonzero(of_least < LOG_LIMIT)[0], np.flatnonzero(of_most < LOG_LIMIT)[-1]
    return int(low) / size, int(high) / size


def anytime_average(strata: SeenStrata, weights: Floats, n_drawn: Counts) -> tuple[float, float] | None:
    """Return the anytime-valid interval of a weighted mean of stratum shares, or None if a stratum has no statements.

    weights (S,): weights that add up to 1. n_drawn (S,): final numbers of statements, which were fixed when the round
    was opened.
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


def _log_ratios(sample: SeenStrata, n_hits: Counts) -> Floats:
    """Return the minimum log product of the strata's ratios (N + 1,) for each total number of hits.

    Log ratios are convex in the hits of a stratum. The minimum over all allocations is therefore obtained by adding the
    strata's increments in ascending order (infimal convolution of convex sequences).
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
    """Return (N - n + 1,): log ratios of prior to posterior probability for `n_hits` .. `n_hits` + N - n total hits.

    By Bayes' theorem, a ratio is the probability of the ordered sample under the prior, divided by its probability
    given the total.
    """
    in_all = np.arange(n_hits, n_hits + population - n + 1, dtype=np.float64)
    gammaln, betaln = scipy.special.gammaln, scipy.special.betaln
    under_prior = betaln(PRIOR + n_hits, PRIOR + n - n_hits) - betaln(PRIOR, PRIOR)
    misses = population - in_all
    under_hits = (
        gammaln(in_all + 1) - gammaln(in_all - n_hits + 1)
        + gammaln(misses + 1) - gammaln(misses - (n - n_hits) + 1)
        - (gammaln(population + 1) - gammaln(population - n + 1))
    )  # fmt: skip
    log_ratio: Floats = under_prior - under_hits
    return log_ratio
