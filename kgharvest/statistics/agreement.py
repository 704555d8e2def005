"""Inter-annotator agreement, computed from the counts of labels per task.

Tasks are grouped by count pattern: with three labels and three judgments, a task has one of ten patterns. `patterns`
(P, C) contains, for each of P patterns, the number of annotators who gave each of C labels. `n_tasks` (P,) contains the
number of tasks with each pattern.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from math import atanh, comb, hypot, sqrt, tanh
from typing import Any, NamedTuple

import krippendorff
import numpy as np
import scipy
from numpy.typing import NDArray

from kgharvest.statistics.arrays import Codes, Counts, Flags, Floats
from kgharvest.statistics.rates import Z_95, Rate

N_DRAWS = 5000

NOTHING_PAIRED = "No statement has two judgments."
ALL_ALIKE = "Agreement is undefined because all judgments are equal."
UNEQUAL = "Fleiss' kappa needs the same number of judgments for every statement."
FEWEST_ANNOTATORS = 5
FEW_ANNOTATORS = f"The interval needs at least {FEWEST_ANNOTATORS} annotators."
NO_INTERVAL = "The interval is undefined: in most draws all judgments are equal."


class Agreement(NamedTuple):
    """An agreement coefficient with its 95 % interval for similar statements and the same annotators.

    n_units: number of tasks with at least two judgments. reason: explanation if the value or the interval is missing.
    """

    value: float | None
    low: float | None
    high: float | None
    n_units: int
    reason: str | None


class Kappa(NamedTuple):
    """Kappa coefficient. `reason` explains a missing value."""

    value: float | None
    reason: str | None


def krippendorff_alpha(
    patterns: Counts, n_tasks: Counts, rng: np.random.Generator, n_draws: int = N_DRAWS
) -> Agreement:
    """Return nominal alpha with its Bayesian bootstrap interval. Missing judgments are allowed.

    Krippendorff (2011), worked example C: .743. The range is (-1, 1]. Alpha is negative if agreement is below chance.
    """
    patterns, n_tasks = pairable(patterns, n_tasks)
    n_units = int(n_tasks.sum())
    if n_units == 0:
        return Agreement(None, None, None, 0, NOTHING_PAIRED)
    if np.count_nonzero(n_tasks @ patterns) < 2:
        return Agreement(None, None, None, n_units, ALL_ALIKE)
    value = krippendorff.alpha(
        value_counts=np.repeat(patterns, n_tasks, axis=0), level_of_measurement="nominal", dtype=np.float64
    )
    interval = pattern_interval(alpha_of_shares, patterns, n_tasks, rng, n_draws)
    return _with_interval(float(value), interval, n_units)


def pairable(patterns: Counts, n_tasks: Counts) -> tuple[Counts, Counts]:
    """Select the observed patterns that have two or more judgments."""
    is_pairable = (patterns.sum(axis=1) >= 2) & (n_tasks > 0)
    return patterns[is_pairable], n_tasks[is_pairable]


def _with_interval(value: float, interval: tuple[float, float] | None, n_units: int) -> Agreement:
    """Extend the interval to include the value.

    If the value is the maximum of the coefficient, it can be outside the interval.
    """
    if interval is None:
        return Agreement(value, None, None, n_units, NO_INTERVAL)
    return Agreement(value, min(interval[0], value), max(interval[1], value), n_units, None)


def alpha_of_counts(patterns: Counts, n_tasks: NDArray[np.number]) -> Floats:
    """Return nominal alpha for each row of `n_tasks` (R, P), NaN if it is undefined.

    Every pattern needs at least two judgments. The expected disagreement is the probability that two of the n
    judgments, drawn without replacement, differ. It is n / (n - 1) times the expected disagreement in
    `alpha_of_shares`.
    """
    n = n_tasks @ patterns.sum(axis=1)  # (R,)
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas: Floats = 1 - (1 - alpha_of_shares(patterns, n_tasks)) * (n - 1) / n
    return alphas


def alpha_of_shares(patterns: Counts, shares: NDArray[np.number]) -> Floats:
    """Return nominal alpha for each row of `shares` (R, P), the shares of patterns in a population.

    It is NaN if undefined.

    Let a pattern have m judgments, let n_c be the number of judgments of label c, and let n be the number of all
    judgments. Then alpha = 1 - n * sum over tasks of (disagreeing ordered pairs) / (m - 1) / (n^2 - sum_c n_c^2).
    """
    n_per_pattern = patterns.sum(axis=1)
    disagreeing = n_per_pattern**2 - (patterns**2).sum(axis=1)
    observed = shares @ (disagreeing / (n_per_pattern - 1))  # (R,)
    n_per_label = (shares @ patterns).astype(np.float64)  # (R, C); squares of large integers would overflow
    n = n_per_label.sum(axis=1)
    expected = n**2 - (n_per_label**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - n * observed / expected, np.nan)


def agreement_of_rows(rows: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Return percent_agreement, alpha without its interval, n_units, and the reason if alpha is None.

    rows: rows of n_true, n_false, n_unjudgeable, and the number of tasks with these counts.
    """
    table = np.array(list(rows), dtype=np.int64).reshape(-1, 4)
    counts, n_tasks = pairable(table[:, :3], table[:, 3])
    entry = {"percent_agreement": percent_agreement(counts, n_tasks), "n_units": int(n_tasks.sum())}
    if not len(counts):
        return entry | {"alpha": None, "reason": NOTHING_PAIRED}
    [alpha] = alpha_of_counts(counts, n_tasks[np.newaxis])
    is_defined = not np.isnan(alpha)
    return entry | {"alpha": float(alpha) if is_defined else None, "reason": None if is_defined else ALL_ALIKE}


class AnnotatorsInterval(NamedTuple):
    """95 % interval of a number for similar annotators and statements. `reason` explains a missing interval."""

    low: float | None
    high: float | None
    reason: str | None


def annotators_interval(alpha: Agreement, task: Codes, annotator: Codes, label: Codes) -> AnnotatorsInterval:
    """Return an interval of `alpha` that also generalizes to similar annotators.

    task, annotator, label (J,): the judgments from which `alpha` was computed.

    The annotators are assumed to be a random sample that was assigned to statements at random. Each arm of the interval
    is the square root of the sum of two squared arms: the arm over statements and the arm over annotators (Zou and
    Donner 2008, Statistics in Medicine 27). The arms over annotators are symmetric on Fisher's scale.
    docs/statistics.md reports the coverage.
    """
    if alpha.value is None or alpha.low is None or alpha.high is None:
        return AnnotatorsInterval(None, None, alpha.reason)
    is_paired = np.bincount(task)[task] >= 2
    _, annotator = np.unique(annotator[is_paired], return_inverse=True)
    if annotator.max() + 1 < FEWEST_ANNOTATORS:
        return AnnotatorsInterval(None, None, FEW_ANNOTATORS)
    arm = _arm_of_annotators(task[is_paired], annotator, label[is_paired])
    if arm == 0:
        return AnnotatorsInterval(alpha.low, alpha.high, None)
    middle, arm = atanh(alpha.value), arm / (1 - alpha.value**2)
    low = alpha.value - hypot(alpha.value - alpha.low, alpha.value - tanh(middle - arm))
    high = alpha.value + hypot(alpha.high - alpha.value, tanh(middle + arm) - alpha.value)
    return AnnotatorsInterval(max(low, -1.0), min(high, 1.0), None)


def _arm_of_annotators(task: Codes, annotator: Codes, label: Codes) -> float:
    """Return the half-width that variation between the A annotators adds to alpha's interval.

    Every task needs two judgments. The linearized influence of a judgment is its excess disagreement with the task's
    other judgments, plus the excess frequency of its label. Influences in different tasks are correlated only if the
    annotator is the same. The variance is the sum of the products of an annotator's influences over pairs of tasks. The
    interval over statements lacks this part of two-way clustering (Cameron, Gelbach, and Miller 2011, Journal of
    Business and Economic Statistics 29). To compute the variance, the influences of each annotator are summed, and the
    sums are squared and scaled by a quantile of Student's t. The noise in the squared sums is estimated from all
    judgments, scaled by a normal quantile, and subtracted. Student's t has A / 2 degrees of freedom, because sums of
    heterogeneous annotators have heavier tails than a normal variable. With A - 1 degrees of freedom, the coverage was
    .91 in simulated rounds with ten annotators.
    """
    n, n_labels, n_annotators = len(task), int(label.max()) + 1, int(annotator.max()) + 1
    same = np.bincount(task * n_labels + label)[task * n_labels + label]
    n_of_task = np.bincount(task)[task]
    disagreeing = (n_of_task - same) / (n_of_task - 1)  # (J,): share of the task's other judgments that differ
    shares = np.bincount(label) / n
    observed, expected = disagreeing.mean(), 1 - (shares**2).sum()
    by_chance = observed / expected * (shares[label] - (shares**2).sum())
    influence = -2 * (disagreeing - observed + by_chance) / (n * expected)
    squared_sums, noise = (np.bincount(annotator, influence) ** 2).sum(), (influence**2).sum()
    squared = scipy.special.stdtrit(n_annotators / 2, 0.975) ** 2 * squared_sums - Z_95**2 * noise
    # Corrects for the contribution of annotators to the means with which they are compared.
    correction = n_annotators * (n_annotators - 1) / (n_annotators - 2) ** 2
    return sqrt(max(0.0, squared) * correction)


class PanelJudgments(NamedTuple):
    """Judgments as contributions to an accuracy. All arrays have shape (J,).

    is_true: True if the label is True. group: number of the judgments' group. Judgments of a group are assumed to have
    the same probability of True. influence: change of the accuracy if the label were True instead of another label.
    unsampled: share of the population that was not sampled.
    """

    annotator: Codes
    is_true: Flags
    group: Codes
    influence: Floats
    unsampled: Floats


def interval_for_another_panel(accuracy: Rate, judgments: PanelJudgments) -> AnnotatorsInterval:
    """Return the interval of `accuracy` for another panel of similar annotators that judges the whole population.

    The panel has as many annotators. Each arm is the square root of the sum of two squared arms (Zou and Donner 2008,
    Statistics in Medicine 27): the arm over statements and the arm over annotators. A judgment contributes its
    influence times the difference between its label and the share of True in its group. The variance over annotators
    is that of the sums of an annotator's contributions, less the noise of sampled statements, which the first arm
    includes. It counts twice, for this panel and the other one. docs/statistics.md reports the coverage.
    """
    if accuracy.value is None or accuracy.low is None or accuracy.high is None:
        return AnnotatorsInterval(None, None, accuracy.reason)
    _, annotator = np.unique(judgments.annotator, return_inverse=True)
    n_annotators = int(annotator.max(initial=-1)) + 1
    if n_annotators < FEWEST_ANNOTATORS:
        return AnnotatorsInterval(None, None, FEW_ANNOTATORS)
    n_in_group = np.bincount(judgments.group)
    share_true = np.bincount(judgments.group, judgments.is_true) / np.maximum(n_in_group, 1)
    contribution = judgments.influence * (judgments.is_true - share_true[judgments.group])
    between = n_annotators / (n_annotators - 1) * (np.bincount(annotator, contribution) ** 2).sum()
    share_of_annotator = np.bincount(annotator) / len(annotator)
    freedom = 1 / (share_of_annotator**2).sum() - 1  # annotators with unequal numbers of judgments count as fewer
    noise = (judgments.unsampled * contribution**2).sum()
    squared = 2 * max(0.0, scipy.special.stdtrit(freedom, 0.975) ** 2 * between - Z_95**2 * noise)
    low = accuracy.value - sqrt((accuracy.value - accuracy.low) ** 2 + squared)
    high = accuracy.value + sqrt((accuracy.high - accuracy.value) ** 2 + squared)
    return AnnotatorsInterval(max(low, 0.0), min(high, 1.0), None)


def gwet_ac1(patterns: Counts, n_tasks: Counts, rng: np.random.Generator, n_draws: int = N_DRAWS) -> Agreement:
    """Return Gwet's AC1 with its Bayesian bootstrap interval. Missing judgments are allowed.

    Unlike alpha, AC1 is defined even if all judgments are equal; it is then 1. `patterns` has a column for every label.
    """
    judged = (patterns.sum(axis=1) >= 1) & (n_tasks > 0)
    patterns, n_tasks = patterns[judged], n_tasks[judged]
    n_units = int(n_tasks[patterns.sum(axis=1) >= 2].sum())
    if n_units == 0:
        return Agreement(None, None, None, 0, NOTHING_PAIRED)
    [value] = ac1_of_shares(patterns, n_tasks[np.newaxis])
    return _with_interval(float(value), pattern_interval(ac1_of_shares, patterns, n_tasks, rng, n_draws), n_units)


def ac1_of_shares(patterns: Counts, shares: NDArray[np.number]) -> Floats:
    """Return AC1 for each row of `shares` (R, P), NaN if no task has two judgments. Every pattern needs a judgment.

    Gwet (2008), Computing inter-rater reliability and its variance in the presence of high agreement, British Journal
    of Mathematical and Statistical Psychology 61: (P - P_e) / (1 - P_e). P is the mean share of agreeing pairs over
    tasks with two or more judgments. P_e = sum_c p_c (1 - p_c) / (C - 1), where p_c is the mean share of label c over
    all tasks.
    """
    n_per_pattern = patterns.sum(axis=1)
    is_paired = n_per_pattern >= 2
    n_pairs = np.where(is_paired, n_per_pattern * (n_per_pattern - 1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = shares @ ((patterns * (patterns - 1)).sum(axis=1) / n_pairs) / (shares @ is_paired)  # (R,)
    label_shares = shares @ (patterns / n_per_pattern[:, np.newaxis]) / shares.sum(axis=1, keepdims=True)  # (R, C)
    by_chance = (label_shares * (1 - label_shares)).sum(axis=1) / (patterns.shape[1] - 1)
    values: Floats = (observed - by_chance) / (1 - by_chance)
    return values


def percent_agreement(patterns: Counts, n_tasks: Counts) -> float | None:
    """Return the share of agreeing pairs among all pairs of judgments of a task, or None if there are no pairs."""
    n_per_pattern = patterns.sum(axis=1)
    n_pairs = n_tasks @ (n_per_pattern * (n_per_pattern - 1))
    if n_pairs == 0:
        return None
    return float(n_tasks @ (patterns * (patterns - 1)).sum(axis=1) / n_pairs)


def fleiss_kappa(patterns: Counts, n_tasks: Counts) -> Kappa:
    """Return Fleiss' kappa. Every task needs the same number of judgments, at least two.

    Kappa is (P - P_e) / (1 - P_e), where P is the share of agreeing pairs and P_e is the sum of the squared shares of
    the labels. Fleiss (1971), Measuring nominal scale agreement among many raters; worked example: .430.
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


def pair_counts(task: Codes, annotator: Codes, label: Codes) -> list[tuple[int, ...]]:
    """Return (a, b, number of shared tasks, number of tasks with equal labels) for each pair of annotators a < b.

    Only pairs with a shared task are returned, in sorted order. Judgments (J,) must be sorted by task, then annotator.
    """
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
        (code // base, code % base, *numbers)
        for code, *numbers in zip(shared.tolist(), n_shared.tolist(), n_agreeing.tolist(), strict=True)
    ]


Coefficient = Callable[[Counts, Floats], Floats]
"""Function of patterns (P, C) and pattern shares (R, P) that returns (R,), NaN if undefined."""

PRIOR_STATEMENTS = 1.5  # among values from 1 to 2, the one with the largest minimum coverage
# Maximum number of patterns to enumerate; if there are more, only observed and unanimous patterns are used.
MOST_WAYS = 300


def pattern_interval(
    coefficient: Coefficient, patterns: Counts, n_tasks: Counts, rng: np.random.Generator, n_draws: int
) -> tuple[float, float] | None:
    """Return the 95 % interval of an agreement coefficient, or None if it is undefined in most draws.

    This is a Bayesian bootstrap (Rubin 1981, The Bayesian bootstrap, Annals of Statistics 9) of count patterns. The
    shares of all possible patterns are drawn from their posterior. The Dirichlet prior is worth PRIOR_STATEMENTS
    statements, spread evenly over the patterns. Resampling of statements could not draw unobserved patterns. Its
    coverage is therefore too low if there are few statements or nearly all are alike (docs/statistics.md). The
    annotators are held fixed. patterns (P, C): number of judgments per label. n_tasks (P,): number of statements per
    pattern.
    """
    every_pattern, prior = possible_patterns(patterns, n_tasks)
    seen = np.zeros(len(every_pattern))
    position = {tuple(pattern): number for number, pattern in enumerate(every_pattern.tolist())}
    for pattern, n in zip(patterns.tolist(), n_tasks.tolist(), strict=True):
        if n:
            seen[position[tuple(pattern)]] += n
    shares = rng.standard_gamma(seen + prior, size=(n_draws, len(prior)))
    values = coefficient(every_pattern, shares / shares.sum(axis=1, keepdims=True))
    defined = values[~np.isnan(values)]
    if 2 * len(defined) <= n_draws:
        return None
    tail = expanded_tail(int(n_tasks.sum()))
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def expanded_tail(n: int) -> float:
    """Return the tail probability with which a percentile interval matches Student's t interval of n values.

    The spread of a bootstrap is too small by a factor of sqrt((n - 1) / n), and percentile intervals ignore that the
    spread is estimated (Hesterberg 2015, "What teachers should know about the bootstrap", American Statistician 69).
    """
    n = max(n, 2)
    return float(scipy.special.ndtr(-sqrt(n / (n - 1)) * scipy.special.stdtrit(n - 1, 0.975)))


def possible_patterns(patterns: Counts, n_tasks: Counts) -> tuple[Counts, Floats]:
    """Return the possible patterns and the prior of each, in statements.

    For each observed number of judgments, the possible patterns are all combinations of the labels in use. The labels
    in use always include the first two (True and False). Priors are proportional to the observed numbers of statements.
    """
    n_labels = patterns.shape[1]
    is_used = n_tasks @ patterns > 0
    labels = [label for label in range(n_labels) if label < 2 or is_used[label]]
    sizes = patterns.sum(axis=1)
    every_pattern: list[list[int]] = []
    prior: list[float] = []
    for size in np.unique(sizes[n_tasks > 0]).tolist():
        shown = patterns[(sizes == size) & (n_tasks > 0)]
        if comb(size + len(labels) - 1, size) > MOST_WAYS:
            ways = np.unique(np.concatenate([shown, size * np.eye(n_labels, dtype=np.int64)[labels]]), axis=0).tolist()
        else:
            ways = [
                np.bincount(way, minlength=n_labels).tolist() for way in combinations_with_replacement(labels, size)
            ]
        share = n_tasks[sizes == size].sum() / n_tasks.sum()
        every_pattern += ways
        prior += [PRIOR_STATEMENTS * share / len(ways)] * len(ways)
    return np.array(every_pattern, dtype=np.int64), np.array(prior)
