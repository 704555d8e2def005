"""Jobs under faults: state of 300 jobs while connections are cut, workers are killed, and the broker is emptied.

    python benches/job_faults.py postgres://user@host/postgres [--jobs 300] [--workers 3] [--seed 0] [--restart COMMAND]

Runs on its own database, which it creates and drops; the user must be a superuser. Every job takes half a second. All
connections of the database are cut ten times, a worker is killed with its children five times, and the broker loses all
messages three times. With a restart command, such as `pg_ctl restart -m immediate -D ...`, the server is restarted
twice. Passes if every job succeeds and is stored once, and none fails.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.kgharvest.jobs.installation import Installation, kill_group

DATABASE = "kgharvest_job_faults"
N_CUTS, N_KILLS, N_EMPTIED, N_RESTARTS = 10, 5, 3, 2
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
COUNTS = "SELECT status, count(*) FROM kgharvest_job GROUP BY status"
PATIENCE_S = 900


@contextmanager
def database(server: str) -> Iterator[str]:
    """Create a database and yield its URL."""
    drop = f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"
    execute(server, drop)
    execute(server, f"CREATE DATABASE {DATABASE}")
    yield f"{server.rsplit('/', 1)[0]}/{DATABASE}"
    execute(server, drop)


def execute(url: str, statement: str, *values: str) -> list:
    """Return the rows of a statement. Retries while the server restarts."""
    while True:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                cursor = connection.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            time.sleep(0.5)


class Workers:
    """Workers of one process each. A killed worker is restarted."""

    def __init__(self, installation: Installation, n: int, stack: ExitStack):
        self._installation, self._stack = installation, stack
        self._names = (f"worker-{number}" for number in itertools.count())
        self._running = [self._start() for _ in range(n)]

    def _start(self):
        return self._stack.enter_context(self._installation.worker(next(self._names)))

    def kill(self, rng: random.Random) -> None:
        number = rng.randrange(len(self._running))
        kill_group(self._running[number])
        self._running[number] = self._start()


def run(server: str, n_jobs: int, n_workers: int, seed: int, restart: str) -> bool:
    rng = random.Random(seed)
    faults = ["cut"] * N_CUTS + ["kill"] * N_KILLS + ["empty"] * N_EMPTIED + ["restart"] * N_RESTARTS * bool(restart)
    rng.shuffle(faults)
    n_faults = len(faults)
    with database(server) as url, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        installation = Installation(Path(folder), None, DATABASE_URL=url, DEBUG="1", SLOW_RUNNER_STEPS="5")
        models = [option for number in range(-(-n_jobs // 3)) for option in ("--model", f"lm-{number}")]
        settings = [option for setting in ("human", "top1", "multi") for option in ("--setting", setting)]
        installation.manage("harvest", "--relation", "can", *models, *settings)
        started = time.monotonic()
        workers = Workers(installation, n_workers, stack)
        n_all = sum(dict(execute(url, COUNTS)).values())
        while (now := dict(execute(url, COUNTS))).get("succeeded", 0) + now.get("failed", 0) < n_all:
            if time.monotonic() - started > PATIENCE_S:
                break
            # Faults are spread evenly over the jobs.
            if faults and now.get("succeeded", 0) >= n_all * (1 - len(faults) / n_faults) * 0.95:
                inflict(faults.pop(), server, installation, workers, rng, restart)
            time.sleep(0.2)
        print(f"{time.monotonic() - started:.0f} s, seed {seed}: {now}, {len(faults)} faults left")
        attempts = execute(url, "SELECT attempts, count(*) FROM kgharvest_job GROUP BY 1 ORDER BY 1")
        [[n_tuples]] = execute(url, "SELECT count(*) FROM kgharvest_harvestedtuple")
        print(f"attempts: {dict(attempts)}; {installation.starts()} starts; {n_tuples} tuples, 3 per job")
        log = installation.worker_log()
        print(f"unexpected errors in the log: {log.count('failed unexpectedly')}, tracebacks: {log.count('Traceback')}")
        return now == {"succeeded": n_all} and n_tuples == 3 * n_all and not faults


def inflict(
    fault: str, server: str, installation: Installation, workers: Workers, rng: random.Random, restart: str
) -> None:
    if fault == "cut":
        execute(server, CUT, DATABASE)
    elif fault == "restart":
        subprocess.run(restart, shell=True, check=True, stdout=subprocess.DEVNULL)
    elif fault == "kill":
        workers.kill(rng)
    else:
        messages = installation.folder / "broker" / "messages"
        shutil.rmtree(messages, ignore_errors=True)  # workers remove some at the same time
        messages.mkdir(exist_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restart", default="")
    options = parser.parse_args()
    sys.exit(not run(options.server, options.jobs, options.workers, options.seed, options.restart))
