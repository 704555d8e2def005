"""Anytime-valid interval, compared with brute force over all hit allocations and all draw orders."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.stats import betabinom, hypergeom

from kgharvest.statistics.sequential import SeenStrata, anytime_average, anytime_interval, log_prior_to_posterior


def strata(*rows: tuple[int, ...]) -> SeenStrata:
    """Build strata from rows of (n, hits, population) or (n, least, most, population)."""
    return SeenStrata(*np.array([row if len(row) == 4 else (row[0], row[1], row[1], row[2]) for row in rows]).T)


def ratio(hits_in_all: int, hits: int, n: int, population: int) -> float:
    """Return prior / posterior from the beta-binomial prior and the hypergeometric likelihood."""
    prior = betabinom.pmf(np.arange(population + 1), population, 0.5, 0.5)
    likelihood = hypergeom.pmf(hits, population, np.arange(population + 1), n)
    posterior = prior * likelihood / (prior @ likelihood)
    return prior[hits_in_all] / posterior[hits_in_all] if posterior[hits_in_all] else np.inf


@pytest.mark.parametrize(("hits", "n", "population"), [(0, 3, 10), (4, 5, 12), (2, 2, 6), (9, 20, 30)])
def test_ratio_is_prior_over_posterior(hits, n, population):
    expected = [ratio(in_all, hits, n, population) for in_all in range(hits, population - n + hits + 1)]

    assert np.exp(log_prior_to_posterior(hits, n, population)) == pytest.approx(expected, rel=1e-9)


def by_brute_force(people, with_judge=None) -> tuple[float, float]:
    """Return the interval from the smallest product of ratios over all hit allocations; rows: (n, hits, population)."""
    size = sum(row[2] for row in people)

    def least(rows) -> dict[int, float]:
        smallest: dict[int, float] = {}
        for in_all in product(*(range(row[2] + 1) for row in rows)):
            value = float(
                np.prod([ratio(hits, row[1], row[0], row[2]) for hits, row in zip(in_all, rows, strict=True)])
            )
            smallest[sum(in_all)] = min(value, smallest.get(sum(in_all), np.inf))
        return smallest

    sides = [least(people)] + ([least(with_judge)] if with_judge else [])
    possible = [hits for hits in range(size + 1) if np.mean([side[hits] for side in sides]) < 20]
    return possible[0] / size, possible[-1] / size


@pytest.mark.parametrize(
    ("people", "with_judge"),
    [
        ([(6, 4, 14)], None),
        ([(3, 3, 5), (5, 1, 11)], None),
        ([(8, 5, 16)], [(4, 4, 7), (4, 1, 9)]),
        ([(8, 5, 16)], [(8, 5, 10), (0, 0, 6)]),
    ],
)
def test_strata_allocate_hits_as_brute_force(people, with_judge):
    interval = anytime_interval(strata(*people), strata(*with_judge) if with_judge else None)

    assert interval == pytest.approx(by_brute_force(people, with_judge))


@cache
def misses(seen: tuple[tuple[int, int, int], ...], with_judge: bool, truth: float) -> bool:
    """Return True if the interval misses the truth. seen: (n, hits, population) per judge label."""
    low, high = anytime_interval(
        strata(tuple(map(sum, zip(*seen, strict=True)))), strata(*seen) if with_judge else None
    )
    return not low - 1e-9 <= truth <= high + 1e-9


def share_of_orders_that_miss(kinds: dict[tuple[int, int], int], with_judge: bool) -> float:
    """Return the share of draw orders in which any look misses. kinds: tuples per (label, truth).

    Exact: tracks, after each draw, the orders without a miss by the number of draws per kind.
    """
    size = sum(kinds.values())
    truth = sum(n for (_, is_true), n in kinds.items() if is_true) / size
    labels = sorted({label for label, _ in kinds})
    sizes = {label: sum(n for (at, _), n in kinds.items() if at == label) for label in labels}

    def missed(drawn: tuple[int, ...]) -> bool:
        rows = list(zip(kinds, drawn, strict=True))
        of_label = {
            label: [d * np.array([1, is_true, 0]) for (at, is_true), d in rows if at == label] for label in labels
        }
        seen = tuple((*map(int, sum(of_label[label])[:2]), sizes[label]) for label in labels)
        return misses(seen, with_judge, truth)

    no_miss = {(0,) * len(kinds): 1.0}
    for n_drawn in range(size):
        after: dict[tuple[int, ...], float] = {}
        for drawn, chance in no_miss.items():
            for number, n in enumerate(kinds.values()):
                if n_left := n - drawn[number]:
                    state = (*drawn[:number], drawn[number] + 1, *drawn[number + 1 :])
                    after[state] = after.get(state, 0.0) + chance * n_left / (size - n_drawn)
        no_miss = {state: chance for state, chance in after.items() if not missed(state)}
    return 1 - sum(no_miss.values())


@pytest.mark.parametrize("with_judge", [False, True])
@pytest.mark.parametrize("kinds", [{("t", 1): 10, ("t", 0): 4, ("f", 1): 3, ("f", 0): 3}, {("t", 1): 15, ("t", 0): 15}])
def test_at_most_five_percent_of_orders_miss_at_any_look(kinds, with_judge):
    assert 0 < share_of_orders_that_miss(kinds, with_judge) <= 0.05


def test_incomplete_statements_widen_both_limits():
    low, high = anytime_interval(strata((20, 10, 14, 60)))

    assert low == anytime_interval(strata((20, 10, 60)))[0]
    assert high == anytime_interval(strata((20, 14, 60)))[1]


def test_hits_mirror_misses():
    low, high = anytime_interval(strata((20, 15, 60), (9, 2, 30)))

    assert anytime_interval(strata((20, 5, 60), (9, 7, 30))) == pytest.approx((1 - high, 1 - low))


def test_census_has_zero_width_and_empty_input_no_interval():
    assert anytime_interval(strata((40, 30, 40))) == (0.75, 0.75)
    assert anytime_interval(strata((0, 0, 40))) is None
    assert anytime_interval(strata((5, 3, 0))) is None


def test_good_judge_narrows_interval_and_useless_judge_costs_little():
    people = strata((100, 80, 400))
    alone = anytime_interval(people)
    good = anytime_interval(people, strata((78, 76, 310), (22, 4, 90)))
    useless = anytime_interval(people, strata((50, 40, 200), (50, 40, 200)))

    assert np.diff(good) < 0.9 * np.diff(alone)
    assert np.diff(alone) <= np.diff(useless) < 1.15 * np.diff(alone)


# Averages


def test_average_interval_is_robbins_normal_mixture():
    """Two relations, 20 of 40 drawn tuples judged in each: computed by hand from the variances."""
    seen = strata((20, 14, 14, 400), (20, 10, 10, 400))

    low, high = anytime_average(seen, np.array([0.5, 0.5]), np.array([40, 40]))

    spread = [0.25 * share * (1 - share) for share in (15 / 22, 0.5)]
    variance = sum(spread) / 20 * 380 / 399
    information = 20 * sum(spread) / 40 / variance
    half = np.sqrt(variance * (1 + 1 / information) * (np.log(1 + information) + np.log(400)))
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half))


def test_average_interval_narrows_and_census_has_zero_width():
    weights, n_drawn = np.array([0.5, 0.5]), np.array([60, 60])
    looks = [anytime_average(strata((n, n // 2, n // 2, 60), (n, n, n, 60)), weights, n_drawn) for n in (6, 20, 58, 60)]

    widths = [high - low for low, high in looks]
    assert widths == sorted(widths, reverse=True)
    assert looks[-1] == (0.75, 0.75)


def test_average_requires_statements_of_every_relation():
    assert anytime_average(strata((20, 14, 14, 400), (0, 0, 0, 400)), np.array([0.5, 0.5]), np.array([40, 40])) is None


def test_six_looks_at_average_rarely_miss_truth():
    rng = np.random.default_rng(5)
    n_missed, weights, n_drawn = 0, np.full(6, 1 / 6), np.full(6, 30)
    n_true = np.array([140, 150, 160, 160, 170, 180])
    for _ in range(200):
        is_true = rng.permuted(np.arange(200) < n_true[:, np.newaxis], axis=1)
        limits = [
            anytime_average(strata(*((n, hits, hits, 200) for hits in is_true[:, :n].sum(axis=1))), weights, n_drawn)
            for n in (5, 10, 15, 20, 25, 30)
        ]
        n_missed += any(not low <= 0.8 <= high for low, high in limits)
    assert n_missed <= 14  # of 200 rounds: exceeded with probability .08 if the miss rate is .05
