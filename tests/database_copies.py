"""Copies of the test database on SQLite, made and put back within milliseconds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import connection


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


class KeptState:
    """A state of the test database that takes long to make: made once, put back from a copy for the tests after.

    Other databases than SQLite make it each time.
    """

    def __init__(self, make: Callable[[], Any], path: Path):
        """path: where the copy may lie."""
        self._make, self._path = make, path
        self._made: Any = None

    def enter(self) -> Any:
        """Bring the database into the state and return what `make` returned."""
        if self._path.exists():
            put_back(self._path)
            return self._made
        self._made = self._make()
        if connection.vendor == "sqlite":
            save_copy(self._path)
        return self._made
