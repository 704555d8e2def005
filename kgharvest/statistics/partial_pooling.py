"""Partial pooling: shrink rates of relations toward each other, more if evidence is scarce or relations are similar.

Beta-binomial model: rates of relations have a common Beta distribution with unknown mean and precision. These are drawn
from a grid, so intervals include their uncertainty, unlike with empirical Bayes (Morris 1983, Parametric empirical
Bayes inference, JASA 78; Gelman et al., Bayesian Data Analysis, section 5.3). Unjudged tuples of a harvest are drawn
with its rate. The intervals cover 95 % of the rates of many relations, not each relation's rate in 95 % of samples:
outliers are shrunk too far.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import Rate

FEWEST_RATES = 3
FEW_RATES = f"Partial pooling needs at least {FEWEST_RATES} relations with a verdict."
N_DRAWS = 4000


class BetaGrid(NamedTuple):
    """Candidate Beta distributions (H,) of rates, with shapes a and b and equal prior probability."""

    a: Floats
    b: Floats

    def draw(self, rates: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw shapes (C,) from the posterior given rates (n, C) in (0, 1)."""
        logs, complements = np.log(rates).sum(axis=0), np.log1p(-rates).sum(axis=0)  # (C,)
        weights = np.outer(logs, self.a - 1) + np.outer(complements, self.b - 1) - len(rates) * betaln(self.a, self.b)
        cumulated = np.exp(weights - weights.max(axis=1, keepdims=True)).cumsum(axis=1)  # (C, H)
        chosen = (cumulated < rng.random((len(logs), 1)) * cumulated[:, -1:]).sum(axis=1)
        return self.a[chosen], self.b[chosen]

    def weights(self, n_hits: Floats, n: Floats) -> Floats:
        """Return (H,) posterior probabilities given hits among n, (R,) each."""
        posterior = betaln(self.a[:, np.newaxis] + n_hits, self.b[:, np.newaxis] + n - n_hits)  # (H, R)
        logs = (posterior - betaln(self.a, self.b)[:, np.newaxis]).sum(axis=1)
        weights: Floats = np.exp(logs - logs.max())
        weights /= weights.sum()
        return weights


def beta_grid(means: Floats, precisions: Floats) -> BetaGrid:
    """Return all Beta distributions with these means and precisions (sums of shapes)."""
    mean, precision = (values.ravel() for values in np.meshgrid(means, precisions))
    return BetaGrid(mean * precision, (1 - mean) * precision)


# Jeffreys's prior of the mean; uniform prior of the intraclass correlation 1 / (1 + precision) of a relation.
DISTRIBUTIONS = beta_grid(np.sin(np.pi / 2 * (np.arange(60) + 0.5) / 60) ** 2, 1 / np.linspace(0.002, 0.5, 30) - 1)


class SimpleSample(NamedTuple):
    """Simple sample with the same information as a cell's sample: draws and tuples; population 0 if infinite."""

    n: float
    population: float


def effective_sample(n: Floats, population: Counts, weights: Floats) -> SimpleSample | None:
    """Return the simple sample whose share has the variance of the strata's (S,) mean; None if a stratum is empty.

    1 / sum(W^2 / n) draws if strata are alike, from a population that leaves sum(W^2 (1 - n / N) / n) of the variance.
    """
    if not n.all():
        return None
    left = np.where(population > 0, 1 - n / np.maximum(population, 1), 1)
    variance, finite = float((weights**2 / n).sum()), float((weights**2 * left / n).sum())
    taken = 1 - finite / variance
    return SimpleSample(1 / variance, 1 / variance / taken if taken > 0 else 0)


def pooled_rates(shares: Sequence[float], samples: Sequence[SimpleSample], rng: np.random.Generator) -> list[Rate]:
    """Return the expected share of hits in each population with its 95 % interval; a census keeps its share."""
    if len(shares) < FEWEST_RATES:
        return [Rate(reason=FEW_RATES)] * len(shares)
    n, population = (np.array(column) for column in zip(*samples, strict=True))
    hits = np.array(shares) * n
    weights = DISTRIBUTIONS.weights(hits, n)
    chosen = rng.choice(len(weights), (N_DRAWS, 1), p=weights)
    rates = rng.beta(DISTRIBUTIONS.a[chosen] + hits, DISTRIBUTIONS.b[chosen] + n - hits)  # (N_DRAWS, R)
    rest = np.rint(np.maximum(population - n, 0)).astype(np.int64)
    of_population = (hits + rng.binomial(rest, rates)) / (n + rest)
    draws = np.where(population > 0, of_population, rates)
    low, high = np.quantile(draws, 0.025, axis=0, method="lower"), np.quantile(draws, 0.975, axis=0, method="higher")
    mean = np.clip(draws.mean(axis=0), 0, 1)  # can lie outside the quantiles if almost all draws are equal
    columns = (mean, np.minimum(low, mean), np.maximum(high, mean))
    return [Rate(*numbers) for numbers in zip(*(column.tolist() for column in columns), strict=True)]
