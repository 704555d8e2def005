"""Real workers in processes of their own, over the filesystem broker."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
CANCEL = "from kgharvest.models import Job; from kgharvest.services import jobs; jobs.cancel"
LOG_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")

RELATIONS = {
    "name": "demo",
    "relations": [
        {
            "name": "can",
            "statement": "<ENT0> can <ENT1> .",
            "initial_prompts": ["<ENT0> can <ENT1> ."],
            "seed_tuples": [["horse", "run"], ["fish", "swim"]],
        }
    ],
}


class Installation:
    """A data directory with a migrated database and one relation, and programs that run on it."""

    def __init__(self, folder: Path, **environment: str):
        self.folder = folder
        outer = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
        self.environment = {
            **outer,
            **environment,
            "KGHARVEST_DATA_DIR": str(folder),
            "DJANGO_SETTINGS_MODULE": "tests.kgharvest.worker_settings",
        }
        self.manage("migrate")
        (folder / "relations.json").write_text(json.dumps(RELATIONS))
        self.manage("import_relations", str(folder / "relations.json"))

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    def queue_harvest(self) -> int:
        return int(self.manage("harvest", "--relation", "can", "--setting", "human", "--again").split()[0])

    @contextmanager
    def worker(self, name: str = "one") -> Iterator[subprocess.Popen]:
        """A worker with all its children in a process group of its own."""
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "kgharvest",
            "worker",
            "--loglevel",
            "INFO",
            "-n",
            f"{name}@%h",
        ]
        with (self.folder / "worker.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            kill_group(process)

    def job(self, pk: int) -> dict:
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            database.row_factory = sqlite3.Row
            return dict(database.execute("SELECT * FROM kgharvest_job WHERE id = ?", [pk]).fetchone())

    def ranks(self, pk: int) -> list[int]:
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            query = "SELECT rank FROM kgharvest_harvestedtuple WHERE job_id = ? ORDER BY rank"
            return [rank for (rank,) in database.execute(query, [pk])]

    def values(self, query: str) -> list:
        """Return the rows of a query of one column."""
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            return [value for (value,) in database.execute(query)]

    def n_succeeded(self) -> int:
        return self.values("SELECT COUNT(*) FROM kgharvest_job WHERE status = 'succeeded'")[0]

    def starts(self) -> int:
        return len((self.folder / "starts").read_text().splitlines())


def kill_group(process: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def installation(tmp_path_factory) -> Installation:
    return Installation(tmp_path_factory.mktemp("installation"))


@pytest.mark.slow
def test_a_harvest_survives_sigkill_of_its_worker_group(installation):
    job = installation.queue_harvest()
    with installation.worker() as worker:
        wait_until(lambda: installation.job(job)["done"] >= 5)
        kill_group(worker)
    assert installation.job(job)["status"] == "running"

    with installation.worker():
        wait_until(lambda: installation.job(job)["status"] == "succeeded")

    assert installation.ranks(job) == [1, 2, 3]
    assert installation.job(job)["attempts"] == 2
    assert installation.starts() == 2


@pytest.mark.slow
def test_a_job_whose_message_is_lost_is_rung_for_again(installation):
    job = installation.queue_harvest()
    shutil.rmtree(installation.folder / "broker" / "messages")

    with installation.worker():
        wait_until(lambda: installation.job(job)["status"] == "succeeded")

    assert installation.ranks(job) == [1, 2, 3]
    assert installation.job(job)["attempts"] == 1


@pytest.mark.slow
def test_of_sixty_jobs_every_one_ends_once_though_a_worker_is_killed_twice(tmp_path):
    sixty = Installation(tmp_path, SLOW_RUNNER_STEPS="3")
    models = [option for number in range(20) for option in ("--model", f"lm-{number}")]
    settings = [option for setting in ("human", "top1", "multi") for option in ("--setting", setting)]
    assert len(sixty.manage("harvest", "--relation", "can", *models, *settings).splitlines()) == 60

    with sixty.worker("steady"):
        for n_done in (10, 25):
            with sixty.worker("killed") as worker:
                wait_until(lambda n_done=n_done: sixty.n_succeeded() >= n_done)
                kill_group(worker)
        with sixty.worker("killed"):
            wait_until(lambda: not sixty.values("SELECT 1 FROM kgharvest_job WHERE status IN ('queued', 'running')"))

    assert sixty.n_succeeded() == 60
    assert sixty.values("SELECT rank FROM kgharvest_harvestedtuple ORDER BY job_id, rank") == [1, 2, 3] * 60
    attempts = sixty.values("SELECT attempts FROM kgharvest_job")
    assert sum(attempts) == sixty.starts() <= 62  # only what a killed worker had in hand was begun again


@pytest.mark.slow
def test_cancelling_stops_a_real_lm_within_two_seconds(tmp_path):
    real = Installation(tmp_path, TEST_REAL_LM="1")
    long = ["--candidates", "50000", "--max-entity-tokens", "3"]
    job = int(real.manage("harvest", "--relation", "can", "--setting", "human", *long).split()[0])

    with real.worker():
        wait_until(lambda: real.job(job)["stage"] == "search" and real.job(job)["done"] > 0)
        real.manage("shell", "-c", f"{CANCEL}(Job.objects.get(pk={job}))")
        wait_until(lambda: f"Job {job} was cancelled" in (tmp_path / "worker.log").read_text())

    cancelled_at = datetime.fromisoformat(real.job(job)["finished_at"])
    [line] = [line for line in (tmp_path / "worker.log").read_text().splitlines() if f"Job {job} was cancelled" in line]
    stopped_at = datetime.fromisoformat(LOG_TIME.search(line).group().replace(",", "."))
    assert 0 <= (stopped_at - cancelled_at).total_seconds() < 2
    assert real.ranks(job) == []
