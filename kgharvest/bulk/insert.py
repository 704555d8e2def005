"""Bulk insertion of rows."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, JSONField, Model, UUIDField

ROWS_AT_ONCE = 5000
CONVERTED_FIELDS = (DateTimeField, JSONField, UUIDField)  # fields whose values must be converted


def insert_rows(model: type[Model], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert `rows` with values of the fields `names`. Other fields get their defaults. Ids are not returned.

    This is several times as fast as bulk_create, which creates an object per row and an expression per value.
    """
    database = connections[DEFAULT_DB_ALIAS]
    fields = [model._meta.get_field(name) for name in names]
    other_fields = [field for field in model._meta.concrete_fields if field not in fields and not field.primary_key]
    defaults = [field.get_db_prep_save(field.get_default(), database) for field in other_fields]
    columns = ", ".join(database.ops.quote_name(field.column) for field in (*fields, *other_fields))
    table = f"{database.ops.quote_name(model._meta.db_table)} ({columns})"
    target_fields = enumerate(getattr(field, "target_field", field) for field in fields)
    converters = [(i, field.get_db_prep_save) for i, field in target_fields if isinstance(field, CONVERTED_FIELDS)]

    def converted_rows() -> Iterator[list[Any]]:
        for row in rows:
            values = list(row)
            for index, convert in converters:
                values[index] = convert(values[index], database)
            yield values + defaults

    fill_table(database, table, converted_rows())


def storable(text: str) -> str:
    """Replace characters that databases cannot store: NUL and lone surrogates."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def fill_table(database: BaseDatabaseWrapper, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert `rows` of database values.

    table: SQL name of the table, followed by column names if the rows do not have a value for every column.
    """
    rows = iter(rows)
    with database.cursor() as cursor:
        if database.vendor == "postgresql":
            with database.wrap_database_errors, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            return
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            marks = ", ".join(["%s"] * len(batch[0]))
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", batch)  # noqa: S608
