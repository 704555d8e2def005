"""Backups during concurrent judging, and their restoration into another installation: complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.judging.judgments import Answer, submit_judgment
from kgharvest.environment import restoring_key
from kgharvest.errors import DomainError
from kgharvest.operations import backup
from kgharvest.operations.backup import back_up, restore
from tests import factories
from tests.kgharvest.test_settings import ROOT, run_python
from tests.postgres import on_postgresql, run_on_postgresql
from tests.refusals import refused

pytestmark = pytest.mark.django_db(transaction=True)
N_PEOPLE = 4


@dataclass(frozen=True)
class Installation:
    """Another installation with the same kind of database, initially without tables."""

    folder: Path
    url: str

    def manage(self, *arguments: str) -> subprocess.CompletedProcess:
        return run_python(self.folder, "manage.py", *arguments, DATABASE_URL=self.url, DEBUG="1")

    def read(self, sql: str) -> list[tuple]:
        with closing(self._connect()) as database:
            return list(database.execute(sql))

    def _connect(self):
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.folder / "kgharvest.sqlite3")
        import psycopg

        return psycopg.connect(self.url)


@pytest.fixture
def other_site(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    if connection.vendor == "sqlite":
        yield Installation(folder, f"sqlite:///{folder}/kgharvest.sqlite3")
        return
    name, here = f"restored_{uuid4().hex}", connection.settings_dict
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    yield Installation(folder, f"postgres://{here['USER']}:{here['PASSWORD']}@{here['HOST']}:{here['PORT']}/{name}")
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


class People:
    """Threads that judge until the context ends. acknowledged: UUIDs of the stored answers, in order."""

    def __init__(self, round) -> None:
        self.acknowledged: list[UUID] = []
        self._is_over = threading.Event()
        annotators = factories.make_annotators(round, N_PEOPLE)
        self._threads = [threading.Thread(target=self._judge, args=[annotator]) for annotator in annotators]

    def _judge(self, annotator) -> None:
        while not self._is_over.is_set() and (batch := next_batch(annotator, timezone.now())):
            for task in batch:
                answer = Answer(task.pk, "true", uuid4())
                try:
                    submit_judgment(annotator, answer, timezone.now())
                except DomainError:
                    continue
                self.acknowledged.append(answer.client_uuid)
        connection.close()

    def wait_for(self, n: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < n and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(self.acknowledged) >= n

    def __enter__(self) -> People:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *reasons) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def test_backup_under_load_contains_all_answers_stored_before(tmp_path, other_site):
    file = tmp_path / "backup.zip"
    with People(factories.make_round(400, judgments_per_task=3)) as people:
        people.wait_for(40)
        before = set(people.acknowledged)
        manifest = back_up(file)
        n_after = len(people.acknowledged)
        people.wait_for(n_after + 5)  # judging continues

    done = other_site.manage("restore", str(file))

    assert done.returncode == 0, done.stderr
    restored = {UUID(str(uuid)) for (uuid,) in other_site.read("SELECT client_uuid FROM annotation_judgment")}
    assert before <= restored
    assert restored <= set(people.acknowledged)
    assert manifest.rows["annotation_judgment"] == len(restored)
    # Consistent snapshot: the counter of each task equals its number of judgments.
    counted = "SELECT count(*) FROM annotation_judgment j WHERE j.task_id = t.id AND j.is_counted"
    assert other_site.read(f"SELECT t.id FROM annotation_judgmenttask t WHERE t.n_judgments <> ({counted})") == []
    assert file.stat().st_mode & 0o777 == 0o600


def with_manifest(file: Path, **changes) -> Path:
    """Return a copy of a backup with a changed manifest."""
    changed = file.with_name("changed.zip")
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(changed, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "manifest.json":
                content = json.dumps({**json.loads(content), **changes})
            copy.writestr(name, content)
    return changed


def truncated(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[:-1000])
    return file


def with_flipped_bit(file: Path) -> Path:
    """Flip a bit in the middle of the compressed data, as a flipped bit in a header may have no effect.

    The source offset of a run of zeros may have no effect either. If the content stays the same, flip the next bit.
    """
    with zipfile.ZipFile(file) as archive:
        database = archive.getinfo("database")
    content = bytearray(file.read_bytes())
    name_and_extra = sum(content[database.header_offset + 26 + n] << 8 * (n % 2) for n in range(4))
    middle = database.header_offset + 30 + name_and_extra + database.compress_size // 2
    for position in range(middle, middle + 100):
        content[position] ^= 1
        file.write_bytes(content)
        if is_damaged(file):
            return file
        content[position] ^= 1
    raise AssertionError("None of a hundred flipped bits changes the content.")


def is_damaged(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is not None
    except (zipfile.BadZipFile, EOFError, zlib.error):
        return True


DAMAGES = {
    "truncated": (truncated, "is damaged or not a backup"),
    "a flipped bit": (with_flipped_bit, "is damaged or not a backup"),
    "not an archive": (lambda file: Path(__file__), "is damaged or not a backup"),
    "another database": (lambda file: with_manifest(file, files={"database": "0" * 64}), "wrong checksum of database"),
    "a newer format": (
        lambda file: with_manifest(file, format=2, version="9.0"),
        "was written by a newer kgharvest (9.0)",
    ),
    "newer tables": (lambda file: with_manifest(file, migrations=[["kgharvest", "9999_x"]]), "kgharvest.9999_x"),
    "another kind": (lambda file: with_manifest(file, database="oracle"), "was backed up from oracle"),
    "missing rows": (lambda file: with_manifest(file, rows={"auth_user": 7}), ""),
    "no manifest": (lambda file: with_manifest(file, rows=None), ""),
}


def test_rejected_backup_changes_nothing(tmp_path):
    factories.make_user("ada")
    back_up(tmp_path / "backup.zip")
    factories.make_user("grace")
    errors = {}
    for damage, (spoil, _) in DAMAGES.items():
        folder = tmp_path / damage
        folder.mkdir()
        spoilt = spoil(Path(shutil.copy(tmp_path / "backup.zip", folder)))
        with pytest.raises(DomainError) as refusal:
            restore(spoilt, replace=True)
        errors[damage] = str(refusal.value)

    assert {damage: errors[damage] for damage, (_, sentence) in DAMAGES.items() if sentence not in errors[damage]} == {}
    assert get_user_model().objects.count() == 2


# Kills itself inside the transaction that replaces the data.
DYING_RESTORE = """
import os, pathlib, signal, sqlite3, sys, threading
import django
django.setup()
from kgharvest.operations import backup

def die(*progress):
    os.kill(0, signal.SIGKILL)

class Dying(sqlite3.Connection):
    def backup(self, target):
        super().backup(target, pages=1, progress=lambda status, remaining, total: remaining < total / 2 and die())

connect = sqlite3.connect
if backup.connection.vendor == "sqlite":
    sqlite3.connect = lambda *names, **options: connect(*names, factory=Dying, **options)
else:
    backup.CHECK_ROWS = "SELECT pg_sleep(60); -- {table} {n}\\n"
    threading.Timer(4, die).start()
backup.restore(pathlib.Path(sys.argv[1]), replace=True)
"""


@pytest.mark.slow
def test_restore_is_atomic_and_requires_an_empty_installation_or_replace(tmp_path, other_site):
    empty, ada, both = (tmp_path / f"{name}.zip" for name in ("empty", "ada", "both"))
    back_up(empty)
    factories.make_user("ada")
    back_up(ada)
    factories.make_user("grace")
    back_up(both)
    names = "SELECT username FROM auth_user ORDER BY username"
    variables = {"DATABASE_URL": other_site.url, "KGHARVEST_DATA_DIR": str(other_site.folder), "DEBUG": "1"}

    assert other_site.manage("restore", str(empty)).returncode == 0
    killed = subprocess.run(
        [sys.executable, "-c", DYING_RESTORE, str(ada)],
        cwd=ROOT,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL
    assert other_site.read(names) == []
    assert other_site.manage("restore", str(ada)).returncode == 0
    refused = other_site.manage("restore", str(both))
    assert refused.returncode == 1
    assert "This installation is not empty" in refused.stderr
    assert other_site.read(names) == [("ada",)]
    assert other_site.manage("restore", "--replace", str(both)).returncode == 0
    assert other_site.read(names) == [("ada",), ("grace",)]


RESTORE_KILLED_BEFORE_SECRET_KEY = """
import os, pathlib, signal, sys
import django
django.setup()
from kgharvest.operations import backup

replace = os.replace
os.replace = lambda source, target: (
    os.kill(0, signal.SIGKILL) if str(target).endswith("secret_key") else replace(source, target)
)
backup.restore(pathlib.Path(sys.argv[1]), replace=True)
"""


@pytest.mark.slow
def test_restore_killed_before_the_secret_key_prevents_startup(tmp_path, other_site, settings):
    file, settings.DATA_DIR = tmp_path / "backup.zip", tmp_path
    (tmp_path / "secret_key").write_text("another key than the one there")
    back_up(file)
    variables = {"DATABASE_URL": other_site.url, "KGHARVEST_DATA_DIR": str(other_site.folder), "DEBUG": "1"}

    assert other_site.manage("restore", str(file)).returncode == 0
    (other_site.folder / "secret_key").write_text("the key of before")
    killed = subprocess.run(
        [sys.executable, "-c", RESTORE_KILLED_BEFORE_SECRET_KEY, str(file)],
        cwd=ROOT,
        env={**os.environ, **variables},
        start_new_session=True,
    )

    assert killed.returncode == -signal.SIGKILL
    refused = other_site.manage("check")
    assert refused.returncode != 0
    assert "python manage.py restore FILE --replace" in refused.stderr
    assert other_site.manage("restore", str(file), "--replace").returncode == 0
    assert other_site.manage("check").returncode == 0
    assert (other_site.folder / "secret_key").read_text() == "another key than the one there"


@pytest.mark.parametrize("was_interrupted", [True, False])
def test_failed_restore_keeps_the_key_of_an_interrupted_restore(tmp_path, settings, monkeypatch, was_interrupted):
    file, settings.DATA_DIR = tmp_path / "backup.zip", tmp_path
    (tmp_path / "secret_key").write_text("the key of the backup")
    back_up(file)
    pending_key = restoring_key(tmp_path / "secret_key")
    if was_interrupted:
        pending_key.write_text("the key of a restore that was killed")

    def fail(*arguments):
        raise DomainError("CopyFailed", "The database in the backup is damaged.")

    monkeypatch.setattr(backup, "restore_from", fail)

    with refused("CopyFailed"):
        restore(file, replace=True)

    assert pending_key.exists() == was_interrupted


def test_backup_overwrites_no_file_and_leaves_no_partial_file(tmp_path):
    file = tmp_path / "backup.zip"
    file.write_text("mine")

    with refused("BackupRefused", match="already exists"):
        back_up(file)

    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_missing_postgresql_programs_are_reported(tmp_path, monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite needs no external programs")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DomainError, match="pg_dump is not installed"):
        back_up(tmp_path / "backup.zip")


@on_postgresql
def test_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
