"""Design effects of clusters.

A cluster consists of statements sampled together, for example all facts with one subject.
"""

import numpy as np
import scipy

from kgharvest.statistics.arrays import Codes, Flags, Floats


def design_effects(is_hit: Flags, stratum: Codes, cluster: Codes, n_strata: int) -> Floats:
    """Return the design effect of clustering on the share of hits in each stratum (S,). It is at least 1.

    A design effect is the number of clustered statements that are as informative as one statement of a simple sample.
    is_hit, stratum, cluster (D,): outcome, stratum, and cluster of each of D statements. A cluster belongs to one
    stratum; equal numbers in two strata are two clusters. n divided by the effect is the effective sample size of Korn
    and Graubard (1998, Survey Methodology 24, Confidence intervals for proportions with small expected number of
    positive counts). It is based on the variance of the share between clusters, by linearization, with the degrees of
    freedom of the clusters. If the statements of a stratum are all hits, all misses, or in a single cluster, this
    variance is unknown. The statements of a cluster then count as one.
    """
    n = np.bincount(stratum, minlength=n_strata).astype(np.float64)  # (S,)
    share = np.bincount(stratum, is_hit, n_strata) / np.maximum(n, 1)
    clusters, number = np.unique(np.column_stack([stratum, cluster]), axis=0, return_inverse=True)
    number, of_cluster = number.reshape(-1), clusters[:, 0]  # (D,), (C,)
    size = np.bincount(number, minlength=len(clusters))
    residual = np.bincount(number, is_hit - share[stratum], len(clusters))
    n_clusters = np.bincount(of_cluster, minlength=n_strata)
    simple = share * (1 - share) / np.maximum(n - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = n_clusters / (n_clusters - 1) * np.bincount(of_cluster, residual**2, n_strata) / n**2
        wider = (scipy.special.stdtrit(n_clusters - 1, 0.975) / scipy.special.stdtrit(n - 1, 0.975)) ** 2
        effect = between / simple * wider
        same_in_cluster = np.bincount(of_cluster, size**2, n_strata) / n
    is_known = (n_clusters > 1) & (simple > 0)
    return np.clip(np.where(is_known, effect, np.nan_to_num(same_in_cluster, nan=1.0)), 1, np.maximum(n, 1))
