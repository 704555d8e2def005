"""All rows of one database into another of either kind, SQLite or PostgreSQL: all of them, or none.

Rows stream from a snapshot of the source into one transaction of the destination, tables in the order of their foreign
keys. What arrived is read again and compared before the transaction ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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

from kgharvest.audit.tables import canonical_json
from kgharvest.bulk.insert import fill_table
from kgharvest.errors import DomainError
from kgharvest.optional_apps import uninstalled_apps
from kgharvest.settings import database as configured

SOURCE, DESTINATION = "source", "destination"  # aliases of the two connections
MIGRATIONS = "django_migrations"
EMPTY_TABLES = {"annotation_roundevent"}  # of the last release; they stay for its web servers until the next release
# Of an installation that nobody has used yet; the rows of the source replace them.
MADE_BY_MIGRATIONS = {"auth_permission", "django_content_type", "kgharvest_sensitiveword"}

Row = Sequence[Any]


class CopiedTable(NamedTuple):
    """checksum: 32 hexadecimal digits of the rows in any order, the same in either kind of database."""

    name: str
    n_rows: int
    checksum: str


def copy_database(
    source_url: str, destination_url: str, on_table: Callable[[CopiedTable], object] = lambda table: None
) -> list[CopiedTable]:
    """Copy every row and set the sequences. URLs: as DATABASE_URL.

    The destination has no rows; a destination without tables is migrated first. on_table: called after each table is
    read. Raises TransferRefused; the destination then has the rows that it had before.
    """
    with _opened(SOURCE, source_url) as source:
        _refuse_other_tables(source)
    _migrate_if_new(destination_url)
    with _opened(SOURCE, source_url) as source, _opened(DESTINATION, destination_url) as destination:
        if _place(source) == _place(destination):
            raise DomainError("TransferRefused", "Source and destination are the same database; name two.")
        _refuse_other_tables(destination)
        tables = _Tables()
        with _snapshot(source), _one_transaction(destination):
            _empty(destination, tables)
            copied = [_copy(model, source, destination, on_table) for model in tables.in_order]
            with destination.cursor() as cursor:  # new rows are numbered after those that were copied
                for statement in destination.ops.sequence_reset_sql(no_style(), tables.in_order):
                    cursor.execute(statement)
            _compare(copied, destination, tables)
    return copied


def uninstalled_contrib_apps(url: str) -> list[str]:
    """Return the apps of kgharvest.contrib that have tables in the database but are not installed."""
    with _opened(SOURCE, url) as database, _faults_said(f"The {SOURCE} cannot be read", "check its address"):
        uninstalled = uninstalled_apps(MigrationRecorder(database).applied_migrations())
    return [app for app in uninstalled if find_spec(f"kgharvest.contrib.{app}")]


# -- the two databases -------------------------------------------------------------------------------------------------


@contextmanager
def _opened(alias: str, url: str) -> Iterator[BaseDatabaseWrapper]:
    """Yield a connection that is known by `alias` until it is closed."""
    options = _options(alias, url)
    if options["ENGINE"].endswith("sqlite") and not Path(options["NAME"]).is_file():  # to open it would make it
        raise DomainError(
            "TransferRefused", f"The {alias} {options['NAME']} is not there; check its path, or make it with migrate."
        )
    database = connections[alias] = ConnectionHandler({"default": {}, alias: options}).create_connection(alias)
    try:
        with _faults_said(f"The {alias} cannot be opened", "check its address and that its server runs"):
            database.ensure_connection()
        yield database
    finally:
        database.close()
        del connections[alias]


def _options(alias: str, url: str) -> dict[str, Any]:
    """Return Django's options of the database at `url`. Raises TransferRefused."""
    try:
        return configured(url)
    except ImproperlyConfigured as error:
        raise DomainError(
            "TransferRefused", str(error).replace("DATABASE_URL", f"The address of the {alias}")
        ) from None


def _migrate_if_new(url: str) -> None:
    """Migrate the destination if it has no tables. A SQLite file that does not exist is created."""
    is_new_file = url.startswith("sqlite:") and not Path(_options(DESTINATION, url)["NAME"]).exists()
    if not is_new_file:
        with _opened(DESTINATION, url) as destination:
            if destination.introspection.table_names():
                return
    # Data migrations use the default connection, so they need a process whose default is the destination.
    run = subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--verbosity", "0"],
        env=os.environ
        | {"DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE, "DATABASE_URL": url, "DEBUG": "1"}
        | {"PYTHONPATH": str(settings.BASE_DIR)},  # not the working directory: SQLite's path may be relative
        capture_output=True,
        text=True,
    )
    if run.returncode:
        reason = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise DomainError(
            "TransferRefused", f"The destination could not be migrated ({reason}); check its address and permissions."
        )


@contextmanager
def _faults_said(what: str, to_do: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        reason = str(error).strip().partition("\n")[0]
        raise DomainError("TransferRefused", f"{what} ({reason}); {to_do}.") from error


def _place(database: BaseDatabaseWrapper) -> tuple[str, ...]:
    """Return what two addresses of one database have in common."""
    options = database.settings_dict
    if database.vendor == "sqlite":
        return (str(Path(options["NAME"]).resolve()),)
    return (options["HOST"] or "localhost", str(options["PORT"] or 5432), options["NAME"])


def _refuse_other_tables(database: BaseDatabaseWrapper) -> None:
    """Raise TransferRefused unless the database has the tables of this version, and no others."""
    to_do = "let DATABASE_URL name it, run python manage.py migrate with this version, and copy again"
    with _faults_said(f"The {database.alias} is no database of kgharvest", to_do):
        executor = MigrationExecutor(database)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            raise DomainError("TransferRefused", f"The {database.alias} is not migrated; {to_do}.")
        applied = set(executor.loader.applied_migrations)
        if uninstalled := uninstalled_apps(applied):
            raise DomainError(
                "TransferRefused",
                f"The {database.alias} has tables of apps that are not installed: {', '.join(uninstalled)}. Install "
                "them and copy again.",
            )
        known = set(executor.loader.disk_migrations) | set(executor.loader.replacements)
        if newer := sorted(applied - known):
            raise DomainError(
                "TransferRefused",
                f"The {database.alias} belongs to another version of kgharvest, which knows the migration "
                f"{'.'.join(newer[0])}; copy it with that version.",
            )
        tables = set(database.introspection.table_names())
    if others := tables - {model._meta.db_table for model in _models()} - {MIGRATIONS} - EMPTY_TABLES:
        raise DomainError(
            "TransferRefused",
            f"The {database.alias} has tables that are not kgharvest's: {', '.join(sorted(others))}; "
            "move or drop them.",
        )
    for table in EMPTY_TABLES & tables:
        with database.cursor() as cursor:
            cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608 - a name of this module
            [n_rows] = cursor.fetchone()
        if n_rows:
            raise DomainError(
                "TransferRefused",
                f"The {database.alias} has {n_rows} rows in {table}, which a web server of the last release wrote "
                "during the update. They are not copied; delete them from the table to copy the rest.",
            )


def _models() -> list[type[Model]]:
    return [model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy]


class _Tables:
    """in_order: every model after those that its foreign keys name."""

    def __init__(self) -> None:
        self.in_order: list[type[Model]] = []
        for model in _models():
            self._add(model, ())

    def _add(self, model: type[Model], waiting: Sequence[type[Model]]) -> None:
        if model in self.in_order or model in waiting:  # a circle is for the transaction, which checks keys at its end
            return
        for field in model._meta.local_concrete_fields:
            if field.remote_field:
                self._add(field.remote_field.model._meta.concrete_model, (*waiting, model))
        self.in_order.append(model)


@contextmanager
def _snapshot(source: BaseDatabaseWrapper) -> Iterator[None]:
    """Read everything as it is at one moment, while others write on."""
    if source.vendor == "sqlite":
        source.transaction_mode = "DEFERRED"
    with transaction.atomic(using=source.alias):
        with source.cursor() as cursor:
            if source.vendor == "postgresql":
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextmanager
def _one_transaction(destination: BaseDatabaseWrapper) -> Iterator[None]:
    to_do = "nothing was copied; mend the source, or take a destination of the kind that the source is"
    with _faults_said("A row cannot be copied", to_do), transaction.atomic(using=destination.alias):
        yield
        destination.check_constraints()


def _empty(destination: BaseDatabaseWrapper, tables: _Tables) -> None:
    """Delete what migrations made. Raises TransferRefused if there is anything else."""
    with destination.cursor() as cursor:
        for model in reversed(tables.in_order):
            name = model._meta.db_table
            if name in MADE_BY_MIGRATIONS:
                cursor.execute(f"DELETE FROM {_quoted(destination, name)}")  # noqa: S608 - names of tables
                continue
            cursor.execute(f"SELECT 1 FROM {_quoted(destination, name)} LIMIT 1")  # noqa: S608
            if cursor.fetchone():
                raise DomainError(
                    "TransferRefused", f"The destination is not empty: {name} has rows; take a new database."
                )


def _quoted(database: BaseDatabaseWrapper, name: str) -> str:
    return database.ops.quote_name(name)


# -- rows --------------------------------------------------------------------------------------------------------------


class _Checksum:
    """The sum of a hash of each row, so that the order of rows does not matter."""

    def __init__(self, fields: Sequence[Field]):
        self._json = [index for index, field in enumerate(fields) if isinstance(field, JSONField)]
        self._sum = 0
        self.n_rows = 0

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: Row) -> None:
        values = list(row)
        for index in self._json:
            if values[index] is not None:
                values[index] = json.loads(values[index])
        digest = blake2b(canonical_json(values).encode(), digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(digest)) % (1 << 128)
        self.n_rows += 1

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
    columns = ", ".join(_quoted(destination, field.column) for field in fields)
    table = f"{_quoted(destination, model._meta.db_table)} ({columns})"
    fill_table(destination, table, _prepared(fields, checksum.of(_rows(model, source)), destination))
    copied = checksum.table(model)
    on_table(copied)
    return copied


def _rows(model: type[Model], database: BaseDatabaseWrapper) -> Iterator[Row]:
    """Yield the rows in Python's values, some at a time; JSON as text, as null of JSON and of SQL are two things."""
    fields = model._meta.local_concrete_fields
    columns = ", ".join(_quoted(database, field.column) for field in fields)
    converters = [(index, found) for index, field in enumerate(fields) if (found := _converters(field, database))]
    with database.chunked_cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {_quoted(database, model._meta.db_table)}")  # noqa: S608 - of tables
        while rows := cursor.fetchmany(2000):
            for row in rows:
                values = list(row)
                for index, convert in converters:
                    values[index] = convert(values[index])
                yield values


def _converters(field: Field, database: BaseDatabaseWrapper) -> Callable[[Any], Any] | None:
    if isinstance(field, JSONField):
        return None
    column = field.get_col(field.model._meta.db_table)
    found = [*database.ops.get_db_converters(column), *field.get_db_converters(database)]

    def convert(value: Any) -> Any:
        for converter in found:
            value = converter(value, column, database)
        return value

    return convert if found else None


def _prepared(fields: Sequence[Field], rows: Iterable[Row], destination: BaseDatabaseWrapper) -> Iterator[Row]:
    def prepared(field: Field, value: Any) -> Any:
        if not isinstance(field, JSONField):
            return field.get_db_prep_save(value, destination)
        # PostgreSQL reads JSON in any writing; SQLite keeps the text, which is to be as Django writes it.
        return value if value is None or destination.vendor == "postgresql" else json.dumps(json.loads(value))

    for row in rows:
        yield [prepared(field, value) for field, value in zip(fields, row, strict=True)]


def _compare(copied: Sequence[CopiedTable], destination: BaseDatabaseWrapper, tables: _Tables) -> None:
    for model, table in zip(tables.in_order, copied, strict=True):
        checksum = _Checksum(model._meta.local_concrete_fields)
        for row in _rows(model, destination):
            checksum.add(row)
        if (arrived := checksum.table(model)) != table:
            raise DomainError(
                "TransferRefused",
                f"{table.name} did not arrive as it was ({table.n_rows} rows with the checksum {table.checksum} left, "
                f"{arrived.n_rows} with {arrived.checksum} came); nothing was copied, so look for values that the "
                "destination keeps in another form.",
            )
