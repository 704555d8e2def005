"""Index operations for tables with a row per tuple, statement or judgment, without downtime (docs/deployment.md).

On PostgreSQL, CREATE INDEX blocks writes for minutes on tables with millions of rows, but CREATE INDEX CONCURRENTLY
does not. Migrations that use these operations need `atomic = False`. On SQLite, the plain operations are used: an
installation with SQLite runs on one host and is stopped for updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


@contextmanager
def _without_lock_timeout(schema_editor: Any) -> Iterator[None]:
    """Suspend the lock timeout of `migrate`: a concurrent operation waits for transactions but blocks nobody."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        [timeout] = cursor.fetchone()
        cursor.execute("SET lock_timeout = 0")
        yield
        cursor.execute(f"SET lock_timeout = '{timeout}'")  # `migrate` ends after a failure


class AddIndex(AddIndexConcurrently):  # type: ignore[misc]  # Django has no types
    """Add an index, on PostgreSQL without a lock."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            migrations.AddIndex.database_forwards(self, app_label, schema_editor, *states)
            return
        with _without_lock_timeout(schema_editor):
            # An interrupted run leaves an invalid index.
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            migrations.AddIndex.database_backwards(self, app_label, schema_editor, *states)
            return
        with _without_lock_timeout(schema_editor):
            super().database_backwards(app_label, schema_editor, *states)


class RemoveIndex(RemoveIndexConcurrently):  # type: ignore[misc]
    """Remove an index, on PostgreSQL without a lock."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            migrations.RemoveIndex.database_forwards(self, app_label, schema_editor, *states)
            return
        with _without_lock_timeout(schema_editor):
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            migrations.RemoveIndex.database_backwards(self, app_label, schema_editor, *states)
            return
        with _without_lock_timeout(schema_editor):
            super().database_backwards(app_label, schema_editor, *states)
