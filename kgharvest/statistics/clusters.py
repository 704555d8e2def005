"""Clustered samples and their design effects.

A cluster consists of statements sampled together, for example all facts with one subject.
"""

import numpy as np
import scipy

from kgharvest.statistics.arrays import Codes, Flags, Floats

FEWEST_PAIRS = 30  # pairs of statements in the same cluster, from which the intraclass correlation is estimated


def parts_of_clusters(cluster: Codes, most: int, rng: np.random.Generator) -> Codes:
    """Divide each cluster at random into as few parts of at most `most` tuples as possible.

    cluster (N,): cluster of each tuple. The result contains the part of each tuple, numbered from 0. The sizes of the
    parts of a cluster differ by at most 1.
    """
    order = rng.permutation(len(cluster))
    order = order[np.argsort(cluster[order], kind="stable")]
    _, start, number, size = np.unique(cluster[order], return_index=True, return_inverse=True, return_counts=True)
    place = np.arange(len(cluster)) - start[number]
    parts = np.zeros(len(cluster), dtype=np.int64)
    parts[order] = number * len(cluster) + place % -(-size // most)[number]
    return np.unique(parts, return_inverse=True)[1]


def draw_clusters(cluster: Codes, n: int, rng: np.random.Generator) -> Codes:
    """Return the positions of `n` tuples that are drawn in clusters. Every tuple has the inclusion probability n / N.

    cluster (N,): cluster of each tuple. The clusters are arranged in a random order on a circle, and n consecutive
    tuples are drawn from a random tuple on. All clusters but the first and the last are drawn as a whole. As n is fixed
    and every tuple is equally likely to be drawn, the share of hits in the sample is unbiased without weights.
    """
    in_order = rng.permutation(len(cluster))
    on_circle = in_order[np.argsort(rng.permutation(cluster.max() + 1)[cluster[in_order]], kind="stable")]
    drawn: Codes = on_circle[(rng.integers(len(cluster)) + np.arange(n)) % len(cluster)]
    return drawn


def expected_effect(is_hit: Flags, cluster: Codes, size: Floats) -> float | None:
    """Return the expected design effect, at least 1, of drawing clusters of these sizes (C,).

    is_hit, cluster (D,): outcome and cluster of earlier statements, from which the intraclass correlation is estimated:
    the mean product of the residuals of two statements in the same cluster, divided by their variance (Kish 1965,
    section 5.4). None with fewer than FEWEST_PAIRS pairs, or if all outcomes are equal.
    """
    _, number = np.unique(cluster, return_inverse=True)
    residual = is_hit - is_hit.sum() / max(len(is_hit), 1)
    n, total, squares = (np.bincount(number, weights) for weights in (None, residual, residual**2))
    n_pairs, variance = float((n * (n - 1)).sum()) / 2, float((residual**2).sum()) / max(len(is_hit), 1)
    if n_pairs < FEWEST_PAIRS or variance == 0:
        return None
    correlation = float((total**2 - squares).sum()) / 2 / n_pairs / variance
    return max(1.0, 1 + (float((size**2).sum() / size.sum()) - 1) * correlation)


def design_effects(
    is_hit: Flags,
    stratum: Codes,
    cluster: Codes,
    n_strata: int,
    population: Floats | None = None,
    group: Codes | None = None,
) -> Floats:
    """Return the design effect of clustering on the share of hits in each stratum (S,). It is at least 1.

    A design effect is the number of clustered statements that are as informative as one statement of a simple sample.
    is_hit, stratum, cluster (D,): outcome, stratum, and cluster of each of D statements. A cluster belongs to one
    stratum; equal numbers in two strata are two clusters. n divided by the effect is the effective sample size of Korn
    and Graubard (1998, Survey Methodology 24, Confidence intervals for proportions with small expected number of
    positive counts). It is based on the variance of the share between clusters, by linearization, with the degrees of
    freedom of the clusters. If the statements of a stratum are all hits, all misses, or in a single cluster, this
    variance is unknown. The statements of a cluster then count as one. population (S,): number of tuples of each
    stratum, 0 if unknown. With n of N tuples, the effect is n / N + (1 - n / N) times the effect in an infinite
    population. The variance of the effective sample without replacement is then the effect times (1 - n / N), so the
    effect of a census is 1. group (D,): group of each statement, such as the label of a judge. The effect is then that
    on the post-stratified share: the residuals are differences from the share of the group in the stratum.
    """
    n = np.bincount(stratum, minlength=n_strata).astype(np.float64)  # (S,)
    part = stratum if group is None else np.unique(np.column_stack([stratum, group]), axis=0, return_inverse=True)[1]
    part = part.reshape(-1)
    rest = is_hit - (np.bincount(part, is_hit) / np.maximum(np.bincount(part), 1))[part]
    clusters, number = np.unique(np.column_stack([stratum, cluster]), axis=0, return_inverse=True)
    number, of_cluster = number.reshape(-1), clusters[:, 0]  # (D,), (C,)
    size = np.bincount(number, minlength=len(clusters))
    residual = np.bincount(number, rest, len(clusters))
    n_clusters = np.bincount(of_cluster, minlength=n_strata)
    simple = np.bincount(stratum, rest**2, n_strata) / np.maximum(n * (n - 1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = n_clusters / (n_clusters - 1) * np.bincount(of_cluster, residual**2, n_strata) / n**2
        wider = (scipy.special.stdtrit(n_clusters - 1, 0.975) / scipy.special.stdtrit(n - 1, 0.975)) ** 2
        effect = between / simple * wider
        same_in_cluster = np.bincount(of_cluster, size**2, n_strata) / n
    is_known = (n_clusters > 1) & (simple > 1e-12)
    effect = np.clip(np.where(is_known, effect, np.nan_to_num(same_in_cluster, nan=1.0)), 1, np.maximum(n, 1))
    if population is not None:
        effect += np.divide(n, population, out=np.zeros(n_strata), where=population > 0) * (1 - effect)
    return effect
