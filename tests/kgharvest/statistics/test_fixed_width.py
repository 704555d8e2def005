"""Fixed-width intervals: coverage and cost at the stop, by enumeration and by exact calculation."""

from itertools import product

import numpy as np
import pytest

from kgharvest.statistics import fixed_width
from kgharvest.statistics.fixed_width import (
    COVERAGE,
    SHARES,
    closing_interval,
    closing_z,
    expected_statements,
    interval_at_stop,
    stops,
)
from kgharvest.statistics.rates import VerdictSample

# Population, number of true statements, calibrated z, and expected number of statements at a margin of .05
GRAPHS = {"nell": (1860, 1699, 2.048, 121), "yago": (1386, 1375, 2.06, 43), "dbpedia": (9344, 7949, 2.064, 209)}


def test_stops_agree_with_enumeration_of_all_orders():
    """Compare with each of the 252 orders of five hits and five misses, which are equally likely."""
    rule = stops(0.2, 2, 10)
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
    rule = stops(margin, 2, size)
    rng = np.random.default_rng(1)
    is_true = rng.permuted(np.tile(np.arange(size) < n_true, (runs, 1)), axis=1).cumsum(axis=1)
    place = {key: number for number, key in enumerate(zip(rule.n.tolist(), rule.n_hits.tolist(), strict=True))}
    low, high = rule.limits(margin)
    ends = [next(place[n, x] for n, x in enumerate(row, start=1) if (n, x) in place) for row in is_true.tolist()]

    covered = np.mean((low[ends] <= n_true / size) & (n_true / size <= high[ends]))

    [coverage] = rule.coverage(np.array([n_true]), (low, high))
    assert covered == pytest.approx(coverage, abs=4 * np.sqrt(coverage * (1 - coverage) / runs))
    assert rule.probabilities(np.array([n_true])).sum() == pytest.approx(1)


@pytest.mark.parametrize(("size", "n_true", "z", "most"), GRAPHS.values(), ids=GRAPHS)
def test_every_accuracy_is_covered_at_the_stop(size, n_true, z, most):
    rule = stops(0.05, z, size)

    assert rule.least_coverage(rule.limits(0.05), near_limits=True) >= COVERAGE
    assert (rule.probabilities(np.array([n_true])) @ rule.n)[0] < most


@pytest.mark.exhaustive
@pytest.mark.parametrize(("size", "n_true", "z", "most"), GRAPHS.values(), ids=GRAPHS)
def test_calibrated_z_and_every_possible_accuracy_of_the_graphs(size, n_true, z, most):
    assert closing_z(0.05, size) == pytest.approx(z)
    hits = np.arange(int(np.ceil(SHARES[0] * size)), int(SHARES[1] * size) + 1)
    rule = stops(0.05, z, size)
    assert min(rule.coverage(part, rule.limits(0.05)).min() for part in np.array_split(hits, 40)) >= COVERAGE
    assert (rule.probabilities(np.array([n_true])) @ rule.n)[0] > most - 1


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_every_accuracy_of_small_populations_is_covered(size):
    rule = stops(0.1, closing_z(0.1, size), size)

    hits = np.arange(size // 2, size + 1)
    inside = hits[(hits >= SHARES[0] * size) & (hits <= SHARES[1] * size)]
    assert (rule.coverage(inside, rule.limits(0.1)) >= COVERAGE).all()


def test_coverage_of_hits_and_misses_is_symmetric():
    rule = stops(0.1, 2, 200)

    limits = rule.limits(0.1)
    assert rule.coverage(np.arange(201), limits) == pytest.approx(rule.coverage(np.arange(200, -1, -1), limits))


def test_strata_that_form_one_population_have_the_width_of_a_simple_sample(monkeypatch):
    monkeypatch.setattr(fixed_width, "closing_z", lambda margin, population: 2)
    simple = closing_interval(VerdictSample.of_complete([80], [60]), np.array([800]), np.ones(1), 0.1)
    strata = closing_interval(VerdictSample.of_complete([40, 40], [30, 30]), np.array([400, 400]), np.full(2, 0.5), 0.1)

    assert simple is not None
    assert strata is not None
    size = 80 * 799 / 720  # effective number of statements
    assert simple.center == pytest.approx((0.75 * size + 2.1) / (size + 4.2))
    assert strata == pytest.approx(simple, rel=0.03)


def test_unidentified_share_widens_the_interval_and_census_has_none(monkeypatch):
    monkeypatch.setattr(fixed_width, "closing_z", lambda margin, population: 2)
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
    rule = stops(0.1, closing_z(0.1, 500), 500)

    for n_true in (250, 400, 450):
        mean = (rule.probabilities(np.array([n_true])) @ rule.n)[0]
        assert expected_statements(n_true / 500, 0.1, 500) == pytest.approx(mean, rel=0.1)
