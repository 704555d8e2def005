"""A separate installation for tests with real worker processes and the filesystem broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.programs import run_program, start_program

PATIENCE_S = 60
CANCEL = "from kgharvest.models import Job; from kgharvest.jobs.ledger import cancel; cancel"
NEW_WORDS = "from kgharvest.knowledge.sensitive_words import replace_words; print(replace_words([{!r}]).pk)"

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

    def __init__(self, folder: Path, migrated: Path | None, **environment: str):
        """migrated: database file to copy. If None, migrate the DATABASE_URL of `environment`."""
        self.folder = folder
        outer = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
        self.environment = {
            **outer,
            **environment,
            "KGHARVEST_DATA_DIR": str(folder),
            "DJANGO_SETTINGS_MODULE": "tests.kgharvest.jobs.worker_settings",
        }
        if migrated:
            shutil.copyfile(migrated, folder / "kgharvest.sqlite3")
        else:
            self.manage("migrate", "--verbosity", "0")
        (folder / "relations.json").write_text(json.dumps(RELATIONS))
        self.manage("import_relations", str(folder / "relations.json"))

    def manage(self, *arguments: str) -> str:
        """Run manage.py and return its output. Raises AssertionError if it fails."""
        done = run_program(["manage.py", *arguments], self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def queue_harvest(self, setting: str = "human") -> int:
        return int(self.manage("harvest", "--relation", "can", "--setting", setting, "--again").split()[0])

    def queue_urgent_job(self) -> int:
        """Queue an urgent job by changing the list of sensitive words."""
        n_words = self.values("SELECT COUNT(*) FROM kgharvest_sensitiveword")[0]
        return int(self.manage("shell", "-v", "0", "-c", NEW_WORDS.format(f"after {n_words}")))

    @contextmanager
    def worker(self, name: str = "one", *options: str) -> Iterator[BaseProcess]:
        """Run a worker and its children in a separate process group."""
        arguments = ["celery", "-A", "kgharvest", "worker", "--loglevel", "INFO", "-n", f"{name}@%h", *options]
        log = self.folder / "worker.log"
        worker = start_program(arguments, self.environment, log, log)
        try:
            yield worker
        finally:
            kill_group(worker)

    def job(self, pk: int) -> dict:
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            database.row_factory = sqlite3.Row
            return dict(database.execute("SELECT * FROM kgharvest_job WHERE id = ?", [pk]).fetchone())

    def ranks(self, pk: int) -> list[int]:
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            query = "SELECT rank FROM kgharvest_harvestedtuple WHERE job_id = ? ORDER BY rank"
            return [rank for (rank,) in database.execute(query, [pk])]

    def values(self, query: str) -> list:
        """Return the values of a query with one column."""
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3")) as database:
            return [value for (value,) in database.execute(query)]

    def cancel(self, pk: int) -> None:
        """Cancel a job and wait until its worker logs the cancellation."""
        self.manage("shell", "-c", f"{CANCEL}(Job.objects.get(pk={pk}))")
        wait_until(lambda: f"Job {pk} was canceled" in self.worker_log())

    def worker_log(self) -> str:
        return (self.folder / "worker.log").read_text()

    def worker_of(self, pk: int) -> str:
        """Return the start name of the worker that claimed the job, or an empty string."""
        names = self.values(
            "SELECT worker.name FROM kgharvest_worker worker JOIN kgharvest_job job ON job.worker_id = worker.id "
            f"WHERE job.id = {pk} AND job.status = 'running'"
        )
        return names[0].partition("@")[0] if names else ""

    def expire_leases(self, worker: str) -> None:
        """Expire the leases of a killed worker, so that its jobs count as lost at once."""
        with closing(sqlite3.connect(self.folder / "kgharvest.sqlite3", timeout=PATIENCE_S)) as database, database:
            of_worker = "worker_id IN (SELECT id FROM kgharvest_worker WHERE name LIKE ?) AND status = 'running'"
            query = f"UPDATE kgharvest_job SET lease_expires_at = '2000-01-01 00:00:00' WHERE {of_worker}"
            database.execute(query, [f"{worker}@%"])

    def n_succeeded(self) -> int:
        return self.values("SELECT COUNT(*) FROM kgharvest_job WHERE status = 'succeeded'")[0]

    def starts(self) -> list[int]:
        """Return the job id of each started attempt, in order."""
        return [int(line.split()[0]) for line in (self.folder / "starts").read_text().splitlines()]


def kill_group(program: BaseProcess) -> None:
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended or has not created its group yet
        program.kill()
    program.join()


def wait_until(holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "timed out waiting for the condition"
        time.sleep(0.05)
