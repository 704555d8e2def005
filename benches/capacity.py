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
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.simulated_hosts import (
    OWN_CONNECTIONS,
    Costs,
    Deployment,
    Installation,
    Load,
    Outcome,
    connections,
    most_annotators,
    simulate,
)

COSTS = ROOT / "benches" / "capacity.json"
KIND = "harvest"  # of the jobs that do nothing


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
        ledger.Heartbeat(job_id, token).renew(stage="search", done=1, total=2)
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
        heartbeat.renew(stage="search", done=done, total=n)
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
