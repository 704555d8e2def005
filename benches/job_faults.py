"""Jobs under faults: what is left of 300 jobs while connections are cut, workers killed and the broker is emptied.

    python benches/job_faults.py postgres://user@host/postgres [--jobs 300] [--workers 3] [--seed 0]

On a database of its own, which is made and dropped; the user must be a superuser. Every job takes half a second. Ten
times all connections of the database are cut, five times a worker is killed with its children, three times the broker
loses all messages. Holds: every job succeeds and is stored once, none fails.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
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
N_CUTS, N_KILLS, N_EMPTIED = 10, 5, 3
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
COUNTS = "SELECT status, count(*) FROM kgharvest_job GROUP BY status"
PATIENCE_S = 900


@contextmanager
def database(server: str) -> Iterator[str]:
    """Make a database and yield its URL."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
        yield f"{server.rsplit('/', 1)[0]}/{DATABASE}"
        connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def counts(server: str) -> dict[str, int]:
    with psycopg.connect(f"{server.rsplit('/', 1)[0]}/{DATABASE}") as connection:
        return dict(connection.execute(COUNTS).fetchall())


class Workers:
    """Workers of one process each, one of which can be killed and is started again."""

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


def run(server: str, n_jobs: int, n_workers: int, seed: int) -> bool:
    rng = random.Random(seed)
    faults = ["cut"] * N_CUTS + ["kill"] * N_KILLS + ["empty"] * N_EMPTIED
    rng.shuffle(faults)
    with database(server) as url, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        installation = Installation(Path(folder), DATABASE_URL=url, DEBUG="1", SLOW_RUNNER_STEPS="5")
        models = [option for number in range(-(-n_jobs // 3)) for option in ("--model", f"lm-{number}")]
        settings = [option for setting in ("human", "top1", "multi") for option in ("--setting", setting)]
        installation.manage("harvest", "--relation", "can", *models, *settings)
        started = time.monotonic()
        workers = Workers(installation, n_workers, stack)
        n_all = sum(counts(server).values())
        while (now := counts(server)).get("succeeded", 0) + now.get("failed", 0) < n_all:
            if time.monotonic() - started > PATIENCE_S:
                break
            # Faults come evenly over the course of the jobs.
            if faults and now.get("succeeded", 0) >= n_all * (1 - len(faults) / (N_CUTS + N_KILLS + N_EMPTIED)) * 0.95:
                inflict(faults.pop(), server, installation, workers, rng)
            time.sleep(0.2)
        print(f"{time.monotonic() - started:.0f} s, seed {seed}: {now}, {len(faults)} faults left")
        with psycopg.connect(url) as connection:
            attempts = connection.execute(
                "SELECT attempts, count(*) FROM kgharvest_job GROUP BY 1 ORDER BY 1"
            ).fetchall()
            [n_tuples] = connection.execute("SELECT count(*) FROM kgharvest_harvestedtuple").fetchone()
        print(f"attempts: {dict(attempts)}; {installation.starts()} starts; {n_tuples} tuples, 3 a job")
        log = installation.worker_log()
        print(f"unexpected errors in the log: {log.count('failed unexpectedly')}, tracebacks: {log.count('Traceback')}")
        return now == {"succeeded": n_all} and n_tuples == 3 * n_all and not faults


def inflict(fault: str, server: str, installation: Installation, workers: Workers, rng: random.Random) -> None:
    if fault == "cut":
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(CUT, [DATABASE])
    elif fault == "kill":
        workers.kill(rng)
    else:
        messages = installation.folder / "broker" / "messages"
        shutil.rmtree(messages, ignore_errors=True)  # workers take some meanwhile
        messages.mkdir(exist_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.exit(not run(options.server, options.jobs, options.workers, options.seed))
