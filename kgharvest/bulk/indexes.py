"""Index operations for tables with a row per tuple, statement, or judgment, without downtime (docs/deployment.md).

On PostgreSQL, CREATE INDEX blocks writes for minutes on tables with millions of rows, but CREATE INDEX CONCURRENTLY
does not. Migrations that use these operations need `atomic = False`. On SQLite, the plain operations are used: an
installation with SQLite runs on one host and is stopped for updates.
"""

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


class _WithoutDowntime:
    """Run the concurrent operation on PostgreSQL, and the operation `plain` on other databases."""

    plain: type[migrations.AddIndex | migrations.RemoveIndex]

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        self._run("database_forwards", app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        self._run("database_backwards", app_label, schema_editor, *states)

    def _run(self, direction: str, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            getattr(self.plain, direction)(self, app_label, schema_editor, *states)
            return
        # `migrate` sets a lock timeout. A concurrent operation waits for transactions but blocks no queries.
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            [timeout] = cursor.fetchone()
            cursor.execute("SET lock_timeout = 0")
            if direction == "database_forwards" and isinstance(self, AddIndex):  # may be invalid after an interruption
                schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(self.index.name)}")
            getattr(super(), direction)(app_label, schema_editor, *states)
            cursor.execute(f"SET lock_timeout = '{timeout}'")  # not needed after a failure, which ends `migrate`


class AddIndex(_WithoutDowntime, AddIndexConcurrently):  # type: ignore[misc]  # Django has no types
    plain = migrations.AddIndex


class RemoveIndex(_WithoutDowntime, RemoveIndexConcurrently):  # type: ignore[misc]
    plain = migrations.RemoveIndex
