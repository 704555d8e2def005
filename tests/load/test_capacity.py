"""The simulation behind docs/capacity.md, against formulas of queueing theory and by hand."""

from __future__ import annotations

import random
from math import factorial

import pytest

from benches.queues import Flush, Log, Simulation, Station, Take, Turn, sliced
from benches.simulated_hosts import Costs, Deployment, Load, connections, simulate


def mean_wait(n_servers: int, per_s: float, service, n: int, seed: int = 0) -> float:
    """Return the mean seconds before service of `n` customers who come at random."""
    rng, simulation, station, waits = random.Random(seed), Simulation(), Station(n_servers), []

    def customer():
        begin = simulation.now
        yield Take(station)
        waits.append(simulation.now - begin)
        yield service(rng)
        simulation.release(station)

    at = 0.0
    for _ in range(n):
        at += rng.expovariate(per_s)
        simulation.start(customer(), at)
    simulation.run(at + 1e6)
    assert len(waits) == n
    return sum(waits) / n


def erlang_c(n_servers: int, offered: float) -> float:
    """Return the probability of having to wait in M/M/c; offered: arrivals times the mean service."""
    busy = offered**n_servers / factorial(n_servers) * n_servers / (n_servers - offered)
    return busy / (sum(offered**k / factorial(k) for k in range(n_servers)) + busy)


@pytest.mark.parametrize(("n_servers", "offered"), [(1, 0.7), (4, 3.0)])
def test_waits_of_mmc_are_those_of_erlangs_formula(n_servers, offered):
    expected = erlang_c(n_servers, offered) / (n_servers - offered)

    measured = mean_wait(n_servers, offered, lambda rng: rng.expovariate(1.0), n=60_000)

    assert measured == pytest.approx(expected, rel=0.08)


def test_waits_of_md1_are_half_of_those_of_mm1():
    measured = mean_wait(1, 0.7, lambda rng: 1.0, n=40_000)

    assert measured == pytest.approx(0.7 / (2 * 0.3), rel=0.06)  # Pollaczek and Khinchine


def test_who_comes_first_is_served_first():
    simulation, station, ended = Simulation(), Station(1), []

    def customer(name, seconds):
        yield Turn(station, seconds)
        ended.append((name, simulation.now))

    for at, (name, seconds) in enumerate([("a", 5.0), ("b", 1.0), ("c", 2.0)]):
        simulation.start(customer(name, seconds), at)
    simulation.run(100)

    assert ended == [("a", 5.0), ("b", 6.0), ("c", 8.0)]
    assert station.busy_s == 8.0


def test_a_flush_takes_all_who_wait_and_who_comes_meanwhile_waits_for_the_next():
    simulation, log, ended = Simulation(), Log(flush_s=1.0, bytes_per_s=100.0), []

    def commit(name):
        yield Flush(log, 50.0)
        ended.append((name, simulation.now))

    for at, name in ((0.0, "a"), (0.5, "b"), (0.6, "c"), (9.0, "d")):
        simulation.start(commit(name), at)
    simulation.run(100)

    assert ended == [("a", 1.5), ("b", 3.5), ("c", 3.5), ("d", 10.5)]  # a second, and half a one for each in it


def test_long_work_lets_others_in_between():
    simulation, station, ended = Simulation(), Station(1), {}

    def work(name, seconds):
        yield from sliced(station, seconds, slice_s=1.0)
        ended[name] = simulation.now

    simulation.start(work("long", 10.0))
    simulation.start(work("short", 1.0), 0.5)
    simulation.run(100)

    assert ended == {"short": 2.0, "long": 11.0}


COSTS = Costs(click_web_ms=4.0, click_database_ms=2.0, click_wal=2000.0, flush_ms=1.0)


def test_utilisation_is_what_each_judgment_costs_times_judgments():
    load = Load(annotators=400, think_s=4.0)

    outcome = simulate(Deployment("one", web_hosts=1, web_cores=4, database_cores=2), load, COSTS, seconds=60.0)

    per_s = outcome.clicks_per_s
    assert per_s == pytest.approx(100, rel=0.05)  # 400 people, an answer in four seconds each
    assert outcome.utilisation["web CPU"] == pytest.approx(per_s * 0.004 / 4, rel=0.06)
    assert outcome.utilisation["database CPU"] == pytest.approx(per_s * 0.002 / 2, rel=0.06)


def test_what_is_too_small_is_named_first_and_bounds_the_judgments():
    load = Load(annotators=4000, think_s=4.0)

    outcome = simulate(Deployment("one", web_cores=16, database_cores=1), load, COSTS, seconds=20.0)

    assert outcome.first_to_end == "database CPU"
    assert outcome.clicks_per_s == pytest.approx(500, rel=0.05)  # a core of 2 ms each


def test_connections_are_those_of_threads_jobs_and_leases():
    assert connections(Deployment("two", web_hosts=2, web_cores=8), Load(gpus=10)) == 2 * 8 * 8 + 3 * 10
