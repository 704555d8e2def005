"""Judge-assisted rates: people's verdicts on a sample are combined with an LM judge's labels of the whole harvest.

The sample is post-stratified by the judge's label. It is known how many tuples the judge calls true, false, or neither.
The draws in each of these groups are a simple random sample of the group. The estimate is therefore valid for any
judge: only people's verdicts determine the truth, and the judge only groups similar tuples (Holt and Smith 1979, Post
stratification, JRSS A 142; Cochran 1977, section 5A.9).

For one stratum, the interval is the shortest interval that contains the number of accepted tuples with 95 % posterior
probability. In each group, the tuples that were not drawn have a beta-binomial posterior with Jeffreys's prior. The
posteriors are convolved over groups (Ericson 1969, Subjective Bayesian models in sampling finite populations, JRSS B
31; shortest intervals for the accuracy of KGs: Marchesin and Silvello 2025, arXiv 2502.18961). For several strata, the
priors of the many groups would shift the average rate toward one half, so the exact interval of
kgharvest.statistics.rates over all groups is used instead. docs/statistics.md reports the coverage.

The choice of groups depends on expected numbers of draws, never on observed outcomes: for example, always choosing the
narrower interval would favor samples with more true tuples. For several strata, an uninformative judge would widen the
interval, because groups are small. Callers therefore first check `tells_apart`, whose result does not depend on how
many tuples are true.

Dimensions in shapes: S strata; 3 labels of judges, in the order of GROUPS; G groups.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.paired_tests import statements_to_shrink
from kgharvest.statistics.rates import (
    ROUNDING,
    SIGNIFICANCE,
    UNKNOWN_POPULATION,
    Rate,
    VerdictSample,
    population_rate,
    sample_rate,
    whole_statements,
)
from kgharvest.statistics.statement_test import SharedStatements, SideSample, StatementDifference, statement_difference

GROUPS = ("true", "false", "other")  # groups of labels of a judge; "other" means unjudgeable, unreadable, or missing
CALLED_TRUE, CALLED_FALSE, OTHER = range(3)
FEWEST_EXPECTED = 3.0  # minimum expected number of draws in a group of its own
POST_STRATIFIED, PEOPLE_ALONE = "post_stratified", "people_alone"
PRIOR = 0.5  # both parameters of Jeffreys's prior


class JudgedSample(NamedTuple):
    """Strata by the judge's label. population, drawn (S, 3): numbers of tuples in the population and in the sample.

    accepted: evidence for acceptance of the drawn tuples, in arrays of shape (S, 3). further_effects (S,): factors, at
    least 1, by which clusters of statements reduce the evidence of post-stratified groups further, because the errors
    of the judge can be more alike in a cluster than the verdicts; None for simple random samples.
    """

    population: Counts
    drawn: Counts
    accepted: VerdictSample
    further_effects: Floats | None = None


class PostStrata(NamedTuple):
    """Groups (G,) of post-stratification.

    group_of (S, 3): the group of each label in each stratum. stratum (G,): index of each group's stratum. part (G,):
    share of the stratum's tuples that are in the group.
    """

    population: Counts
    accepted: VerdictSample
    part: Floats
    stratum: Counts
    group_of: Counts

    def weights(self, of_strata: Floats) -> Floats:
        return of_strata[self.stratum] * self.part


class AssistedRate(NamedTuple):
    """A rate with its judge-assisted version. people: rate from people's verdicts alone.

    method: POST_STRATIFIED, or PEOPLE_ALONE if both rates are the same.

    effective_labels: number of statements that people alone would have to judge for an interval of the same width.
    """

    rate: Rate
    people: Rate
    method: str
    effective_labels: int | None


def judge_assisted_rate(sample: JudgedSample, weights: Floats | None = None) -> AssistedRate:
    """Return the share of accepted tuples in a stratified population.

    weights (S,): weights that add up to 1. If None, the shares of the population are used.
    """
    population = sample.population.sum(axis=1)
    of_strata = VerdictSample(*(column.sum(axis=1) for column in sample.accepted))
    n = int(whole_statements(of_strata.n).sum())
    if not population.all():
        return AssistedRate(*(Rate(reason=UNKNOWN_POPULATION),) * 2, PEOPLE_ALONE, None)
    people = sample_rate(of_strata, population, weights)
    groups = post_strata(sample)
    if people.with_interval is None or len(groups.population) == len(population):
        return AssistedRate(people, people, PEOPLE_ALONE, n if people.value is not None else None)
    rate = _rate(groups, len(population) == 1, weights)
    return AssistedRate(rate, people, POST_STRATIFIED, effective_labels(n, int(population.sum()), people, rate))


def judge_assisted_share(sample: JudgedSample) -> float | None:
    """Return the value of `judge_assisted_rate` without its interval, which is slow to compute."""
    if not sample.population.sum(axis=1).all():
        return None
    groups = post_strata(sample)
    return population_rate(groups.accepted.n_hits, groups.accepted.n, groups.population, has_limits=False).value


def people_alone(sample: JudgedSample) -> JudgedSample:
    """Return the sample without the judge's labels."""

    def in_other(values: NDArray[Any]) -> NDArray[Any]:
        zeros = np.zeros((len(values), OTHER), dtype=values.dtype)
        return np.concatenate([zeros, values.sum(axis=1, keepdims=True)], axis=1)

    return JudgedSample(
        in_other(sample.population), in_other(sample.drawn), VerdictSample(*map(in_other, sample.accepted))
    )


def effective_labels(n: int, population: int, people: Rate, assisted: Rate) -> int | None:
    """Return how many statements, at most `population`, would make `people` as precise as `assisted`.

    n: number of statements behind `people`. Precision is measured by the width of the interval.
    """
    if people.with_interval is None or assisted.with_interval is None:
        return None
    width_of_people, width = (high - low for _, low, high in (people.with_interval, assisted.with_interval))
    if width_of_people <= 0:
        return n
    return population if width <= 0 else statements_to_shrink(n, population, width / width_of_people)


# Groups


def post_strata(sample: JudgedSample) -> PostStrata:
    """Return the post-stratification groups.

    If a stratum has a thin group, the group "other" is merged with "false". If the stratum still has a thin group, it
    becomes a single group. A group is thin if it has fewer than FEWEST_EXPECTED expected draws and was not drawn
    completely. A group without a verdict is also thin; this happens in 1 of 20 groups with FEWEST_EXPECTED expected
    draws.
    """
    group_of = np.zeros(sample.population.shape, dtype=np.int64)
    n_groups = 0
    for stratum, (population, drawn, n) in enumerate(
        zip(sample.population, sample.drawn, sample.accepted.n, strict=True)
    ):
        local = _groups_of_stratum(population, drawn, n)
        group_of[stratum] = n_groups + local
        n_groups += int(local.max()) + 1
    flat = group_of.ravel()
    sizes = np.bincount(flat, sample.population.ravel(), n_groups).astype(np.int64)
    accepted = VerdictSample(
        *(np.bincount(flat, column.ravel(), n_groups).astype(np.float64) for column in sample.accepted)
    )
    stratum_of = np.zeros(n_groups, dtype=np.int64)
    stratum_of[flat] = np.repeat(np.arange(len(group_of)), len(GROUPS))
    if sample.further_effects is not None:
        is_split = np.bincount(stratum_of)[stratum_of] > 1
        accepted = accepted.effective(np.where(is_split, sample.further_effects[stratum_of], 1))
    part = sizes / np.maximum(sample.population.sum(axis=1), 1)[stratum_of]
    return PostStrata(sizes, accepted, part, stratum_of, group_of)


def _groups_of_stratum(population: Counts, drawn: Counts, n: Floats) -> Counts:
    """Return the group of each label (3,), numbered from 0. A label without tuples is put into a nonempty group."""
    expected = drawn.sum() * population / max(int(population.sum()), 1)
    for groups in (np.array([0, 1, 2]), np.array([0, 1, 1])):
        columns = (population, drawn, n, expected)
        sizes, draws, worth, hoped = (np.bincount(groups, column).astype(np.float64) for column in columns)
        is_thin = (draws < sizes) & (hoped < FEWEST_EXPECTED)
        has_verdicts = whole_statements(worth) > 0
        if not is_thin.any() and has_verdicts[sizes > 0].all():
            number = np.maximum(np.cumsum(sizes > 0) - 1, 0)  # an empty group is merged with the previous group
            numbered: Counts = number[groups]
            return numbered
    return np.zeros(len(GROUPS), dtype=np.int64)


def tells_apart(sample: JudgedSample) -> bool:
    """Return True if verdicts differ significantly between groups within strata.

    The result for a single stratum is True.

    The test is an F test of groups within strata (analysis of variance), which approximates a permutation test of
    verdicts.
    """
    n_strata = len(sample.population)
    groups = post_strata(sample)
    if n_strata == 1 or len(groups.population) == n_strata:
        return n_strata == 1
    n, n_hits = groups.accepted.n, groups.accepted.n_hits
    share = n_hits / np.where(n > 0, n, 1)
    n_of_stratum, hits_of_stratum = (np.bincount(groups.stratum, column) for column in (n, n_hits))
    overall = (hits_of_stratum / np.where(n_of_stratum > 0, n_of_stratum, 1))[groups.stratum]
    between, within = float(n @ (share - overall) ** 2), float(n @ (share * (1 - share)))
    between_df, within_df = len(n) - n_strata, float(n.sum()) - len(n)
    if within <= ROUNDING or within_df <= 0:
        return between > ROUNDING
    return bool(scipy.special.fdtrc(between_df, within_df, between / between_df / (within / within_df)) <= SIGNIFICANCE)


# Intervals


def _rate(groups: PostStrata, is_simple: bool, weights: Floats | None) -> Rate:
    """Return the rate, computed over the groups of one stratum (`is_simple`) or of several strata.

    weights (S,): weights of the strata; by default their sizes. The limits are computed from the minimum and maximum
    numbers of hits, as in `sample_rate`.
    """
    n, sizes = groups.accepted.n, groups.population

    def at(n_hits: Floats) -> Rate:
        if not is_simple:
            return population_rate(n_hits, n, sizes, None if weights is None else groups.weights(weights))
        rate = population_rate(n_hits, n, sizes, has_limits=False)
        if rate.value is None:
            return rate
        judged = whole_statements(n)
        hits = np.clip(n_hits / n, 0, 1) * judged
        low, high = posterior_interval(tuple(zip(hits.tolist(), judged.tolist(), sizes.tolist(), strict=True)))
        return Rate(rate.value, min(low, rate.value), max(high, rate.value))

    rate = at(groups.accepted.n_hits)
    if np.array_equal(groups.accepted.least, groups.accepted.most):
        return rate
    return Rate(rate.value, at(groups.accepted.least).low, at(groups.accepted.most).high, rate.reason)


@lru_cache(maxsize=100_000)
def posterior_interval(groups: tuple[tuple[float, int, int], ...]) -> tuple[float, float]:
    """Return the shortest interval that contains the overall share of hits with 95 % posterior probability.

    groups: for each group, the numbers of hits, of draws, and of tuples in the population.
    """
    unseen = np.ones(1)
    for n_hits, n, population in groups:
        unseen = np.maximum(scipy.signal.convolve(unseen, _unseen_hits(n_hits, n, population)), 0)
    first, last = _shortest(unseen / unseen.sum())
    seen, size = sum(group[0] for group in groups), sum(group[2] for group in groups)
    return (seen + first) / size, (seen + last) / size


def _unseen_hits(n_hits: float, n: int, population: int) -> Floats:
    """Return the beta-binomial posterior probabilities of 0, 1, ... hits among the tuples that were not drawn."""
    rest = population - n
    hits = np.arange(rest + 1)
    logs = scipy.special.gammaln(hits + n_hits + PRIOR) - scipy.special.gammaln(hits + 1)
    logs += scipy.special.gammaln(rest - hits + n - n_hits + PRIOR) - scipy.special.gammaln(rest - hits + 1)
    probabilities: Floats = np.exp(logs - logs.max())
    probabilities /= probabilities.sum()
    return probabilities


def _shortest(probabilities: Floats) -> tuple[int, int]:
    """Return the first and last outcome of the shortest range with probability 95 %.

    Of equally short ranges, the most probable is chosen.
    """
    cumulated = np.concatenate([[0.0], probabilities.cumsum()])
    wanted = cumulated[:-1] + (1 - SIGNIFICANCE) * cumulated[-1]
    end = np.searchsorted(cumulated, wanted - 1e-12)
    first = np.arange(len(probabilities))
    length = np.where(end < len(cumulated), end - first, len(cumulated))
    shortest = np.flatnonzero(length == length.min())
    mass = cumulated[end[shortest]] - cumulated[shortest]
    best = int(shortest[mass.argmax()])
    return best, int(end[best]) - 1


# Comparisons of two sides


class JudgedSide(NamedTuple):
    """Strata of one side over all compared relations. Arrays have shape (S,), except in the sample.

    calibration: numbers of the strata for which this side's verdicts were drawn; both sides use the same numbering.
    weight, relation: see `SideSample`.
    """

    sample: JudgedSample
    calibration: Counts
    weight: Floats
    relation: Counts


class JudgedDifference(NamedTuple):
    """Difference of two sides. difference: None if a side has no rate. a, b: rates of the sides."""

    difference: StatementDifference | None
    a: Rate
    b: Rate


def judged_difference(a: JudgedSide, b: JudgedSide, shared: SharedStatements | None = None) -> JudgedDifference:
    """Compare two sides. Each rate is post-stratified by the judge's labels and corrected by that side's verdicts.

    A judge's error rates differ between LMs and settings. Correcting both sides by errors measured on one side, or on
    both together, can reverse the comparison (arXiv 2605.06939).

    shared: statements drawn for both sides, (3 S_a, 3 S_b), by stratum and label of the judge. Shared statements
    correlate the two estimates only if their groups consist of the same labels on both sides. Raises ValueError if the
    sides share calibration strata.
    """
    if np.intersect1d(a.calibration, b.calibration).size:
        raise ValueError(
            "Both sides use the same verdicts for calibration, but a judge's errors differ between sides. "
            "Draw and judge statements for each side."
        )
    rate_a, rate_b = (judge_assisted_rate(side.sample, side.weight).rate for side in (a, b))
    groups = [post_strata(side.sample) for side in (a, b)]
    codes_a, codes_b = _codes(groups, (a, b))
    of_a, of_b = (
        SideSample(own.accepted, own.population, own.weights(side.weight), codes)
        for own, side, codes in zip(groups, (a, b), (codes_a, codes_b), strict=True)
    )
    in_groups = _in_groups(shared, groups, codes_a[:, np.newaxis] == codes_b) if shared else None
    return JudgedDifference(statement_difference(of_a, of_b, in_groups, rates=(rate_a, rate_b)), rate_a, rate_b)


def _codes(groups: list[PostStrata], sides: tuple[JudgedSide, JudgedSide]) -> list[Counts]:
    """Return codes (G,) for each side that identify the relation and the labels of each group.

    Both sides use the same codes.
    """
    rows = []
    for own, side in zip(groups, sides, strict=True):
        labels = np.zeros(len(own.population), dtype=np.int64)
        np.add.at(labels, own.group_of, (1 << np.arange(len(GROUPS))) * (side.sample.population > 0))
        rows.append(side.relation[own.stratum] * (1 << len(GROUPS)) + labels)
    _, codes = np.unique(np.concatenate(rows), return_inverse=True)
    return np.split(codes.reshape(-1), [len(rows[0])])


def _in_groups(shared: SharedStatements, groups: list[PostStrata], is_alike: NDArray[np.bool_]) -> SharedStatements:
    of_a, of_b = (own.group_of.ravel() for own in groups)
    sums = []
    for matrix in shared:
        in_groups = np.zeros(is_alike.shape)
        np.add.at(in_groups, (of_a[:, np.newaxis], of_b), matrix)
        sums.append(np.where(is_alike, in_groups, 0))
    return SharedStatements(*sums)
