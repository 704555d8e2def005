"""Copies of the test database on SQLite, made and put back within milliseconds."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from django.contrib.contenttypes.models import ContentType
from django.db import connection

from tests.made_once import made_once


def save_copy(path: Path) -> None:
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as copy:
        connection.connection.backup(copy)


def put_back(path: Path) -> None:
    """Make the test database what it was when the copy was made, tables and all."""
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as copy:
        copy.backup(connection.connection)
    ContentType.objects.clear_cache()


def remove_tables() -> None:
    """Make the test database empty, without any table."""
    connection.ensure_connection()
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.backup(connection.connection)


class MigratedOnce:
    """The SQLite file as the migrations make it: of several processes the first makes it, and the others copy it.

    folder: of all of them.
    """

    def __init__(self, folder: Path):
        self.path = folder / "migrated.sqlite3"
        self._lock = (folder / "migrated.lock").open("w")

    def copy_to(self, path: Path) -> None:
        """Copy it if it has been made; else make the others wait here until `save` or `release`."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self.path.exists():
            shutil.copyfile(self.path, path)
            self.release()

    def save(self) -> None:
        if not self.path.exists():
            save_copy(self.path)
        self.release()

    def release(self) -> None:
        self._lock.close()


class KeptState:
    """A state of the test database that takes long to make: made once, put back from a copy for all tests.

    Other databases than SQLite make it each time.
    """

    def __init__(self, make: Callable[[], object], path: Path):
        """path: where the copy may lie, in a folder of all processes of the tests."""
        self._make, self._path = make, path

    def enter(self) -> None:
        """Bring the database into the state."""
        if connection.vendor != "sqlite":
            self._make()
            return
        made_once(self._path, self._save)
        put_back(self._path)

    def _save(self, path: Path) -> None:
        self._make()
        save_copy(path)
