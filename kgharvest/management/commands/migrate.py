"""`migrate` with a fast first run, and with a lock timeout and retries, so that it does not block a running site."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from time import sleep
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import RunPython
from django.db.migrations.executor import MigrationExecutor

from kgharvest.environment import create_data_folder

LOCK_TIMEOUT = "3s"
PAUSE_S = 5
ATTEMPTS = 24  # attempts for three minutes in total
# Optional apps whose first tables were created by migrations of the core
CREATED_BY_CORE = [f"kgharvest.contrib.{name}" for name in ("knowledge_graphs", "probing", "publishing", "recruiting")]
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's error code


class Command(migrate.Command):
    """Migrate with a lock timeout.

    Django's command waits for table locks on PostgreSQL, and all other queries queue behind it.

    Each migration is one transaction, so a retry continues after the last complete migration.
    """

    def execute(self, *args: Any, **options: Any) -> str | None:
        if not options["check_unapplied"]:
            # Done before the system checks, because these connect to the database.
            create_data_folder(settings.DATA_DIR)
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        applies_all = not any(options[name] for name in ("app_label", "plan", "check_unapplied", "fake", "prune"))
        for _ in range(ATTEMPTS):
            try:
                with lock_timeout(connection):
                    if applies_all:
                        self.create_tables(connection)
                    return super().handle(*args, **options)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE:
                    raise
                self.stdout.write(f"\nA table is in use. Retrying in {PAUSE_S} s.")
                sleep(PAUSE_S)
        raise CommandError(
            f"A table was still in use after {ATTEMPTS} attempts. Wait until other processes, for example a backup, "
            "have finished, then run migrate again."
        )

    def create_tables(self, connection: BaseDatabaseWrapper) -> None:
        """Create the tables of an empty database from the models, and record all migrations as applied.

        Running all migrations would take ten times as long. tests/kgharvest/operations/test_new_database.py compares
        the results. Operations that are also necessary in a new database have the hint `on_new_database`.
        """
        self.verbosity = 0
        with connection.constraint_checks_disabled(), transaction.atomic(using=connection.alias):
            if connection.introspection.table_names() or not all(map(apps.is_installed, CREATED_BY_CORE)):
                return
            executor = MigrationExecutor(connection)
            migrations = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
            self.sync_apps(connection, executor.loader.migrated_apps)
            with connection.schema_editor() as editor:
                for operation in chain.from_iterable(migration.operations for migration in migrations):
                    if isinstance(operation, RunPython) and operation.hints.get("on_new_database"):
                        operation.code(apps, editor)
            executor.recorder.ensure_schema()
            for migration in migrations:
                executor.recorder.record_applied(migration.app_label, migration.name)


@contextmanager
def lock_timeout(connection: BaseDatabaseWrapper) -> Iterator[None]:
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    try:
        yield
    finally:
        if connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")
