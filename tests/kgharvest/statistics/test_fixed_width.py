"""Fixed-width intervals: coverage and cost at the stop, by enumeration and by exact calculation."""

from itertools import product

import numpy as np
import pytest

from benches.fixed_width import COVERAGE, SHARES, Stops, stops
from kgharvest.statistics.fixed_width import (
    ASSUMED_SIZES,
    closing_interval,
    closing_rule,
    expected_statements,
    interval_at_stop,
)
from kgharvest.statistics.rates import VerdictSample

# Population, number of true statements, and expected number of statements at a margin of .05
GRAPHS = {"nell": (1860, 1699, 121), "yago": (1386, 1375, 43), "dbpedia": (9344, 7949, 208)}


def rule_for(margin: float, size: int) -> Stops:
    assumed, z = closing_rule(margin, size)
    return stops(margin, z, size, assumed)


def least_coverage(margin: float, size: int) -> float:
    """Return the minimum over all possible accuracies in SHARES, or near all limits in large populations."""
    rule = rule_for(margin, size)
    limits = rule.limits(margin)
    if size > 3000:
        return min(rule.least_coverage(limits, near_limits=near_limits) for near_limits in (False, True))
    hits = np.arange(int(np.ceil(SHARES[0] * size)), int(SHARES[1] * size + 1e-9) + 1)
    parts = np.array_split(hits, len(hits) // 300 + 1)
    return min(float(rule.coverage(part, limits).min(initial=1)) for part in parts)


def test_stops_agree_with_enumeration_of_all_orders():
    """Compare with each of the 252 orders of five hits and five misses, which are equally likely."""
    rule = stops(0.2, 2, 10, 10)
    orders = [order for order in product((0, 1), repeat=10) if sum(order) == 5]
    is_stop = set(zip(rule.n.tolist(), rule.n_hits.tolist(), strict=True))
    first = [next(n for n in range(1, 11) if (n, sum(order[:n])) in is_stop) for order in orders]
    ends = [(n, sum(order[:n])) for n, order in zip(first, orders, strict=True)]

    [probabilities] = rule.probabilities(np.array([5]))

    assert len(set(ends)) > 3
    for n, hits, probability in zip(rule.n.tolist(), rule.n_hits.tolist(), probabilities, strict=True):
        assert probability == pytest.approx(ends.count((n, hits)) / len(orders), abs=1e-12)


def test_coverage_at_the_stop_agrees_with_simulation():
    margin, size, n_true, runs = 0.1, 300, 240, 4000
    rule = stops(margin, 2, size, size)
    rng = np.random.default_rng(1)
    is_true = rng.permuted(np.tile(np.arange(size) < n_true, (runs, 1)), axis=1).cumsum(axis=1)
    place = {key: number for number, key in enumerate(zip(rule.n.tolist(), rule.n_hits.tolist(), strict=True))}
    low, high = rule.limits(margin)
    ends = [next(place[n, x] for n, x in enumerate(row, start=1) if (n, x) in place) for row in is_true.tolist()]

    covered = np.mean((low[ends] <= n_true / size) & (n_true / size <= high[ends]))

    [coverage] = rule.coverage(np.array([n_true]), (low, high))
    assert covered == pytest.approx(coverage, abs=4 * np.sqrt(coverage * (1 - coverage) / runs))
    assert rule.probabilities(np.array([n_true])).sum() == pytest.approx(1)


@pytest.mark.parametrize(("size", "n_true", "most"), GRAPHS.values(), ids=GRAPHS)
def test_every_accuracy_is_covered_at_the_stop(size, n_true, most):
    rule = rule_for(0.05, size)

    assert rule.least_coverage(rule.limits(0.05), near_limits=True) >= COVERAGE
    assert most - 1 < (rule.probabilities(np.array([n_true])) @ rule.n)[0] < most


@pytest.mark.parametrize(("margin", "size"), [(0.1, 1), (0.1, 7), (0.02, 45), (0.1, 60), (0.2, 111), (0.3, 5000)])
def test_every_accuracy_is_covered_at_other_margins(margin, size):
    assert least_coverage(margin, size) >= COVERAGE


@pytest.mark.exhaustive
def test_every_accuracy_is_covered_between_the_assumed_sizes():
    below = 999
    for assumed, _ in ASSUMED_SIZES:
        for size in np.geomspace(below + 1, min(assumed, 1_000_000), 25).astype(int).tolist():
            assert least_coverage(0.05, size) >= COVERAGE, size
        below = assumed


@pytest.mark.exhaustive
def test_every_accuracy_is_covered_at_random_margins_and_sizes():
    rng = np.random.default_rng(1)
    for _ in range(400):
        margin = float(np.exp(rng.uniform(np.log(0.02), np.log(0.5))).round(int(rng.integers(2, 5))))
        size = int(np.exp(rng.uniform(np.log(2), np.log(10_000))))
        assert least_coverage(margin, size) >= COVERAGE, (margin, size)


def test_coverage_of_hits_and_misses_is_symmetric():
    rule = stops(0.1, 2, 200, 200)

    limits = rule.limits(0.1)
    assert rule.coverage(np.arange(201), limits) == pytest.approx(rule.coverage(np.arange(200, -1, -1), limits))


def test_strata_that_form_one_population_have_the_width_of_a_simple_sample():
    simple = closing_interval(VerdictSample.of_complete([80], [60]), np.array([800]), np.ones(1), 0.1)
    strata = closing_interval(VerdictSample.of_complete([40, 40], [30, 30]), np.array([400, 400]), np.full(2, 0.5), 0.1)

    assert simple is not None
    assert strata is not None
    size = 80 * 799 / 720  # effective number of statements
    assert simple.center == pytest.approx((0.75 * size + 2.1) / (size + 4.2))
    assert strata == pytest.approx(simple, rel=0.03)


def test_unidentified_share_widens_the_interval_and_census_has_none():
    n, weights = np.array([40.0]), np.ones(1)
    known = closing_interval(VerdictSample(n, n / 2, n / 2, n / 2), np.array([400]), weights, 0.1)
    unknown = closing_interval(VerdictSample(n, n / 2, n / 4, n / 4 * 3), np.array([400]), weights, 0.1)

    assert known is not None
    assert unknown is not None
    assert unknown.half_width > known.half_width + 0.2
    assert closing_interval(VerdictSample.of_complete([40], [10]), np.array([40]), weights, 0.1) == (0.25, 0)
    assert closing_interval(VerdictSample.of_complete([40, 0], [10, 0]), np.array([40, 9]), np.ones(2) / 2, 0.1) is None


def test_interval_at_the_stop_stays_inside_0_and_1():
    low, high = interval_at_stop([0.01, 0.5, 0.97], 0.1)

    assert low == pytest.approx([0, 0.4, 0.8])
    assert high == pytest.approx([0.2, 0.6, 1])


def test_expected_statements_are_close_to_the_mean_at_the_stop():
    rule = rule_for(0.1, 500)

    for n_true in (250, 400, 450):
        mean = (rule.probabilities(np.array([n_true])) @ rule.n)[0]
        assert expected_statements(n_true / 500, 0.1, 500) == pytest.approx(mean, rel=0.15)
