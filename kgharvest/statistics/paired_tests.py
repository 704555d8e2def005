"""Paired comparisons: pairs of sides (LM and setting) that differ in one respect, and their tests.

The module contains sign-flip tests, McNemar's test, bootstrap-t intervals of differences, Holm's adjustment, and rank
intervals.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kgharvest.statistics.arrays import Counts, Flags, Floats
from kgharvest.statistics.rates import SIGNIFICANCE

Differences = NDArray[np.float64]

MOST_RELATIONS_EXACT = 20
N_RANDOM_SIGNS = 9_999
FEWEST_RELATIONS_TO_TELL = 6  # with fewer relations, the sign-flip test cannot reach p < .05
N_RESAMPLES = 5_000
MARGIN = 0.05  # default equivalence margin, as a share
# Maximum width as a multiple of Student's interval; wider bootstrap intervals are artifacts of a few resamples.
WIDEST = 3.0
ROUNDING = 1e-9  # relative tolerance for equality of sums of shares

ONE_RELATION = "An interval needs at least two relations."
FEW_RELATIONS = f"An interval for similar relations needs at least {FEWEST_RELATIONS_TO_TELL} relations."
ALL_ALIKE = "All relations have the same share."
NONE_DIFFERS = "The difference is 0 in every relation."
TOO_ALIKE = "The interval is undefined: it needs more relations, or more distinct values."


class Equivalence(NamedTuple):
    """Equivalence of two sides. smallest_margin: smallest margin within which two one-sided tests at .05 hold, or None.

    margin: requested margin.
    """

    margin: float
    smallest_margin: float | None


class PairedDifference(NamedTuple):
    """Difference between sides, a minus b, over their shared relations.

    difference: unweighted mean over relations, in [-1, 1]. low, high: 95 % interval of the mean. p: p value of the test
    over relations (sign-flip) or over statements, depending on `unit`. reason: explanation if a value is missing.
    """

    n_relations: int
    difference: float
    low: float | None
    high: float | None
    p: float
    reason: str | None
    unit: str = "relations"
    equivalence: Equivalence | None = None


def paired_difference(differences: Differences, rng: np.random.Generator, margin: float = MARGIN) -> PairedDifference:
    """Compare two sides by the differences (n,) of their rates in n >= 1 relations. margin: equivalence margin."""
    p = sign_flip_p(differences, rng)
    low, high, reason = bootstrap_t_interval(differences, rng)
    equivalence = equivalence_over_relations(differences, margin)
    return PairedDifference(
        len(differences), mean_difference(differences), low, high, p, reason, equivalence=equivalence
    )


def mean_difference(differences: Differences) -> float:
    """Return the mean over relations, with rounding errors set to 0."""
    mean = float(differences.mean())
    return 0.0 if abs(mean) <= ROUNDING * np.abs(differences).sum() else mean


# Tests paired by relation


def sign_flip_p(differences: Differences, rng: np.random.Generator) -> float:
    """Return the two-sided p of the mean difference under the null hypothesis that both signs are equally likely.

    This is Fisher's randomization test (1935, The Design of Experiments, section 21). With up to 20 relations, the test
    is exact and uses all 2^n sign patterns. With more relations, it uses random patterns and the observed pattern, so p
    is never 0.
    """
    return float(sign_flip_ps(differences[np.newaxis], rng)[0])


def sign_flip_ps(differences: Differences, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the p of each row of (R, n). All rows use the same sign patterns. Differences of 0 have no effect."""
    observed = np.abs(differences.sum(axis=1)) - ROUNDING * np.abs(differences).sum(axis=1)  # (R,)
    if differences.shape[1] <= MOST_RELATIONS_EXACT:
        return np.array([_share_as_extreme(*row) for row in zip(differences, observed, strict=True)])
    signs = rng.integers(0, 2, size=(N_RANDOM_SIGNS, differences.shape[1]), dtype=np.int8) * 2.0 - 1  # (P, n)
    n_as_extreme = np.count_nonzero(np.abs(signs @ differences.T) >= observed, axis=0)
    ps: NDArray[np.float64] = (1 + n_as_extreme) / (1 + N_RANDOM_SIGNS)
    return ps


def _share_as_extreme(differences: Differences, observed: float) -> float:
    """Return the share of sign patterns whose absolute sum is at least `observed`.

    The sums of two halves of the relations are combined, and the sums of one half are sorted. This requires 2^(n / 2)
    searches instead of 2^n sums.
    """
    if observed <= 0:
        return 1.0
    half = len(differences) // 2
    left, right = _sums_over_all_signs(differences[:half]), np.sort(_sums_over_all_signs(differences[half:]))
    n_above = len(right) - np.searchsorted(right, observed - left, side="left")
    n_below = np.searchsorted(right, -observed - left, side="right")
    return float((n_above + n_below).sum() / (len(left) * len(right)))


def _sums_over_all_signs(differences: Differences) -> NDArray[np.float64]:
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return sums  # (2^n,)


def smallest_p(n_relations: int) -> float:
    """Return the p of a sign-flip test if all differences have the same sign."""
    return 2.0 ** (1 - n_relations)


def bootstrap_t_interval(
    differences: Differences, rng: np.random.Generator
) -> tuple[float | None, float | None, str | None]:
    """Return the 95 % bootstrap-t interval of the mean over resampled relations, or the reason if it is undefined.

    Distances are studentized by each resample's standard error (Efron and Tibshirani 1993, chapter 12). For a dozen
    relations, percentiles of the resampled means would give far too narrow intervals. If few relations differ, some
    resamples have almost no spread, which makes the interval too wide. Therefore, if the interval is more than WIDEST
    times as wide as Student's interval, Student's interval is returned.
    """
    n = len(differences)
    if n < 2:
        return None, None, ONE_RELATION
    if not differences.any():
        return None, None, NONE_DIFFERS
    mean, standard_error = differences.mean(), differences.std() / np.sqrt(n)
    distances = _studentised((differences - mean)[rng.integers(0, n, size=(N_RESAMPLES, n))])
    # Do not interpolate: a distance is infinite if a resample consists of one repeated relation, and inf - inf is NaN.
    below, above = np.quantile(distances, 0.025, method="lower"), np.quantile(distances, 0.975, method="higher")
    if standard_error <= ROUNDING or not np.isfinite([below, above]).all():
        return None, None, TOO_ALIKE
    student = float(scipy.special.stdtrit(n - 1, 0.975) * differences.std(ddof=1) / np.sqrt(n))
    if (above - below) * standard_error > 2 * WIDEST * student:
        low, high = np.clip([mean - student, mean + student], -1, 1)
    else:
        low, high = np.clip([mean - above * standard_error, mean - below * standard_error], -1, 1)
    return float(low), float(high), None


def interval_for_similar(shares: Floats, rng: np.random.Generator) -> tuple[float | None, float | None, str | None]:
    """Return the 95 % bootstrap-t interval of the mean share over similar relations, or the reason if it is undefined.

    shares (n,): of relations that are a random sample. Too narrow if a few relations differ much from the others, and
    the sample contains few of them (docs/statistics.md).
    """
    if len(shares) < FEWEST_RELATIONS_TO_TELL:
        return None, None, FEW_RELATIONS
    if np.ptp(shares) <= ROUNDING:
        return None, None, ALL_ALIKE
    low, high, reason = bootstrap_t_interval(shares, rng)
    return low and max(low, 0.0), high, reason


def equivalence_over_relations(differences: Differences, margin: float = MARGIN) -> Equivalence:
    """Return the smallest margin within which two one-sided t tests over relations hold (Schuirmann 1987)."""
    n = len(differences)
    standard_error = float(differences.std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0
    if standard_error <= ROUNDING:
        return Equivalence(margin, None)
    apart = abs(mean_difference(differences))
    return Equivalence(margin, min(1.0, apart + float(scipy.special.stdtrit(n - 1, 0.95)) * standard_error))


def _studentised(resamples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each resample (R, n) in standard errors. It is infinite if all values are equal."""
    means, spreads = resamples.mean(axis=1), resamples.std(axis=1)  # (R,)
    spreads[spreads <= ROUNDING] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = means / spreads * np.sqrt(resamples.shape[1])
    return np.where(np.isnan(distances), 0.0, distances)


# Tests paired by statement


def mcnemar_p(n_only_a: int, n_only_b: int) -> float | None:
    """Return McNemar's two-sided exact p, or None if both counts are 0.

    n_only_a, n_only_b: numbers of statements that are accepted only on side a, and only on side b.
    """
    n = n_only_a + n_only_b
    return float(scipy.stats.binomtest(n_only_a, n).pvalue) if n else None


# Multiple comparisons


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-adjusted p values in the order of `p_values`.

    Holm (1979), A simple sequentially rejective multiple test procedure. Adjusted values are monotone and at most 1.
    """
    values = np.asarray(p_values, dtype=np.float64)  # (m,)
    order = np.argsort(values, kind="stable")
    stepped = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return [float(p) for p in adjusted]


def holm_by_family(p_values: Sequence[float], families: Sequence[Hashable]) -> list[float]:
    """Return p values adjusted within each family, in the order of `p_values`."""
    adjusted = [0.0] * len(p_values)
    for family in dict.fromkeys(families):
        members = [number for number, other in enumerate(families) if other == family]
        for number, p in zip(members, holm([p_values[number] for number in members]), strict=True):
            adjusted[number] = p
    return adjusted


# Pairs of sides


FEWEST_RELATIONS = 2


class Side(NamedTuple):
    """An LM and a setting. Either is None for imported judgments that do not specify it."""

    model: str | None
    setting: str | None


class CellKey(NamedTuple):
    """Key of a cell. model, setting: as in `Side`. relation: None in files of labels without relations."""

    relation: str
    model: str | None
    setting: str | None

    @property
    def side(self) -> Side:
        return Side(self.model, self.setting)


class Pair(NamedTuple):
    """Two sides that differ only in `kind` ("settings" or "models"). common: the value that they share."""

    kind: str
    common: str | None
    a: Side
    b: Side

    @property
    def names(self) -> tuple[str, str]:
        a, b = (self.a.setting, self.b.setting) if self.kind == "settings" else (self.a.model, self.b.model)
        return str(a), str(b)  # not None, because pairs_of_sides skips sides without a name


Planned = frozenset[frozenset[Side]]  # preregistered comparisons, each a set of two sides


def is_planned(pair: Pair, planned: Planned | None) -> bool | None:
    """Return whether the comparison was preregistered, or None if there is no preregistration."""
    return None if planned is None else frozenset((pair.a, pair.b)) in planned


def paired_accuracies(accuracies: Mapping[CellKey, float | None]) -> Iterator[tuple[Pair, Floats]]:
    """Yield each pair of sides that share enough relations, with the difference a - b in each shared relation."""
    for pair, shared in compared_cells(accuracies):
        yield pair, np.array([a - b for a, b in shared])


def compared_cells(of_cells: Mapping[CellKey, float | None]) -> Iterator[tuple[Pair, list[tuple[float, float]]]]:
    """Yield each pair of sides that share enough relations, with both values in each shared relation.

    Relations are sorted, so that random draws do not depend on the order of cells.
    """
    by_side = relations_of_sides(of_cells)
    for pair in pairs_of_sides(list(by_side)):
        a, b = by_side[pair.a], by_side[pair.b]
        shared = [(a[relation], b[relation]) for relation in sorted(a.keys() & b.keys())]
        if len(shared) >= FEWEST_RELATIONS:
            yield pair, shared


def relations_of_sides(of_cells: Mapping[CellKey, Any]) -> dict[Side, dict[str, Any]]:
    """Return the values of the cells by side and relation. Sides are in the order of the cells."""
    by_side: dict[Side, dict[str, Any]] = {}
    for key, value in of_cells.items():
        relations = by_side.setdefault(Side(key.model, key.setting), {})  # store None, too, to keep the order of sides
        if value is not None:
            relations[key.relation] = value
    return by_side


def pairs_of_sides(sides: list[Side]) -> Iterator[Pair]:
    """Yield the pairs of sides that differ in one respect. Sides whose setting or LM is unknown are skipped."""
    for a, b in combinations(sides, 2):
        if a.model == b.model and a.setting and b.setting:
            yield Pair("settings", a.model, a, b)
    for a, b in combinations(sides, 2):
        if a.setting == b.setting and a.model and b.model:
            yield Pair("models", a.setting, a, b)


# Rank intervals of S sides
#
# A side's rank is 1 plus the number of better sides. All pairs are tested with a familywise error rate of .05. The
# interval of a side extends from 1 plus the number of significantly better sides to S minus the number of significantly
# worse sides. The intervals cover all true ranks simultaneously with 95 % confidence (Mogstad, Romano, Shaikh, and
# Wilhelm 2024, "Inference for Ranks with Applications to Mobility across Neighbourhoods and Academic Achievement across
# Countries"). If sides are tied, their intervals cover all ranks that they can have.


class PairTest(NamedTuple):
    """Indices of the sides a and b, the difference a - b, and its two-sided p."""

    a: int
    b: int
    difference: float
    p: float


def rank_intervals(is_better: Flags) -> Counts:
    """Return the first and last possible rank of each side (S, 2). Rank 1 is best.

    is_better (S, S): True if the row's side is significantly better than the column's side.
    """
    return np.column_stack([1 + is_better.sum(axis=0), len(is_better) - is_better.sum(axis=1)])


def better_by_tests(n_sides: int, tests: Sequence[PairTest]) -> Flags:
    """Return a matrix (S, S): True if the row's side is significantly better, after Holm's adjustment over all tests.

    Untested pairs are False.
    """
    is_better = np.zeros((n_sides, n_sides), dtype=np.bool_)
    for test, p in zip(tests, holm([test.p for test in tests]), strict=True):
        if p < SIGNIFICANCE and test.difference:
            ahead, behind = (test.a, test.b) if test.difference > 0 else (test.b, test.a)
            is_better[ahead, behind] = True
    return is_better


def better_by_limits(lower_limits: Callable[[float], Floats]) -> Flags:
    """Return a matrix (S, S): True if the row's side is better than the column's, by Holm's procedure on intervals.

    lower_limits: function that takes z and returns the lower limits (S, S) of row minus column at z standard errors,
    NaN if undefined. Each pair that is significant at a step relaxes the level for the remaining pairs.
    """
    is_known = ~np.isnan(lower_limits(0.0))
    np.fill_diagonal(is_known, False)
    n_pairs = n_left = int(is_known.sum()) // 2
    is_better = np.zeros(is_known.shape, dtype=np.bool_)
    while n_left:
        z = float(scipy.special.ndtri(1 - SIGNIFICANCE / 2 / n_left))
        is_better = is_known & (lower_limits(z) > 0)
        n_told = int(is_better.sum())
        if n_told == n_pairs - n_left:
            break
        n_left = n_pairs - n_told
    return is_better


def tied_with(is_better: Flags) -> list[list[int]]:
    """Return, for each side, the sides that are not significantly different from it."""
    is_apart = is_better | is_better.T
    np.fill_diagonal(is_apart, True)
    return [np.flatnonzero(~row).tolist() for row in is_apart]


# Sample-size planning: statements and relations needed for an interval width or for a difference between sides

POWER = 0.8
MOST_RELATIONS = 10_000


def relations_for_interval(n_relations: int, shrink: float) -> int:
    """Return the number of relations with which Student's interval is `shrink` times as wide as with `n_relations`."""

    def width(n: int) -> float:
        return float(scipy.special.stdtrit(n - 1, 0.975)) / sqrt(n)

    target = shrink * width(n_relations)
    return _smallest(lambda n: width(n) <= target, n_relations)


def statements_to_shrink(n: int, population: int, shrink: float) -> int:
    """Return the number of statements that multiplies a stratum's standard error with `n` statements by `shrink`.

    The result is at most the population. population: 0 if infinite. The variance is proportional to 1 / n - 1 / N
    (Cochran 1977, section 2.6).
    """
    if not n or not population:
        return ceil(n / shrink**2)
    return min(population, ceil(1 / (shrink**2 * (1 / n - 1 / population) + 1 / population) - 1e-9))


def fewest_relations(n_comparisons: int) -> int:
    """Return the minimum number of relations with which a sign-flip test can be significant after Holm's adjustment."""
    return next(n for n in range(2, MOST_RELATIONS) if smallest_p(n) * n_comparisons < SIGNIFICANCE)


def relations_to_tell_apart(difference: float, spread: float, n_comparisons: int = 1) -> int | None:
    """Return the number of relations with which a paired comparison detects `difference` with probability POWER.

    Returns None if the number exceeds 10,000. spread: standard deviation of the difference over relations, greater than
    0.

    The calculation is for Student's two-sided paired test at level .05 divided by the number of comparisons, as Holm
    requires for the smallest p. Unless there are few relations, this test approximates the sign-flip test. The
    noncentral t distribution is approximated by a shifted central t distribution.
    """
    start = fewest_relations(n_comparisons)
    n = _smallest(lambda n: difference_over_relations(spread, n, n_comparisons) <= abs(difference), start)
    return n if n < MOST_RELATIONS else None


def difference_over_relations(spread: float, n_relations: int, n_comparisons: int = 1) -> float:
    """Return the difference that a comparison over relations detects with probability POWER.

    Inverse of `relations_to_tell_apart`.
    """
    quantiles = scipy.special.stdtrit(n_relations - 1, np.array([1 - _tail(n_comparisons), POWER]))
    return float(quantiles[0] + quantiles[1]) * spread / sqrt(n_relations)


def difference_by_statements(standard_error: float, n_comparisons: int = 1) -> float:
    """Return the difference that a comparison by statements detects with probability POWER (normal approximation)."""
    return float(scipy.special.ndtri(1 - _tail(n_comparisons)) + scipy.special.ndtri(POWER)) * standard_error


def _tail(n_comparisons: int) -> float:
    """Return the one-sided level at which Holm's method tests the smallest p."""
    return SIGNIFICANCE / n_comparisons / 2


def _smallest(is_enough: Callable[[int], bool], start: int) -> int:
    """Return the smallest n >= `start` that `is_enough` accepts, or at least MOST_RELATIONS if there is none."""
    return start + bisect_left(range(start, MOST_RELATIONS), True, key=is_enough)
