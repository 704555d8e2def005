"""Rates of a harvest from people's verdicts on a sample and a judge's labels of all of it.

The sample is post-stratified by what the judge says: how many tuples of the harvest it calls true, how many false, and
of how many it says neither, is known, and in each of these groups the tuples drawn are a simple sample. So the estimate
holds whatever the judge is worth: people's verdicts alone say what is true, and the judge only tells which tuples are
alike (Holt and Smith 1979, Post stratification, JRSS A 142; Cochran 1977, section 5A.9).

Of one stratum the interval is the shortest that holds 95 % of the posterior of how many of its tuples are accepted:
beta-binomial in each group, with Jeffreys's prior, of what was not drawn, convolved over groups (Ericson 1969,
Subjective Bayesian models in sampling finite populations, JRSS B 31; shortest intervals for the accuracy of KGs:
Marchesin and Silvello 2025, arXiv 2502.18961). A prior for each group of each of many strata would draw their average
to one half, so that of several strata it is the exact interval of kgharvest.statistics.rates over all
groups. docs/statistics.md has the coverage measured.

Whether groups are told apart depends on how many draws they should have, never on how many they had: choosing by the
narrower interval, say, would prefer samples in which more is true. Of several strata a judge who tells nothing would
cost width, as their groups are small: whoever estimates these asks `tells_apart` first, which does not ask whether many
or few are true.

Letters of shapes: S strata; 3 labels of judges, in the order of GROUPS; G groups that are told apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import convolve
from scipy.special import fdtrc, gammaln

from kgharvest.statistics.arrays import Counts, Floats
from kgharvest.statistics.rates import (
    ROUNDING,
    SIGNIFICANCE,
    UNKNOWN_POPULATION,
    Z_95,
    Rate,
    VerdictSample,
    population_rate,
    population_share,
    sample_rate,
    unknown_rate,
    whole_statements,
)
from kgharvest.statistics.sample_size import statements_to_shrink
from kgharvest.statistics.statement_test import SharedStatements, SideSample, StatementDifference, statement_difference

GROUPS = ("true", "false", "other")  # what a judge says of a tuple; other: unjudgeable, unreadable or nothing
CALLED_TRUE, CALLED_FALSE, OTHER = range(3)
FEWEST_EXPECTED = 3.0  # draws that a group should have to stand alone
POST_STRATIFIED, PEOPLE_ALONE = "post_stratified", "people_alone"
PRIOR = 0.5  # both shapes of Jeffreys's


class JudgedSample(NamedTuple):
    """Strata by what a judge says. population, drawn (S, 3): tuples. accepted: what those drawn say, (S, 3) each."""

    population: Counts
    drawn: Counts
    accepted: VerdictSample


class PostStrata(NamedTuple):
    """Groups (G,) that are told apart.

    group_of (S, 3): which group the label of a stratum is in. part: of the stratum in the group. stratum: its number.
    """

    population: Counts
    accepted: VerdictSample
    part: Floats
    stratum: Counts
    group_of: Counts

    def weights(self, of_strata: Floats) -> Floats:
        return of_strata[self.stratum] * self.part


class AssistedRate(NamedTuple):
    """people: the rate by people's verdicts alone. method: POST_STRATIFIED or PEOPLE_ALONE, where both are the same.

    effective_labels: how many statements with a verdict people alone would have needed for such an interval.
    """

    rate: Rate
    people: Rate
    method: str
    effective_labels: int | None


def judge_assisted_rate(sample: JudgedSample, weights: Floats | None = None) -> AssistedRate:
    """Return the share accepted in the population of strata. weights (S,): of sum 1; None for their shares of it."""
    population = sample.population.sum(axis=1)
    of_strata = VerdictSample(*(column.sum(axis=1) for column in sample.accepted))
    n = int(whole_statements(of_strata.n).sum())
    if not population.all():
        return AssistedRate(*(unknown_rate(UNKNOWN_POPULATION),) * 2, PEOPLE_ALONE, None)
    people = sample_rate(of_strata, population, weights)
    groups = post_strata(sample)
    if people.with_interval is None or len(groups.population) == len(population):
        return AssistedRate(people, people, PEOPLE_ALONE, n if people.value is not None else None)
    rate = _rate(groups, len(population) == 1, weights)
    return AssistedRate(rate, people, POST_STRATIFIED, effective_labels(n, int(population.sum()), people, rate))


def judge_assisted_share(sample: JudgedSample) -> float | None:
    """Return the value of `judge_assisted_rate` without its interval, which takes time."""
    if not sample.population.sum(axis=1).all():
        return None
    groups = post_strata(sample)
    return population_share(groups.accepted.n_hits, groups.accepted.n, groups.population).value


def people_alone(sample: JudgedSample) -> JudgedSample:
    """Return the sample as if the judge had said nothing."""

    def in_other(values: NDArray[Any]) -> NDArray[Any]:
        zeros = np.zeros((len(values), OTHER), dtype=values.dtype)
        return np.concatenate([zeros, values.sum(axis=1, keepdims=True)], axis=1)

    return JudgedSample(
        in_other(sample.population), in_other(sample.drawn), VerdictSample(*map(in_other, sample.accepted))
    )


def effective_labels(n: int, population: int, people: Rate, assisted: Rate) -> int | None:
    """Return how many statements of `population` make people's interval, from n, as wide as the assisted one."""
    if people.with_interval is None or assisted.with_interval is None:
        return None
    width_of_people, width = (high - low for _, low, high in (people.with_interval, assisted.with_interval))
    if width_of_people <= 0:
        return n
    return population if width <= 0 else statements_to_shrink(n, population, width / width_of_people)


# -- groups ------------------------------------------------------------------------------------------------------------


def post_strata(sample: JudgedSample) -> PostStrata:
    """Return the groups of each stratum that are told apart.

    "other" joins "false" where a group is thin; a stratum in which one still is thin is one group. Thin is a group that
    should have fewer than FEWEST_EXPECTED draws, unless all of it was drawn; or, once in twenty such, has no verdict.
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
    part = sizes / np.maximum(sample.population.sum(axis=1), 1)[stratum_of]
    return PostStrata(sizes, accepted, part, stratum_of, group_of)


def _groups_of_stratum(population: Counts, drawn: Counts, n: Floats) -> Counts:
    """Return (3,) the group of each label, from 0 on; an empty label is in a group that is not."""
    expected = drawn.sum() * population / max(int(population.sum()), 1)
    for groups in (np.array([0, 1, 2]), np.array([0, 1, 1])):
        columns = (population, drawn, n, expected)
        sizes, draws, worth, hoped = (np.bincount(groups, column).astype(np.float64) for column in columns)
        is_thin = (draws < sizes) & (hoped < FEWEST_EXPECTED)
        has_verdicts = whole_statements(worth) > 0
        if not is_thin.any() and has_verdicts[sizes > 0].all():
            number = np.maximum(np.cumsum(sizes > 0) - 1, 0)  # an empty group is in that before it
            numbered: Counts = number[groups]
            return numbered
    return np.zeros(len(GROUPS), dtype=np.int64)


def tells_apart(sample: JudgedSample) -> bool:
    """Return whether verdicts differ between groups of several strata by more than chance; of one stratum always.

    F test of the groups within strata (analysis of variance), which for verdicts is about the permutation test.
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
    return bool(fdtrc(between_df, within_df, between / between_df / (within / within_df)) <= SIGNIFICANCE)


# -- intervals ---------------------------------------------------------------------------------------------------------


def _rate(groups: PostStrata, is_simple: bool, weights: Floats | None) -> Rate:
    """Return the rate over groups of a simple sample, or of several strata with `weights` (S,), None for their sizes.

    As `sample_rate`: from the lower limit at the least to the upper one at the most hits.
    """
    n, sizes = groups.accepted.n, groups.population

    def at(n_hits: Floats) -> Rate:
        if not is_simple:
            return population_rate(n_hits, n, sizes, None if weights is None else groups.weights(weights))
        rate = population_share(n_hits, n, sizes)
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
    """Return the shortest interval that holds 95 % of the posterior of the share of hits in all groups together.

    groups: hits, draws and population of each.
    """
    unseen = np.ones(1)
    for n_hits, n, population in groups:
        unseen = np.maximum(convolve(unseen, _unseen_hits(n_hits, n, population)), 0)
    first, last = _shortest(unseen / unseen.sum())
    seen, size = sum(group[0] for group in groups), sum(group[2] for group in groups)
    return (seen + first) / size, (seen + last) / size


def _unseen_hits(n_hits: float, n: int, population: int) -> Floats:
    """Return the posterior probabilities of 0, 1, ... hits among the tuples that were not drawn: beta-binomial."""
    rest = population - n
    hits = np.arange(rest + 1)
    logs = gammaln(hits + n_hits + PRIOR) - gammaln(hits + 1)
    logs += gammaln(rest - hits + n - n_hits + PRIOR) - gammaln(rest - hits + 1)
    probabilities: Floats = np.exp(logs - logs.max())
    probabilities /= probabilities.sum()
    return probabilities


def _shortest(probabilities: Floats) -> tuple[int, int]:
    """Return the first and last of the fewest neighbouring outcomes that hold 95 %; the likeliest of equally few."""
    cumulated = np.concatenate([[0.0], probabilities.cumsum()])
    wanted = cumulated[:-1] + (1 - SIGNIFICANCE) * cumulated[-1]
    end = np.searchsorted(cumulated, wanted - 1e-12)
    first = np.arange(len(probabilities))
    length = np.where(end < len(cumulated), end - first, len(cumulated))
    shortest = np.flatnonzero(length == length.min())
    mass = cumulated[end[shortest]] - cumulated[shortest]
    best = int(shortest[mass.argmax()])
    return best, int(end[best]) - 1


# -- two sides compared ------------------------------------------------------------------------------------------------


class JudgedSide(NamedTuple):
    """One side's strata over all relations compared; shapes (S,) but for the sample.

    calibration: which strata, by number, the verdicts of the sample were drawn for. weight, relation: of `SideSample`.
    """

    sample: JudgedSample
    calibration: Counts
    weight: Floats
    relation: Counts


class JudgedDifference(NamedTuple):
    """difference: None where a side has no rate. a, b: of the sides."""

    difference: StatementDifference | None
    a: Rate
    b: Rate


def judged_difference(a: JudgedSide, b: JudgedSide, shared: SharedStatements | None = None) -> JudgedDifference:
    """Compare two sides. Each rate is post-stratified by the judge's labels and corrected by that side's own verdicts.

    A judge's error rates differ between LMs and settings. Correcting both sides by the errors on one side, or on both
    together, can make the worse side look better (arXiv 2605.06939).

    shared: statements drawn for both, (3 S_a, 3 S_b), strata by label of the judge; those of which both sides tell the
    same labels apart make the two estimates alike. Raises ValueError if both sides were calibrated by the same strata.
    """
    if np.intersect1d(a.calibration, b.calibration).size:
        raise ValueError(
            "Both sides of the comparison are corrected by the same verdicts, but a judge errs differently on each; "
            "draw and judge statements of either side."
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
    """Return a number (G,) of each group's relation and labels, the same for both sides."""
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


# -- prediction-powered inference --------------------------------------------------------------------------------------


def prediction_powered_mean(label: ArrayLike, predicted: ArrayLike, predicted_of_all: ArrayLike) -> Rate:
    """Return the mean label with its normal 95 % interval (PPI++). The interval can exceed [0, 1]. Needs n >= 1.

    Angelopoulos, Duchi and Zrnic (2023), PPI++: Efficient Prediction-Powered Inference, arXiv 2311.01453. The numbers
    equal those of `ppi_mean_ci` in ppi-python 0.2.3. Reports show it next to `judge_assisted_rate`, which is about the
    finite population and covers the true rate more often.

    label, predicted (n,): what people say, and the judge, of the labelled ones. predicted_of_all (N,): what the judge
    says of all. Its weight, in [0, 1], is the covariance of both over the variance of the judge's labels of either
    kind pooled, as the gradients in the paper's section 6 give it.
    """
    y, f, f_all = (np.asarray(values, dtype=np.float64) for values in (label, predicted, predicted_of_all))
    n, n_all = len(y), len(f_all)
    covariance = float(((y - y.mean()) * (f - f.mean())).mean())
    variance = float(np.var(np.concatenate([f, f_all]), ddof=1))
    weight = min(1.0, max(0.0, covariance / ((1 + n / n_all) * variance))) if variance > 0 else 0.0
    value = weight * float(f_all.mean()) + float((y - weight * f).mean())
    error = float(np.sqrt(weight**2 * f_all.var() / n_all + (y - weight * f).var() / n))
    return Rate(value, value - Z_95 * error, value + Z_95 * error)
