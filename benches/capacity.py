"""What one host carries and where it ends: measured costs, and a simulation of queues that rests on them.

    DATABASE_URL=postgres://... DEBUG=1 python benches/capacity.py measure   on what benches/large_study.py has filled
    DATABASE_URL=postgres://... DEBUG=1 python benches/capacity.py validate  the same, simulated and measured
    python benches/capacity.py simulate [--costs FILE]                       the tables of docs/capacity.md

`measure` writes the costs to benches/capacity.json. The database server must serve nobody else meanwhile: its CPU is
that of all its processes, background ones and those that ended included, and its WAL that of all its databases.
`simulate` needs no database. What is not measured is a field of Load with the reason beside it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.queues import Flush, Log, Process, Simulation, Station, Take, Turn, sliced

COSTS = ROOT / "benches" / "capacity.json"
THREADS = 8  # of a web process, each with a connection: gunicorn.conf.py
REPORT_EVERY_S = 0.4  # of a running job: kgharvest.jobs.ledger
TICK_EVERY_S = 5  # of a worker: settings.JOB_REAP_EVERY_S
KIND = "harvest"  # of the jobs that do nothing
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


# -- measuring ---------------------------------------------------------------------------------------------------------


class Meter:
    """What PostgreSQL and this process have used since the meter was made."""

    def __init__(self) -> None:
        self._begin = self._now()

    def _now(self) -> tuple[float, ...]:
        from benches.large_study import wal_position

        return time.perf_counter(), postgres_cpu_s(), time.process_time(), float(wal_position())

    def per(self, n: float) -> tuple[float, ...]:
        """Return seconds of the clock, of PostgreSQL's CPU and of this process's, and bytes of WAL, for one of `n`."""
        return tuple((now - then) / n for now, then in zip(self._now(), self._begin, strict=True))


def postgres_cpu_s() -> float:
    """Return the CPU of all of PostgreSQL's processes on this machine, those that ended included."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        postmaster = stat_of(cursor.fetchone()[0])[1]
    alive = (stat_of(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    ticks = sum(stat[11] + stat[12] for stat in alive if stat and stat[1] == postmaster)
    return (ticks + sum(stat_of(postmaster)[11:15])) / os.sysconf("SC_CLK_TCK")


def stat_of(pid: int) -> list[int]:
    """Return the fields of /proc/PID/stat after the name, the state as 0; none if the process has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [0, *map(int, fields[1:15])]


def measure() -> None:
    from django.conf import settings
    from django.db import connection

    from benches.large_study import SETTINGS_OF_SERVER
    from tests.load.web_server import WebServer, collect_static_files, url_of

    costs = Costs()
    for part in (measure_sizes, measure_flush, measure_ledger, measure_tick, measure_tuples):
        part(costs)
        print(part.__name__, json.dumps(rounded(asdict(costs))), flush=True)
    collect_static_files()
    with WebServer(url_of(connection), settings.SECRET_KEY, *SETTINGS_OF_SERVER) as server:
        measure_clicks(costs, server)
        measure_pages(costs, server)
    COSTS.write_text(json.dumps(rounded(asdict(costs)), indent=1) + "\n")
    print(COSTS.read_text())


def rounded(costs: Any) -> Any:
    if isinstance(costs, dict):
        return {key: rounded(value) for key, value in costs.items()}
    if isinstance(costs, list):
        return [rounded(value) for value in costs]
    return float(f"{costs:.3g}") if isinstance(costs, float) else costs


def measure_sizes(costs: Costs) -> None:
    from django.db import connection

    from benches.large_study import SIZES, run_sql

    run_sql("ANALYZE")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        costs.database_gb = cursor.fetchone()[0] / 1e9
        cursor.execute(SIZES)
        for name, rows, table, indexes in cursor.fetchall():
            if rows > 1000:
                costs.tables[name] = [rows, table / rows, indexes / rows]


def measure_flush(costs: Costs, n: int = 200) -> None:
    from django.utils import timezone

    from kgharvest.models import Worker

    worker, _ = Worker.objects.get_or_create(name="bench", defaults={"seen_at": timezone.now()})
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        Worker.objects.filter(pk=worker.pk).update(seen_at=timezone.now())
        times.append(time.perf_counter() - begin)
    costs.flush_ms = 1000 * median(times)
    worker.delete()


def measure_ledger(costs: Costs, n: int = 400) -> None:
    """Claim, report and finish jobs that do nothing: in one process, then in several at once."""
    from django.utils import timezone

    from kgharvest.models import Job

    now = timezone.now()
    jobs = Job.objects.bulk_create(Job(kind=KIND, enqueued_at=now) for _ in range(5 * n))
    ids = [job.pk for job in jobs]
    do_jobs(ids[:50])  # statements that are prepared
    meter = Meter()
    costs.job_statements = statements_of(lambda: do_jobs(ids[50:n])) / (n - 50)
    _, database, _, wal = meter.per(n - 50)
    costs.job_database_ms, costs.job_wal = 1000 * database, wal
    costs.jobs_per_s = {k: jobs_per_s(ids[n * k : n * (k + 1)], 2 ** (k - 1)) for k in (1, 2, 3, 4)}
    costs.jobs_per_s = {2 ** (k - 1): speed for k, speed in costs.jobs_per_s.items()}
    measure_report_of_progress(costs)
    Job.objects.filter(pk__in=ids).delete()


def do_jobs(ids: list[int]) -> None:
    from django.utils import timezone

    from kgharvest.jobs import ledger

    for job_id in ids:
        token = ledger.claim(job_id, timezone.now())
        ledger.Heartbeat(job_id, token)._renew(stage="search", done=1, total=2)
        ledger._finish(job_id, token, lambda: None)


def jobs_per_s(ids: list[int], n_processes: int) -> float:
    from django.db import connection

    connection.close()
    with multiprocessing.get_context("fork").Pool(n_processes) as pool:
        pool.map(do_jobs, [[] for _ in range(n_processes)])
        begin = time.perf_counter()
        pool.map(do_jobs, [ids[number::n_processes] for number in range(n_processes)], chunksize=1)
        return len(ids) / (time.perf_counter() - begin)


def measure_report_of_progress(costs: Costs, n: int = 500) -> None:
    from django.utils import timezone

    from kgharvest.jobs import ledger
    from kgharvest.models import Job

    job = Job.objects.create(kind=KIND)
    heartbeat = ledger.Heartbeat(job.pk, ledger.claim(job.pk, timezone.now()))
    meter = Meter()
    for done in range(n):
        heartbeat._renew(stage="search", done=done, total=n)
    _, database, _, wal = meter.per(n)
    costs.report_database_ms, costs.report_wal = 1000 * database, wal
    job.delete()


def measure_tick(costs: Costs, n: int = 60) -> None:
    """Do what every worker does every five seconds, then only connect."""
    from django.db import connection
    from django.utils import timezone

    from kgharvest.jobs import workers
    from kgharvest.jobs.tasks import run_periodic_tasks

    def tick() -> None:
        run_periodic_tasks(workers.WorkerSpec("bench@bench", ["harvest"], 1))

    tick()
    costs.tick_statements = statements_of(tick)
    meter = Meter()
    for _ in range(n):
        tick()
    _, database, worker, _ = meter.per(n)
    costs.tick_database_ms, costs.tick_worker_ms = 1000 * database, 1000 * worker
    workers.leave(timezone.now())
    meter = Meter()
    for _ in range(n):
        connection.close()
        connection.ensure_connection()
    costs.connection_database_ms = 1000 * meter.per(n)[1]


def statements_of(call: Callable[[], None]) -> int:
    from django.db import connection

    statements = []
    with connection.execute_wrapper(lambda execute, sql, *rest: statements.append(sql) or execute(sql, *rest)):
        call()
    return len(statements)


def measure_tuples(costs: Costs, n: int = 20_000) -> None:
    """Store a harvest, half of whose tuples others have found; then take it back."""
    from django.db import transaction

    from benches import pages
    from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
    from kgharvest.models import HarvestJob, LanguageModel

    relation = HarvestJob.objects.order_by("-n_tuples").first().relation
    known = list(relation.knowledge_tuples.order_by("?").values_list("entities", flat=True)[: n // 2])
    rng = random.Random(time.time_ns())
    rows = [TupleRow(tuple(entities), tuple(entities), -20 * rng.random(), -5.0) for entities in known]
    rows += [pages.row(relation, 10**9 + rng.randrange(10**9), rng) for _ in range(n - len(rows))]
    with transaction.atomic():
        job = pages.make_job(relation, LanguageModel.objects.first(), "multi", len(rows))
        meter = Meter()
        store_tuples(job, rows)
        _, database, worker, wal = meter.per(len(rows))
        transaction.set_rollback(True)
    costs.tuple_database_us, costs.tuple_worker_us, costs.tuple_wal = 1e6 * database, 1e6 * worker, wal


def measure_clicks(costs: Costs, server, rate: float = 40) -> None:
    from django.contrib.auth import get_user_model
    from django.test import Client

    from benches.judging_clicks import json_clicks
    from benches.large_study import judge_at, people_of

    people = people_of(server)
    judge_at(server, people, 4, rate, 15)
    database = postgres_cpu_s()
    judging = judge_at(server, people, 4, rate, 60)
    costs.click_database_ms = 1000 * (postgres_cpu_s() - database) / judging.n
    costs.click_web_ms, costs.click_wal = judging.server_ms, judging.wal_bytes
    user = get_user_model().objects.get(username="person-0")
    client = Client(headers={"accept": "application/json"}, SERVER_NAME="localhost")
    client.force_login(user)
    click, n = json_clicks(client, people[0].path), 30
    click()
    costs.click_statements = sum(statements_of(click) for _ in range(n)) / n


def measure_pages(costs: Costs, server, looks: int = 3) -> None:
    from django.contrib.auth import get_user_model

    from benches import pages
    from benches.large_study import JUDGED, Reader, round_pages
    from tests.load.web_server import logged_in

    reader = Reader(server.port, logged_in(get_user_model().objects.get(username="operator")))
    from annotation.models import Round

    addresses = [path for _, path in pages.pages()] + [*round_pages(Round.objects.get(name=JUDGED))]
    for address in addresses:
        reader.request("GET", address)  # templates, counts that are kept
    web, meter = server.cpu_seconds(), Meter()
    n = looks * len(addresses)
    for _ in range(looks):
        for address in addresses:
            reader.request("GET", address)
    costs.page_web_ms = 1000 * (server.cpu_seconds() - web) / n
    costs.page_database_ms = 1000 * meter.per(n)[1]


# -- simulating --------------------------------------------------------------------------------------------------------


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


# -- tables ------------------------------------------------------------------------------------------------------------

DEPLOYMENTS = (
    Deployment("one host, 2 cores", web_cores=2),
    Deployment("one host, 8 cores", web_cores=8),
    Deployment("one host, 32 cores", web_cores=32, max_connections=300),
    Deployment("2 x 8 cores, database 8", 2, 8, 8, max_connections=200),
    Deployment("4 x 8 cores, database 16", 4, 8, 16, max_connections=300),
    Deployment("8 x 8 cores, database 32", 8, 8, 32, max_connections=600),
)
RESEARCHERS = 1.0  # pages a second, of ten researchers


def shown(outcome: Outcome) -> str:
    used = ", ".join(f"{name} {100 * share:.0f} %" for name, share in outcome.utilisation.items())
    waits = [outcome.click_p50_ms, outcome.click_p95_ms, outcome.page_p95_ms]
    p50, p95, page = ("-" if wait is None else f"{wait:,.0f} ms" for wait in waits)
    return f"{outcome.clicks_per_s:7,.0f} judgments/s | median {p50}, p95 {p95} | page p95 {page} | {used}"


def show_tables(costs: Costs) -> None:
    print(f"\nPeople at once, {RESEARCHERS:.0f} page/s beside them, 95 % of answers within 100 ms")
    for deployment in DEPLOYMENTS:
        load = Load(pages_per_s=RESEARCHERS)
        n = most_annotators(deployment, costs, load=load)
        outcome = simulate(deployment, replace(load, annotators=n), costs)
        print(f"{deployment.name:26} {n:6,} people | {shown(outcome)}", flush=True)
    print("\n10,000 people at once and 1,000 GPUs, by how long a harvest takes")
    for deployment in DEPLOYMENTS[2:]:
        for gpus, harvest_s in ((0, 600.0), (1000, 3600.0), (1000, 600.0), (1000, 60.0)):
            load = Load(annotators=10_000, pages_per_s=RESEARCHERS, gpus=gpus, harvest_s=harvest_s)
            outcome = simulate(deployment, load, costs, seconds=10.0)
            n_open = connections(deployment, load)
            over = " (more than max_connections)" if n_open > deployment.max_connections - OWN_CONNECTIONS else ""
            print(
                f"{deployment.name:26} {gpus:5,} GPUs of {harvest_s / 60:3.0f} min | {shown(outcome)} | "
                f"{n_open:,} connections{over}",
                flush=True,
            )
    show_day(costs)


def show_day(costs: Costs) -> None:
    """A day of 10,000 people, of whom between 2 % and 30 % judge at a time, on one host of 8 cores and one of 32."""
    from math import cos, pi

    print("\nA day of 10,000 people")
    for deployment in DEPLOYMENTS[1:4]:
        for hour in range(0, 24, 3):
            share = 0.16 - 0.14 * cos(2 * pi * (hour - 3) / 24)
            load = Load(annotators=round(10_000 * share), pages_per_s=RESEARCHERS, gpus=20)
            print(f"{deployment.name:26} {hour:02}:00 {load.annotators:6,} people | "
                  f"{shown(simulate(deployment, load, costs, seconds=10.0))}", flush=True)  # fmt: skip


# -- validation --------------------------------------------------------------------------------------------------------


def validate(costs: Costs, rates: tuple[int, ...] = (20, 40, 80, 120, 160)) -> None:
    """Let people judge at these rates, at a pace of their own, and simulate the same on as many cores."""
    from django.conf import settings
    from django.db import connection

    from benches.large_study import SETTINGS_OF_SERVER, judge_at, people_of
    from tests.load.web_server import WebServer, collect_static_files, url_of

    collect_static_files()
    deployment = Deployment("this machine", web_cores=min(2, os.cpu_count() or 2), flush_ms=costs.flush_ms)
    with WebServer(url_of(connection), settings.SECRET_KEY, *SETTINGS_OF_SERVER) as server:
        people = people_of(server)
        judge_at(server, people, 4, 40, 15)
        for rate in rates:
            database = postgres_cpu_s()
            judging = judge_at(server, people, 4, rate, 30)
            database_ms = 1000 * (postgres_cpu_s() - database) / judging.n
            installation = Installation(deployment, costs, random.Random(0))
            for number in range(len(people)):
                at = number / rate
                installation.simulation.start(installation.annotator(Load(), len(people) / rate), at)
            outcome = installation.run(30.0)
            print(
                f"{rate:4}/s: measured {1000 / judging.wall_ms:4.0f}/s, median {judging.wait_ms(50):5.1f}, p95 "
                f"{judging.wait_ms(95):6.1f} ms, CPU {(judging.server_ms + database_ms) * rate / 10:3.0f} % of a core "
                f"(load {os.getloadavg()[0]:.1f}); simulated {shown(outcome)}",
                flush=True,
            )


def costs_of(path: Path) -> Costs:
    return Costs(**json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "validate", "simulate"))
    parser.add_argument("--costs", type=Path, default=COSTS)
    options = parser.parse_args()
    if options.action == "simulate":
        show_tables(costs_of(options.costs))
        return
    from benches.installation import migrate, set_up_django

    set_up_django()
    from django.conf import settings

    settings.DEBUG = False  # else every statement of SQL is kept
    settings.ALLOWED_HOSTS.append("testserver")
    migrate()
    if options.action == "measure":
        measure()
    else:
        validate(costs_of(options.costs))


if __name__ == "__main__":
    main()
