"""Transfer of all rows from one database to another in one transaction. Each database is SQLite or PostgreSQL.

Rows are streamed from a snapshot of the source, table by table, in the order of foreign keys. Before the transaction
ends, the copied rows are read again and compared with the source.
"""

import json
import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.color import no_style
from django.db import ConnectionHandler, DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Field, JSONField, Model

from kgharvest import environment
from kgharvest.audit.tables import canonical_json
from kgharvest.bulk.insert import fill_table
from kgharvest.errors import DomainError
from kgharvest.operations.programs import own_command
from kgharvest.optional_apps import uninstalled_apps

SOURCE, DESTINATION = "source", "destination"  # aliases of the connections
MIGRATIONS = "django_migrations"
# Tables that are kept until the next release, for web servers of the previous release.
EMPTY_TABLES = {"annotation_roundevent"}
# Tables that have rows in a new installation. The rows of the source replace them.
FILLED_BY_MIGRATIONS = {"auth_permission", "django_content_type", "kgharvest_sensitiveword"}

Row = Sequence[Any]


class CopiedTable(NamedTuple):
    """A copied table.

    checksum: 32 hexadecimal digits that do not depend on the order of the rows or the kind of database.
    """

    name: str
    n_rows: int
    checksum: str


def copy_database(
    source_url: str, destination_url: str, on_table: Callable[[CopiedTable], object] = lambda table: None
) -> list[CopiedTable]:
    """Copy all rows and set the sequences. Both URLs are in the format of DATABASE_URL.

    The destination must not contain rows. If it has no tables, it is migrated first. on_table: function that is called
    after each table is read. If it raises TransferRefused, the rows of the destination are unchanged.
    """
    with _opened(SOURCE, source_url) as source:
        _refuse_other_tables(source)
    _migrate_if_new(destination_url)
    with _opened(SOURCE, source_url) as source, _opened(DESTINATION, destination_url) as destination:
        if _place(source) == _place(destination):
            raise _refused("Source and destination are the same database. Use two databases.")
        _refuse_other_tables(destination)
        models = _models_in_order()
        advice = "Nothing was copied. Correct the source, or use a destination of the same kind"
        if source.vendor == "sqlite":
            source.transaction_mode = "DEFERRED"
        with (
            transaction.atomic(using=source.alias),
            _database_errors("Cannot copy a row", advice),
            transaction.atomic(using=destination.alias),
        ):
            if source.vendor == "postgresql":  # read from one snapshot, even during concurrent writes
                with source.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _empty(destination, models)
            copied = [_copy(model, source, destination, on_table) for model in models]
            with destination.cursor() as cursor:  # ids of new rows continue after those of the copied rows
                for statement in destination.ops.sequence_reset_sql(no_style(), models):
                    cursor.execute(statement)
            _compare(copied, destination, models)
            destination.check_constraints()
    return copied


def uninstalled_contrib_apps(url: str) -> list[str]:
    """Return the apps of kgharvest.contrib that have tables in the database but are not installed."""
    with _opened(SOURCE, url) as database, _database_errors(f"Cannot read the {SOURCE}", "Check its address"):
        uninstalled = uninstalled_apps(MigrationRecorder(database).applied_migrations())
    return [app for app in uninstalled if find_spec(f"kgharvest.contrib.{app}")]


def _refused(message: str) -> DomainError:
    return DomainError("TransferRefused", message)


@contextmanager
def _opened(alias: str, url: str) -> Iterator[BaseDatabaseWrapper]:
    """Yield a connection registered as `alias` until it is closed."""
    options = _options(alias, url)
    # Opening a missing file would create it.
    if options["ENGINE"].endswith("sqlite") and not Path(options["NAME"]).is_file():
        raise _refused(f"The {alias} {options['NAME']} does not exist. Check its path or create it with migrate.")
    database = connections[alias] = ConnectionHandler({"default": {}, alias: options}).create_connection(alias)
    try:
        with _database_errors(f"Cannot open the {alias}", "Check its address and whether its server is running"):
            database.ensure_connection()
        yield database
    finally:
        database.close()
        del connections[alias]


def _options(alias: str, url: str) -> dict[str, Any]:
    """Return Django's database options for `url`. Raises TransferRefused."""
    try:
        return environment.database(url)
    except ImproperlyConfigured as error:
        raise _refused(str(error).replace("DATABASE_URL", f"The address of the {alias}")) from None


def _migrate_if_new(url: str) -> None:
    """Migrate the destination if it has no tables. A SQLite file that does not exist is created."""
    is_new_file = url.startswith("sqlite:") and not Path(_options(DESTINATION, url)["NAME"]).exists()
    if not is_new_file:
        with _opened(DESTINATION, url) as destination:
            if destination.introspection.table_names():
                return
    # Data migrations use the default connection, so they run in a process whose default connection is the destination.
    run = subprocess.run(  # noqa: S603 - a trusted command
        own_command("migrate", "--verbosity", "0"),
        env=os.environ | {"DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE, "DATABASE_URL": url, "DEBUG": "1"},
        capture_output=True,
        text=True,
    )
    if run.returncode:
        reason = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise _refused(f"Cannot migrate the destination ({reason}). Check its address and permissions.")


@contextmanager
def _database_errors(problem: str, advice: str) -> Iterator[None]:
    """Convert database errors in the block to TransferRefused."""
    try:
        yield
    except DatabaseError as error:
        reason = str(error).strip().partition("\n")[0]
        raise _refused(f"{problem} ({reason}). {advice}.") from error


def _place(database: BaseDatabaseWrapper) -> tuple[str, ...]:
    """Return a key of the database. Two addresses of the same database have the same key."""
    options = database.settings_dict
    if database.vendor == "sqlite":
        return (str(Path(options["NAME"]).resolve()),)
    return (options["HOST"] or "localhost", str(options["PORT"] or 5432), options["NAME"])


def _refuse_other_tables(database: BaseDatabaseWrapper) -> None:
    """Raise TransferRefused unless the database has exactly the tables of this version."""
    advice = f"Set DATABASE_URL to it, run {environment.PROGRAM} migrate with this version, and copy again"
    with _database_errors(f"The {database.alias} is not a kgharvest database", advice):
        executor = MigrationExecutor(database)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            raise _refused(f"The {database.alias} is not migrated. {advice}.")
        applied = set(executor.loader.applied_migrations)
        if uninstalled := uninstalled_apps(applied):
            raise _refused(
                f"The {database.alias} has tables of apps that are not installed: {', '.join(uninstalled)}. Install "
                "them and copy again."
            )
        if newer := sorted(applied - set(executor.loader.disk_migrations) - set(executor.loader.replacements)):
            raise _refused(
                f"The {database.alias} has the migration {'.'.join(newer[0])} of another kgharvest version. Copy it "
                "with that version."
            )
        tables = set(database.introspection.table_names())
    if others := tables - {model._meta.db_table for model in _models()} - {MIGRATIONS} - EMPTY_TABLES:
        raise _refused(
            f"The {database.alias} has tables that do not belong to kgharvest: {', '.join(sorted(others))}. Move or "
            "drop them."
        )
    for table in EMPTY_TABLES & tables:
        with database.cursor() as cursor:
            cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608 - a constant
            [n_rows] = cursor.fetchone()
        if n_rows:
            raise _refused(
                f"The {database.alias} has {n_rows} rows in {table}, written during the update by a web server of the "
                "previous release. They cannot be copied. Delete them and copy again."
            )


def _models() -> list[type[Model]]:
    return [model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy]


def _models_in_order() -> list[type[Model]]:
    """Return the models, each after the models that its foreign keys refer to."""
    ordered: list[type[Model]] = []

    def add(model: type[Model], ancestors: Sequence[type[Model]]) -> None:
        # Cycles are possible, because foreign keys are checked when the transaction ends.
        if model in ordered or model in ancestors:
            return
        for field in model._meta.local_concrete_fields:
            if field.remote_field:
                add(field.remote_field.model._meta.concrete_model, (*ancestors, model))
        ordered.append(model)

    for model in _models():
        add(model, ())
    return ordered


def _empty(destination: BaseDatabaseWrapper, models: Sequence[type[Model]]) -> None:
    """Delete the rows created by migrations. Raises TransferRefused if there are other rows."""
    with destination.cursor() as cursor:
        for model in reversed(models):
            name = model._meta.db_table
            if name in FILLED_BY_MIGRATIONS:
                cursor.execute(f"DELETE FROM {destination.ops.quote_name(name)}")  # noqa: S608 - table names
                continue
            cursor.execute(f"SELECT 1 FROM {destination.ops.quote_name(name)} LIMIT 1")  # noqa: S608
            if cursor.fetchone():
                raise _refused(f"The destination is not empty: {name} has rows. Use a new database.")


class _Checksum:
    """Sum of the hashes of all rows, which does not depend on the order of the rows."""

    def __init__(self, fields: Sequence[Field]):
        self._json = [index for index, field in enumerate(fields) if isinstance(field, JSONField)]
        self._sum = 0
        self.n_rows = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows and add each row to the sum."""
        for row in rows:
            values = list(row)
            for index in self._json:
                if values[index] is not None:
                    values[index] = json.loads(values[index])
            digest = blake2b(canonical_json(values).encode(), digest_size=16).digest()
            self._sum = (self._sum + int.from_bytes(digest)) % (1 << 128)
            self.n_rows += 1
            yield row

    def table(self, model: type[Model]) -> CopiedTable:
        return CopiedTable(model._meta.db_table, self.n_rows, f"{self._sum:032x}")


def _copy(
    model: type[Model],
    source: BaseDatabaseWrapper,
    destination: BaseDatabaseWrapper,
    on_table: Callable[[CopiedTable], object],
) -> CopiedTable:
    fields = model._meta.local_concrete_fields
    checksum = _Checksum(fields)
    columns = ", ".join(destination.ops.quote_name(field.column) for field in fields)
    table = f"{destination.ops.quote_name(model._meta.db_table)} ({columns})"

    def prepared(field: Field, value: Any) -> Any:
        if not isinstance(field, JSONField):
            return field.get_db_prep_save(value, destination)
        # PostgreSQL normalizes JSON. SQLite stores JSON as text, which must have Django's format.
        return value if value is None or destination.vendor == "postgresql" else json.dumps(json.loads(value))

    rows = checksum.of(_rows(model, source))
    fill_table(destination, table, ([prepared(*pair) for pair in zip(fields, row, strict=True)] for row in rows))
    copied = checksum.table(model)
    on_table(copied)
    return copied


def _rows(model: type[Model], database: BaseDatabaseWrapper) -> Iterator[Row]:
    """Yield the rows in batches, as Python values. JSON is text, to distinguish JSON null from SQL NULL."""
    fields = model._meta.local_concrete_fields
    columns = ", ".join(database.ops.quote_name(field.column) for field in fields)
    converters = []
    for index, field in enumerate(fields):
        if not isinstance(field, JSONField):
            column = field.get_col(model._meta.db_table)
            functions = (*database.ops.get_db_converters(column), *field.get_db_converters(database))
            converters += [(index, column, convert) for convert in functions]
    with database.chunked_cursor() as cursor:
        table = database.ops.quote_name(model._meta.db_table)
        cursor.execute(f"SELECT {columns} FROM {table}")  # noqa: S608 - table names
        while rows := cursor.fetchmany(2000):
            for row in rows:
                values = list(row)
                for index, column, convert in converters:
                    values[index] = convert(values[index], column, database)
                yield values


def _compare(copied: Sequence[CopiedTable], destination: BaseDatabaseWrapper, models: Sequence[type[Model]]) -> None:
    for model, table in zip(models, copied, strict=True):
        checksum = _Checksum(model._meta.local_concrete_fields)
        deque(checksum.of(_rows(model, destination)), maxlen=0)
        if (stored := checksum.table(model)) != table:
            raise _refused(
                f"The copy of {table.name} differs: {table.n_rows} rows with checksum {table.checksum} were read, but "
                f"{stored.n_rows} with {stored.checksum} were stored. Nothing was copied. Look for values that the "
                "destination stores in a different form."
            )
