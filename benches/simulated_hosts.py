"""Web servers, workers and PostgreSQL as stations at which judging and harvesting queue, on measured costs.

Simulated by benches/queues.py; benches/capacity.py measures the costs and prints the tables of docs/capacity.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import quantiles

from benches.queues import Flush, Log, Process, Simulation, Station, Take, Turn, sliced

THREADS = 8  # of a web process, each with a connection: gunicorn.conf.py
REPORT_EVERY_S = 0.4  # of a running job: kgharvest.jobs.ledger
TICK_EVERY_S = 5  # of a worker: settings.JOB_LOOK_EVERY_S
OWN_CONNECTIONS = 3  # that PostgreSQL keeps for its superuser


@dataclass
class Costs:
    """CPU in milliseconds, of the web server's, the worker's and PostgreSQL's processes; WAL in bytes."""

    click_web_ms: float = 0.0  # an answer, with what asking for statements adds: about once in six
    click_database_ms: float = 0.0
    click_wal: float = 0.0
    click_statements: float = 0.0
    page_web_ms: float = 0.0  # a researcher's page, the mean of many
    page_database_ms: float = 0.0
    tuple_database_us: float = 0.0  # microseconds, of a harvested tuple that is stored, half of them known before
    tuple_worker_us: float = 0.0
    tuple_wal: float = 0.0
    job_database_ms: float = 0.0  # claimed, reported once, finished
    job_statements: float = 0.0
    job_wal: float = 0.0
    jobs_per_s: dict[int, float] = field(default_factory=dict)  # by the number of processes
    report_database_ms: float = 0.0  # of progress
    report_wal: float = 0.0
    tick_database_ms: float = 0.0  # of a worker, every five seconds, its connection included
    tick_worker_ms: float = 0.0
    tick_statements: float = 0.0
    connection_database_ms: float = 0.0
    flush_ms: float = 0.0  # a commit of one small row, by the clock
    tables: dict[str, list[float]] = field(default_factory=dict)  # rows, bytes a row, bytes of indexes a row
    database_gb: float = 0.0


@dataclass(frozen=True)
class Deployment:
    """Hosts of the web server with a process a core, and PostgreSQL: on the same host if database_cores is 0.

    wal_mb_s: what the disk of the WAL takes in. max_connections: of PostgreSQL, whose default is 100.
    """

    name: str
    web_hosts: int = 1
    web_cores: int = 2
    database_cores: int = 0
    flush_ms: float = 1.0
    wal_mb_s: float = 200.0
    max_connections: int = 100
    threads: int = THREADS

    @property
    def n_processes(self) -> int:
        return self.web_hosts * self.web_cores


@dataclass(frozen=True)
class Load:
    """What people and workers do.

    None of this is measured. think_s: from an answer to the next, exponential. pages_per_s: of researchers. harvest_s:
    of a GPU, from claim to end. tuples: of a harvest, between these, evenly on a log scale. Workers make reports.
    """

    annotators: int = 0
    think_s: float = 8.0
    pages_per_s: float = 0.0
    gpus: int = 0
    harvest_s: float = 600.0
    tuples: tuple[int, int] = (1_000, 50_000)

    @property
    def mean_tuples(self) -> float:
        from math import log

        low, high = self.tuples
        return (high - low) / log(high / low)


@dataclass
class Outcome:
    """What a simulation gave: shares of time by station, judgments a second, waits in milliseconds."""

    utilisation: dict[str, float]
    clicks_per_s: float
    click_p50_ms: float | None
    click_p95_ms: float | None
    page_p95_ms: float | None

    @property
    def first_to_end(self) -> str:
        return max(self.utilisation, key=self.utilisation.__getitem__)


class Installation:
    """The stations of a deployment, and the processes that use them."""

    def __init__(self, deployment: Deployment, costs: Costs, rng: random.Random):
        self.simulation = Simulation()
        self.deployment, self.costs, self.rng = deployment, costs, rng
        self.hosts = [Station(deployment.web_cores) for _ in range(deployment.web_hosts)]
        self.database = Station(deployment.database_cores) if deployment.database_cores else self.hosts[0]
        self.wal = Log(deployment.flush_ms / 1000, deployment.wal_mb_s * 1e6)
        # Of a process one thread computes at a time, and THREADS requests are under way.
        self.processes = [
            (self.hosts[number % deployment.web_hosts], Station(1), Station(deployment.threads))
            for number in range(deployment.n_processes)
        ]
        self.waits: dict[str, list[float]] = {"click": [], "page": []}
        self.since = 0.0

    def random_s(self, mean_ms: float) -> float:
        """Return seconds of work: exponential, as some answers ask for statements, others not."""
        return self.rng.expovariate(1000 / mean_ms) if mean_ms else 0.0

    def request(self, kind: str, process: tuple[Station, Station, Station], wal: float = 0.0) -> Process:
        host, interpreter, threads = process
        web_ms, database_ms = getattr(self.costs, f"{kind}_web_ms"), getattr(self.costs, f"{kind}_database_ms")
        simulation, begin = self.simulation, self.simulation.now
        half = self.random_s(web_ms / 2), self.random_s(web_ms / 2)
        yield Take(threads)
        yield Take(interpreter)
        yield Turn(host, half[0])
        simulation.release(interpreter)
        yield from sliced(self.database, self.random_s(database_ms))
        if wal:
            yield Flush(self.wal, wal)
        yield Take(interpreter)
        yield Turn(host, half[1])
        simulation.release(interpreter)
        simulation.release(threads)
        if simulation.now >= self.since:
            self.waits[kind].append(1000 * (simulation.now - begin))

    def annotator(self, load: Load, every_s: float | None = None) -> Process:
        """Judge for ever: think, answer, wait. every_s: at that pace whatever the waits, as the benches do."""
        process = self.rng.choice(self.processes)
        due = self.simulation.now
        while True:
            if every_s is None:
                yield self.rng.expovariate(1 / load.think_s)
            else:
                due += every_s
                yield max(0.0, due - self.simulation.now)
            yield from self.request("click", process, self.costs.click_wal)

    def arrivals(self, per_s: float, arrive: Callable[[], Process]) -> Process:
        while True:
            yield self.rng.expovariate(per_s)
            self.simulation.start(arrive(), self.simulation.now)

    def page(self) -> Process:
        return self.request("page", self.rng.choice(self.processes))

    def harvest_stored(self, load: Load) -> Process:
        low, high = load.tuples
        n = low * (high / low) ** self.rng.random()
        yield from sliced(self.database, n * self.costs.tuple_database_us / 1e6)
        yield Flush(self.wal, n * self.costs.tuple_wal)

    def statement(self, database_ms: float, wal: float) -> Process:
        yield Turn(self.database, self.random_s(database_ms))
        if wal:
            yield Flush(self.wal, wal)

    def begin(self, load: Load) -> None:
        start, costs = self.simulation.start, self.costs
        for _ in range(load.annotators):
            start(self.annotator(load))
        if load.pages_per_s:
            start(self.arrivals(load.pages_per_s, self.page))
        if load.gpus:
            harvests = load.gpus / load.harvest_s
            start(self.arrivals(harvests, lambda: self.harvest_stored(load)))
            start(self.arrivals(harvests, lambda: self.statement(costs.job_database_ms, costs.job_wal)))
            reports = load.gpus / REPORT_EVERY_S
            start(self.arrivals(reports, lambda: self.statement(costs.report_database_ms, costs.report_wal)))
            start(self.arrivals(load.gpus / TICK_EVERY_S, lambda: self.statement(costs.tick_database_ms, 200.0)))

    def run(self, seconds: float, warm_up_s: float = 4.0) -> Outcome:
        stations = {"web CPU": self.hosts, "database CPU": [self.database]}
        if self.database is self.hosts[0]:
            stations = {"CPU": self.hosts}
        self.since = warm_up_s
        self.simulation.run(warm_up_s)
        before = {name: sum(station.busy_s for station in some) for name, some in stations.items()}
        log_before = self.wal.busy_s
        self.simulation.run(warm_up_s + seconds)
        used = {
            name: (sum(station.busy_s for station in some) - before[name])
            / (seconds * sum(station.n_servers for station in some))
            for name, some in stations.items()
        }
        used["WAL"] = (self.wal.busy_s - log_before) / seconds
        clicks = self.waits["click"]
        return Outcome(
            used, len(clicks) / seconds, percentile(clicks, 50), percentile(clicks, 95),
            percentile(self.waits["page"], 95),
        )  # fmt: skip


def percentile(waits: list[float], percent: int) -> float | None:
    return quantiles(waits, n=100)[percent - 1] if len(waits) > 1 else None


def simulate(deployment: Deployment, load: Load, costs: Costs, seconds: float = 10.0) -> Outcome:
    installation = Installation(deployment, costs, random.Random(0))
    installation.begin(load)
    return installation.run(seconds)


def connections(deployment: Deployment, load: Load) -> int:
    """Return how many connections are open at most: a thread's, a job's and that of its lease, a worker's tick."""
    return deployment.n_processes * deployment.threads + 3 * load.gpus


def most_annotators(deployment: Deployment, costs: Costs, limit_ms: float = 100.0, load: Load | None = None) -> int:
    """Return how many people may judge at once with 95 % of waits under the limit, to 5 % or so."""
    load = load or Load()
    low, high = 1, 2
    while fits(deployment, replace(load, annotators=high), costs, limit_ms):
        low, high = high, 2 * high
    while high - low > max(1, low // 20):
        middle = (low + high) // 2
        if fits(deployment, replace(load, annotators=middle), costs, limit_ms):
            low = middle
        else:
            high = middle
    return low


def fits(deployment: Deployment, load: Load, costs: Costs, limit_ms: float) -> bool:
    p95 = simulate(deployment, load, costs, seconds=8.0).click_p95_ms
    return p95 is None or p95 < limit_ms
