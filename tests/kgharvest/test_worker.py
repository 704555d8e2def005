"""Real workers in processes of their own, over the filesystem broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30

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

    def __init__(self, folder: Path):
        self.folder = folder
        outer = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
        self.environment = {
            **outer,
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
    def worker(self) -> Iterator[subprocess.Popen]:
        """A worker with all its children in a process group of its own."""
        command = [sys.executable, "-m", "celery", "-A", "kgharvest", "worker", "--loglevel", "INFO"]
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
