"""Indexes of tables with a row per tuple, statement or judgment, added while people write to them (docs/deployment.md).

PostgreSQL lets nobody write to a table while it makes an ordinary index of it, which takes minutes where there are
millions of rows. Made concurrently it waits for who is writing and stops nobody. Such a migration has `atomic = False`.
SQLite knows no such thing: one installation on one host, which is stopped to be updated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


class AddIndex(AddIndexConcurrently):  # type: ignore[misc]  # Django has no types
    """Adds an index; on PostgreSQL without a lock."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not _is_postgresql(schema_editor):
            migrations.AddIndex.database_forwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _waiting_for_who_writes(schema_editor):
            # One that was not finished stays, and is of no use.
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not _is_postgresql(schema_editor):
            migrations.AddIndex.database_backwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _waiting_for_who_writes(schema_editor):
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class RemoveIndex(RemoveIndexConcurrently):  # type: ignore[misc]
    """Removes an index; on PostgreSQL without a lock."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not _is_postgresql(schema_editor):
            migrations.RemoveIndex.database_forwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _waiting_for_who_writes(schema_editor):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if not _is_postgresql(schema_editor):
            migrations.RemoveIndex.database_backwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _waiting_for_who_writes(schema_editor):
            super().database_backwards(app_label, schema_editor, from_state, to_state)


def _is_postgresql(schema_editor: Any) -> bool:
    return bool(schema_editor.connection.vendor == "postgresql")


@contextmanager
def _waiting_for_who_writes(schema_editor: Any) -> Iterator[None]:
    """Wait for transactions as long as they take, unlike for locks (`migrate`): nobody waits behind this."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        [timeout] = cursor.fetchone()
        cursor.execute("SET lock_timeout = 0")
        yield
        cursor.execute(f"SET lock_timeout = '{timeout}'")  # after a failure `migrate` ends
