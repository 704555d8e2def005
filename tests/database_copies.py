"""Copies of the SQLite test database, saved and restored within milliseconds."""

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
    """Restore the test database, including its tables, from the copy."""
    connection.ensure_connection()
    with closing(sqlite3.connect(path)) as copy:
        copy.backup(connection.connection)
    ContentType.objects.clear_cache()


def remove_tables() -> None:
    """Drop all tables of the test database."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        return
    connection.ensure_connection()
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.backup(connection.connection)


class MigratedOnce:
    """Migrated SQLite file that the first process creates and the others copy. folder: shared by the processes."""

    def __init__(self, folder: Path):
        self.path = folder / "migrated.sqlite3"
        self._lock = (folder / "migrated.lock").open("w")

    def copy_to(self, path: Path) -> None:
        """Copy the file if it exists; otherwise hold the lock until `save` or `release`, so that others wait."""
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
    """Expensive state of the test database, created once and restored from a copy for each test.

    On other databases than SQLite it is created each time.
    """

    def __init__(self, make: Callable[[], object], path: Path):
        """path: file for the copy, in a folder shared by the test processes."""
        self._make, self._path = make, path

    def enter(self) -> None:
        """Put the database into this state."""
        if connection.vendor != "sqlite":
            self._make()
            return
        made_once(self._path, self._save)
        put_back(self._path)

    def _save(self, path: Path) -> None:
        self._make()
        save_copy(path)
