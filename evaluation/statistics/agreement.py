"""Agreement between annotators, computed from how often each label was given to each task.

Everything here works on *count patterns*: with three labels and k = 3 a task shows one of ten patterns, however many
tasks there are. `patterns` has shape (P, C): P patterns, C labels, the number of annotators who gave each label.
`n_tasks` has shape (P,): the number of tasks that show each pattern.
"""

from __future__ import annotations

from typing import NamedTuple

import krippendorff
import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

N_REPLICATES = 5000

NOTHING_PAIRED = "No statement has two judgments, so there is nothing to compare."
ALL_ALIKE = "All judgments are alike, so agreement cannot be told from chance."
UNEQUAL = "Fleiss' kappa needs equally many judgments of every statement."
ONE_PATTERN = "The interval is not defined: every statement shows the same judgments, and so does every resample."
REPLICATES_ALIKE = "The interval is not defined: in most resamples all judgments are alike."


class Alpha(NamedTuple):
    """Krippendorff's alpha with its 95 % interval; `reason` says why a part of it is None.

    n_units: the tasks with at least two judgments, which are those that count.
    """

    value: float | None
    low: float | None
    high: float | None
    n_units: int
    reason: str | None


class Kappa(NamedTuple):
    """A kappa; `reason` says why there is none."""

    value: float | None
    reason: str | None


def krippendorff_alpha(
    patterns: Counts, n_tasks: Counts, rng: np.random.Generator, n_replicates: int = N_REPLICATES
) -> Alpha:
    """Return nominal alpha, missing judgments allowed, with a bootstrap interval over tasks.

    Krippendorff (2011), worked example C: .743. Range (-1, 1]: below 0 where people agree less than by chance.
    """
    patterns, n_tasks = pairable(patterns, n_tasks)
    n_units = int(n_tasks.sum())
    if n_units == 0:
        return Alpha(None, None, None, 0, NOTHING_PAIRED)
    if np.count_nonzero(n_tasks @ patterns) < 2:
        return Alpha(None, None, None, n_units, ALL_ALIKE)
    value = krippendorff.alpha(
        value_counts=np.repeat(patterns, n_tasks, axis=0), level_of_measurement="nominal", dtype=np.float64
    )
    if len(np.unique(patterns, axis=0)) == 1:
        return Alpha(float(value), None, None, n_units, ONE_PATTERN)
    low, high = bootstrap_interval(patterns, n_tasks, rng, n_replicates)
    return Alpha(float(value), low, high, n_units, REPLICATES_ALIKE if low is None else None)


def pairable(patterns: Counts, n_tasks: Counts) -> tuple[Counts, Counts]:
    """Keep the patterns of two or more judgments that some task shows: a lone judgment pairs with nothing."""
    kept = (patterns.sum(axis=1) >= 2) & (n_tasks > 0)
    return patterns[kept], n_tasks[kept]


def bootstrap_interval(
    patterns: Counts, n_tasks: Counts, rng: np.random.Generator, n_replicates: int
) -> tuple[float | None, float | None]:
    """Return the 2.5 % and 97.5 % quantiles of alpha over resamples of tasks with replacement.

    Drawing tasks is drawing how many tasks show each pattern: one multinomial draw per replicate.
    Replicates without an alpha do not take part; (None, None) if they are the majority.
    """
    n_units = n_tasks.sum()
    replicates = rng.multinomial(n_units, n_tasks / n_units, size=n_replicates)  # (R, P)
    alphas = alpha_of_counts(patterns, replicates)
    defined = alphas[~np.isnan(alphas)]
    if 2 * len(defined) <= n_replicates:
        return None, None
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(low), float(high)


def alpha_of_counts(patterns: Counts, n_tasks: NDArray[np.number]) -> NDArray[np.float64]:
    """Return nominal alpha in closed form for each row of `n_tasks` (R, P); NaN where it is undefined.

    With m judgments in a pattern, n_c judgments of label c and n in all:
    alpha = 1 - (n - 1) * sum over tasks of (disagreeing ordered pairs) / (m - 1) / (n^2 - sum_c n_c^2).
    Every pattern must hold at least two judgments.
    """
    n_per_pattern = patterns.sum(axis=1)
    disagreeing = n_per_pattern**2 - (patterns**2).sum(axis=1)
    observed = n_tasks @ (disagreeing / (n_per_pattern - 1))  # (R,)
    n_per_label = (n_tasks @ patterns).astype(np.float64)  # (R, C): in floats, as squares of millions overflow sums
    n = n_per_label.sum(axis=1)
    expected = n**2 - (n_per_label**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - (n - 1) * observed / expected, np.nan)


def percent_agreement(patterns: Counts, n_tasks: Counts) -> float | None:
    """Return the share of pairs of judgments of the same task that agree, or None if there is no pair."""
    n_per_pattern = patterns.sum(axis=1)
    n_pairs = n_tasks @ (n_per_pattern * (n_per_pattern - 1))
    if n_pairs == 0:
        return None
    return float(n_tasks @ (patterns * (patterns - 1)).sum(axis=1) / n_pairs)


def fleiss_kappa(patterns: Counts, n_tasks: Counts) -> Kappa:
    """Return Fleiss' kappa over all tasks, each with the same number of judgments, two or more.

    (P - P_e) / (1 - P_e), with P the share of agreeing pairs and P_e the sum of the squared shares of the labels.
    Fleiss (1971), Measuring nominal scale agreement among many raters; worked example there: .430.
    """
    shown = patterns[n_tasks > 0]
    n_per_pattern = set(shown.sum(axis=1).tolist())
    observed = percent_agreement(patterns, n_tasks)
    if observed is None:
        return Kappa(None, NOTHING_PAIRED)
    if len(n_per_pattern) > 1:
        return Kappa(None, UNEQUAL)
    if np.count_nonzero(shown.sum(axis=0)) < 2:
        return Kappa(None, ALL_ALIKE)
    n_per_label = n_tasks @ patterns  # (C,)
    by_chance = float(((n_per_label / n_per_label.sum()) ** 2).sum())
    return Kappa((observed - by_chance) / (1 - by_chance), None)


Codes = NDArray[np.int64]


class PairCounts(NamedTuple):
    """Two annotators, the first the smaller number, and on how many tasks that both judged they gave the same label."""

    a: int
    b: int
    n_shared: int
    n_agreeing: int


def pair_counts(task: Codes, annotator: Codes, label: Codes) -> list[PairCounts]:
    """Return the pairs who share a task, sorted. Judgments (J,) sorted by task, then annotator."""
    if not len(task):
        return []
    base = int(annotator.max()) + 1
    codes, agrees = [], []
    for distance in range(1, int(np.bincount(task).max())):
        is_same = task[distance:] == task[:-distance]
        codes.append((annotator[:-distance] * base + annotator[distance:])[is_same])
        agrees.append((label[:-distance] == label[distance:])[is_same])
    if not codes:
        return []
    shared, of_pair = np.unique(np.concatenate(codes), return_inverse=True)
    n_shared = np.bincount(of_pair)
    n_agreeing = np.bincount(of_pair[np.concatenate(agrees)], minlength=len(shared))
    return [
        PairCounts(code // base, code % base, *numbers)
        for code, *numbers in zip(shared.tolist(), n_shared.tolist(), n_agreeing.tolist(), strict=True)
    ]
