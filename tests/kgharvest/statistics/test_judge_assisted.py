"""Judge-assisted rates, compared with exact posteriors, rates from human verdicts only, and simulations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import betabinom, hypergeom

from kgharvest.statistics.judge_assisted import (
    PEOPLE_ALONE,
    POST_STRATIFIED,
    JudgedSample,
    judge_assisted_rate,
    post_strata,
    posterior_interval,
    tells_apart,
)
from kgharvest.statistics.rates import (
    NOTHING_COUNTED,
    UNKNOWN_POPULATION,
    VerdictSample,
    population_rate,
    simple_interval,
)


def judged(*strata: tuple[tuple[int, int, int], ...]) -> JudgedSample:
    """Build strata of (tuples, drawn, accepted) for the judge's labels true, false, and neither."""
    population, drawn, hits = np.moveaxis(
        np.array([[*labels, *[(0, 0, 0)] * (3 - len(labels))] for labels in strata]), 2, 0
    )
    return JudgedSample(population, drawn, VerdictSample.of_complete(drawn, hits))


def test_groups_are_weighted_by_number_of_tuples():
    """.8 of 300 tuples with label true and .3 of 100 with label false: .675. Human verdicts alone give .6."""
    rate = judge_assisted_rate(judged(((300, 30, 24), (100, 20, 6))))

    assert rate.method == POST_STRATIFIED
    assert rate.rate.value == pytest.approx(0.675)
    assert rate.people == population_rate([30], [50], [400])
    assert rate.people.value == 0.6


def test_further_effects_of_clusters_widen_only_the_interval_with_the_judge():
    sample = judged(((300, 30, 24), (100, 20, 6)))

    simple, clustered = (judge_assisted_rate(sample._replace(further_effects=f)) for f in (None, np.array([2.0])))

    assert clustered.people == simple.people
    assert clustered.rate.value == pytest.approx(simple.rate.value)
    widths = [rate.rate.high - rate.rate.low for rate in (simple, clustered)]
    assert widths[1] / widths[0] == pytest.approx(2**0.5, rel=0.1)


def test_posterior_of_one_group_is_beta_binomial():
    low, high = posterior_interval(((8.0, 10, 60),))

    unseen = betabinom(50, 8.5, 2.5)
    first, last = round(60 * low - 8), round(60 * high - 8)
    assert unseen.cdf(last) - unseen.cdf(first - 1) >= 0.95
    shorter = [unseen.cdf(start + last - first - 1) - unseen.cdf(start - 1) for start in range(51)]
    assert max(shorter) < 0.95


def test_posterior_equals_sum_over_all_populations():
    """Bayes: Jeffreys prior of the accepted number in a group, times the hypergeometric probability of its draws."""
    groups = ((3, 4, 12), (1, 5, 9))
    chances = np.zeros(22)
    for accepted in product(*(range(size + 1) for *_, size in groups)):
        chance = 1.0
        for total, (hits, n, size) in zip(accepted, groups, strict=True):
            prior = betabinom(size, 0.5, 0.5).pmf(total)
            chance *= prior * hypergeom(size, total, n).pmf(hits)
        chances[sum(accepted)] += chance
    chances /= chances.sum()

    low, high = posterior_interval(tuple((float(hits), n, size) for hits, n, size in groups))

    first, last = round(21 * low), round(21 * high)
    assert chances[first : last + 1].sum() >= 0.95
    assert all(chances[start : start + last - first].sum() < 0.95 for start in range(22))


def test_intervals_of_hits_and_misses_are_mirrored():
    low, high = posterior_interval(((24.0, 30, 300), (6.0, 20, 100)))
    low_of_misses, high_of_misses = posterior_interval(((6.0, 30, 300), (14.0, 20, 100)))

    assert (low, high) == pytest.approx((1 - high_of_misses, 1 - low_of_misses))


def test_census_interval_has_zero_width():
    rate = judge_assisted_rate(judged(((30, 30, 24), (10, 10, 6)))).rate

    assert rate[:3] == pytest.approx((0.75, 0.75, 0.75))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (((380, 48, 40), (20, 2, 1)), "20 of 400 would have 2.5 of 50 draws"),
        (((400, 50, 40),), "the judge says the same of all"),
        (((360, 50, 40), (40, 0, 0)), "none of the 5 expected was drawn"),
    ],
)
def test_uninformative_judge_labels_fall_back_to_human_rate(labels, reason):
    rate = judge_assisted_rate(judged(labels))

    assert rate.method == PEOPLE_ALONE, reason
    assert rate.rate == rate.people
    assert rate.rate[1:3] == simple_interval(sum(hits for *_, hits in labels), 50, 400)
    assert rate.effective_labels == 50


def test_small_neither_group_is_merged_with_false_group():
    groups = post_strata(judged(((280, 36, 30), (100, 12, 4), (20, 2, 1))))

    assert groups.population.tolist() == [280, 120]
    assert groups.accepted.n_hits.tolist() == [30, 5]


def test_groups_depend_on_expected_draws_not_on_verdicts():
    few, many = (post_strata(judged(((300, 47, 47), (100, n_false, 0)))) for n_false in (3, 20))

    assert few.population.tolist() == many.population.tolist() == [300, 100]


def test_strata_are_post_stratified_separately_and_averaged_exactly():
    sample = judged(((80, 24, 22), (20, 6, 3)), ((600, 20, 18), (300, 10, 4)))

    rate = judge_assisted_rate(sample).rate

    expected = population_rate([22, 3, 18, 4], [24, 6, 20, 10], [80, 20, 600, 300])
    assert rate[:3] == pytest.approx(expected[:3])
    weighted = judge_assisted_rate(sample, np.array([0.5, 0.5])).rate
    assert weighted.value == pytest.approx((0.8 * 22 / 24 + 0.2 * 0.5 + 0.6 / 0.9 * 0.9 + 0.3 / 0.9 * 0.4) / 2)


def test_judge_separates_strata_if_verdicts_differ_between_labels():
    """Shares of .8 and .8: F is 0. Of .9 and .5 with 20 draws each, twice: F is about 10 on 2 and 76."""
    alike, unlike = (judged(*[((200, 20, a), (200, 20, b))] * 2) for a, b in ((16, 16), (18, 10)))
    of_one_label = judged(((400, 40, 32),), ((400, 40, 32),))

    assert (tells_apart(unlike), tells_apart(alike), tells_apart(of_one_label)) == (True, False, False)
    assert tells_apart(judged(((200, 20, 16), (200, 20, 16))))  # post-stratifying a single stratum costs nothing


def test_incomplete_statements_widen_interval_to_possible_outcomes():
    sample = judged(((300, 30, 24), (100, 20, 6)))
    accepted = sample.accepted
    one_of_each = np.array([[1, 1, 0]])
    open_ones = accepted._replace(least=accepted.n_hits - one_of_each, most=accepted.n_hits + one_of_each)

    narrow, wide = (judge_assisted_rate(sample._replace(accepted=part)).rate for part in (accepted, open_ones))

    assert wide.value == narrow.value
    assert wide.low < narrow.low < narrow.high < wide.high


def test_effective_labels_give_human_rate_same_interval_width():
    """Judge accuracy .97: the reported number of human labels gives the same width, within 10 %."""
    rate = judge_assisted_rate(judged(((280, 35, 34), (120, 15, 1))))

    width = rate.rate.high - rate.rate.low
    n_required = min(n for n in range(50, 401) if np.subtract(*simple_interval(round(0.7 * n), n, 400)[::-1]) <= width)
    assert rate.effective_labels == pytest.approx(n_required, rel=0.1)
    assert rate.effective_labels > 100


def test_rate_without_judgments_or_population_is_undefined():
    assert judge_assisted_rate(judged(((300, 0, 0), (100, 0, 0)))).rate.reason == NOTHING_COUNTED
    assert judge_assisted_rate(judged(((0, 30, 24), (0, 20, 6)))).rate.reason == UNKNOWN_POPULATION


@pytest.mark.parametrize(("sensitivity", "specificity"), [(0.9, 0.8), (0.5, 0.5), (0.2, 0.2)])
def test_interval_covers_truth_for_any_judge_quality(sensitivity, specificity):
    """400 simulated harvests: the standard error of the coverage is .011. Full figures: benches/judge_coverage.py."""
    rng = np.random.default_rng(1)
    covered, widths = 0, np.zeros(2)
    for _ in range(400):
        tuples = np.concatenate([
            rng.multinomial(280, [sensitivity, 1 - sensitivity]), rng.multinomial(120, [1 - specificity, specificity])
        ])  # fmt: skip
        drawn = rng.multivariate_hypergeometric(tuples, 50)
        labels = [(tuples[i] + tuples[i + 2], drawn[i] + drawn[i + 2], drawn[i]) for i in (0, 1)]
        estimate = judge_assisted_rate(judged(tuple(labels)))
        covered += estimate.rate.low <= 0.7 <= estimate.rate.high
        widths += [rate.high - rate.low for rate in (estimate.rate, estimate.people)]

    assert covered / 400 > 0.92
    assert widths[0] < widths[1]
