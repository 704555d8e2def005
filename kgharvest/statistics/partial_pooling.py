"""Rates partially pooled: each drawn towards the others, the more the less is known of it and the more alike all are.

The beta-binomial model: every relation's rate comes from one Beta distribution, whose mean and precision nobody knows.
They are drawn from a grid, so that an interval carries their uncertainty, as plug-in estimates (empirical Bayes) do not
(Morris 1983, Parametric empirical Bayes inference, JASA 78; Gelman et al., Bayesian Data Analysis, section 5.3); what
a harvest holds unjudged is drawn with the rate. Such intervals hold 95 % of the rates of many relations, not each
relation's in 95 % of samples: one that is unlike the others is drawn to where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import Rate, unknown_rate

FEWEST_RATES = 3
FEW_RATES = f"Fewer than {FEWEST_RATES} relations with a verdict do not tell how alike relations are."
N_DRAWS = 4000


class BetaGrid(NamedTuple):
    """Beta distributions (H,) that rates may come from, with shapes a and b, each as likely as the others."""

    a: Floats
    b: Floats

    def draw(self, rates: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the shapes (C,) of distributions drawn from the posterior given rates (n, C) in (0, 1)."""
        logs, complements = np.log(rates).sum(axis=0), np.log1p(-rates).sum(axis=0)  # (C,)
        weights = np.outer(logs, self.a - 1) + np.outer(complements, self.b - 1) - len(rates) * betaln(self.a, self.b)
        cumulated = np.exp(weights - weights.max(axis=1, keepdims=True)).cumsum(axis=1)  # (C, H)
        chosen = (cumulated < rng.random((len(logs), 1)) * cumulated[:, -1:]).sum(axis=1)
        return self.a[chosen], self.b[chosen]

    def weights(self, n_hits: Floats, n: Floats) -> Floats:
        """Return (H,) how likely each is, of sum 1, given hits among n, (R,) each."""
        posterior = betaln(self.a[:, np.newaxis] + n_hits, self.b[:, np.newaxis] + n - n_hits)  # (H, R)
        logs = (posterior - betaln(self.a, self.b)[:, np.newaxis]).sum(axis=1)
        weights: Floats = np.exp(logs - logs.max())
        weights /= weights.sum()
        return weights


def beta_grid(means: Floats, precisions: Floats) -> BetaGrid:
    """Return every Beta distribution with one of these means and one of these precisions, the sum of its shapes."""
    mean, precision = (values.ravel() for values in np.meshgrid(means, precisions))
    return BetaGrid(mean * precision, (1 - mean) * precision)


# Jeffreys's prior of the mean, and the even one of the correlation 1 / (1 + precision) of two statements of a relation.
DISTRIBUTIONS = beta_grid(np.sin(np.pi / 2 * (np.arange(60) + 0.5) / 60) ** 2, 1 / np.linspace(0.002, 0.5, 30) - 1)


class SimpleSample(NamedTuple):
    """How many draws from how many tuples tell as much as the sample of a cell; population 0 if it is endless."""

    n: float
    population: float


def effective_sample(n: Floats, population: Counts, weights: Floats) -> SimpleSample | None:
    """Return the simple sample whose share varies as the strata's (S,) together do; None where one is empty.

    1 / sum(W^2 / n) draws, if strata are alike, of as many tuples as leave sum(W^2 (1 - n / N) / n) of the variance.
    """
    if not n.all():
        return None
    left = np.where(population > 0, 1 - n / np.maximum(population, 1), 1)
    variance, finite = float((weights**2 / n).sum()), float((weights**2 * left / n).sum())
    taken = 1 - finite / variance
    return SimpleSample(1 / variance, 1 / variance / taken if taken > 0 else 0)


def pooled_rates(shares: Sequence[float], samples: Sequence[SimpleSample], rng: np.random.Generator) -> list[Rate]:
    """Return the expected share of hits in each population with its 95 % interval, from the `shares` of the samples.

    What was drawn is known, so that a census keeps its share.
    """
    if len(shares) < FEWEST_RATES:
        return [unknown_rate(FEW_RATES)] * len(shares)
    n, population = (np.array(column) for column in zip(*samples, strict=True))
    hits = np.array(shares) * n
    weights = DISTRIBUTIONS.weights(hits, n)
    chosen = rng.choice(len(weights), (N_DRAWS, 1), p=weights)
    rates = rng.beta(DISTRIBUTIONS.a[chosen] + hits, DISTRIBUTIONS.b[chosen] + n - hits)  # (N_DRAWS, R)
    rest = np.rint(np.maximum(population - n, 0)).astype(np.int64)
    of_population = (hits + rng.binomial(rest, rates)) / (n + rest)
    draws = np.where(population > 0, of_population, rates)
    low, high = np.quantile(draws, 0.025, axis=0, method="lower"), np.quantile(draws, 0.975, axis=0, method="higher")
    mean = np.clip(draws.mean(axis=0), 0, 1)  # where nearly all draws are alike, it may lie beyond the quantiles
    columns = (mean, np.minimum(low, mean), np.maximum(high, mean))
    return [Rate(*numbers) for numbers in zip(*(column.tolist() for column in columns), strict=True)]
