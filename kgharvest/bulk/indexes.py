"""Indexes of tables with a row per tuple, statement or judgment, added while people write to them (docs/deployment.md).

PostgreSQL lets nobody write to a table while it makes an ordinary index of it, which takes minutes where there are
millions of rows. Made concurrently it waits for who is writing and stops nobody. Such a migration has `atomic = False`.
SQLite knows no such thing: one installation on one host, which is stopped to be updated.
"""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


class AddIndex(AddIndexConcurrently):  # type: ignore[misc]  # Django has no types
    """Adds an index; on PostgreSQL without a lock."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _choose(schema_editor, AddIndexConcurrently, migrations.AddIndex).database_forwards(
            self, app_label, schema_editor, from_state, to_state
        )

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _choose(schema_editor, AddIndexConcurrently, migrations.AddIndex).database_backwards(
            self, app_label, schema_editor, from_state, to_state
        )


class RemoveIndex(RemoveIndexConcurrently):  # type: ignore[misc]  # Django has no types
    """Removes an index; on PostgreSQL without a lock."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _choose(schema_editor, RemoveIndexConcurrently, migrations.RemoveIndex).database_forwards(
            self, app_label, schema_editor, from_state, to_state
        )

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        _choose(schema_editor, RemoveIndexConcurrently, migrations.RemoveIndex).database_backwards(
            self, app_label, schema_editor, from_state, to_state
        )


def _choose(schema_editor: Any, on_postgresql: Any, elsewhere: Any) -> Any:
    return on_postgresql if schema_editor.connection.vendor == "postgresql" else elsewhere
