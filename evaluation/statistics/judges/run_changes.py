"""What another wording, order, seed or LM changes: the labels of two runs of the same tuples, paired.

A single wording or order is one draw of many, so how far labels hang on it says how far a judge's errors are the LM's.
Intervals and p are for tuples like these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.agreement import ALL_ALIKE
from evaluation.statistics.judges.judge_quality import N_LABELS, TRUE
from evaluation.statistics.paired_tests import mcnemar_p
from evaluation.statistics.rates import Z_95, Rate, rate, unknown_rate

Codes = NDArray[np.int64]


class Change(NamedTuple):
    """Two runs on the n tuples that both labelled; an answer that cannot be read is a label of its own.

    n_differing: with another label in the other run; share: of all. kappa: Cohen's, of both runs' labels. n_to_true:
    only the other run calls them True; n_from_true: only this one does. more_true: their difference over n. p: that
    both are as likely, two-sided (McNemar, exact); None where there are none.
    """

    n: int
    n_differing: int
    share: Rate
    kappa: Rate
    n_to_true: int
    n_from_true: int
    more_true: Rate
    p: float | None


def change_between(label: Codes, other: Codes) -> Change | None:
    """Return what changes from one run's labels to the other's, of the same tuples (T,). None without any."""
    n = len(label)
    if not n:
        return None
    n_differing = int(np.count_nonzero(label != other))
    share = rate(n_differing, n)
    n_to_true, n_from_true = (
        int(np.count_nonzero((now == TRUE) & (then != TRUE))) for now, then in ((other, label), (label, other))
    )
    return Change(
        n,
        n_differing,
        share,
        _cohens_kappa(label, other, share),
        n_to_true,
        n_from_true,
        Rate((n_to_true - n_from_true) / n, *_paired_interval(n_to_true, n_from_true, n)),
        mcnemar_p(n_to_true, n_from_true),
    )


def _cohens_kappa(label: Codes, other: Codes, differing: Rate) -> Rate:
    """Return (P - P_e) / (1 - P_e), P the share of alike labels, P_e that by chance from each run's shares of labels.

    Cohen (1960). Its limits are those of P, with P_e as it was seen.
    """
    of_run, of_other = (np.bincount(labels, minlength=N_LABELS) / len(labels) for labels in (label, other))
    by_chance = float(of_run @ of_other)
    if by_chance == 1:
        return unknown_rate(ALL_ALIKE)
    value, low, high = (None if part is None else 1 - part / (1 - by_chance) for part in differing[:3])
    return Rate(value, high, low)


def _paired_interval(n_to: int, n_from: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two paired shares.

    Wald's, after half a pair is added to each of the four kinds, which holds where next to nothing differs, too
    (Agresti and Min 2005, Statistics in Medicine 24).
    """
    n_adjusted = n + 2
    difference = (n_to - n_from) / n_adjusted
    error = Z_95 * float(np.sqrt(n_to + n_from + 1 - n_adjusted * difference**2)) / n_adjusted
    return max(-1.0, difference - error), min(1.0, difference + error)
