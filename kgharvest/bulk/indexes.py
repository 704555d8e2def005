"""Index operations for tables with a row per tuple, statement, or judgment, without downtime (docs/deployment.md).

On PostgreSQL, CREATE INDEX blocks writes for minutes on tables with millions of rows, but CREATE INDEX CONCURRENTLY
does not. Migrations that use these operations need `atomic = False`. On SQLite, the plain operations are used: an
installation with SQLite runs on one host and is stopped for updates.
"""

from typing import Any

from django.db import migrations
from django.utils.module_loading import import_string


class _WithoutDowntime:
    """Run the concurrent operation on PostgreSQL, and the operation of the superclass on other databases."""

    atomic = False
    concurrent: str  # given as a dotted path, because importing the operation requires psycopg

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        self._run("database_forwards", app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        self._run("database_backwards", app_label, schema_editor, *states)

    def _run(self, direction: str, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            getattr(super(), direction)(app_label, schema_editor, *states)
            return
        # `migrate` sets a lock timeout, which a concurrent operation does not need: it waits for transactions but does
        # not block queries.
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            [timeout] = cursor.fetchone()
            cursor.execute("SET lock_timeout = 0")
            # An interruption may have left an invalid index.
            if direction == "database_forwards" and isinstance(self, AddIndex):
                schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            _, _, arguments = self.deconstruct()  # type: ignore[attr-defined]  # of the operation
            getattr(import_string(self.concurrent)(**arguments), direction)(app_label, schema_editor, *states)
            # After a failure, this is not needed, because `migrate` ends.
            cursor.execute(f"SET lock_timeout = '{timeout}'")


class AddIndex(_WithoutDowntime, migrations.AddIndex):  # type: ignore[misc]  # Django has no types
    concurrent = "django.contrib.postgres.operations.AddIndexConcurrently"


class RemoveIndex(_WithoutDowntime, migrations.RemoveIndex):  # type: ignore[misc]
    concurrent = "django.contrib.postgres.operations.RemoveIndexConcurrently"
