"""Prepared SQL statements, compiled once and run often.

Django compiles a QuerySet on every execution. For lookups by key, compilation takes several times as long as execution
and would dominate the cost of storing a judgment.
"""

from collections.abc import Callable, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Expression, Model, QuerySet
from django.db.models.query import ModelIterable
from django.db.models.sql import UpdateQuery
from django.db.models.sql.compiler import SQLCompiler
from django.db.transaction import TransactionManagementError

Row = TypeVar("Row", bound=Model)


class Parameter(Expression):  # type: ignore[misc]
    """Placeholder for a value of a model field. Calls pass the value under the field's name."""

    def __init__(self, model: type[Model], name: str):
        super().__init__(output_field=model._meta.get_field(name))
        self.name = name

    def as_sql(self, compiler: SQLCompiler, connection: Any) -> tuple[str, list[Any]]:
        return "%s", [self]


class Prepared(Generic[Row]):
    """SQL statement for the rows of a QuerySet in which Parameters stand for values."""

    def __init__(self, rows: Callable[[], QuerySet[Row]]):
        """`rows` is called on the first execution, because models and databases are not ready at import."""
        self._rows = rows
        # Compiled statements by database vendor.
        self._statements: dict[str, tuple[str, Sequence[Any], SQLCompiler]] = {}

    def _bound(self, values: dict[str, Any]) -> tuple[str, list[Any], SQLCompiler]:
        """Return the SQL for this database, its parameters, and its compiler, which maps columns to fields."""
        if connection.vendor not in self._statements:
            compiler = self._query().get_compiler(connection=connection)
            sql, parts = compiler.as_sql()
            compiler.connection = None  # connections belong to one thread
            self._statements[connection.vendor] = sql, parts, compiler
        sql, parts, compiler = self._statements[connection.vendor]
        parameters = [
            part.output_field.get_db_prep_value(values[part.name], connection) if isinstance(part, Parameter) else part
            for part in parts
        ]
        return sql, parameters, compiler

    def _query(self) -> Any:
        return self._rows().query


class PreparedSelect(Prepared[Row]):
    """Prepared SELECT: `select(pk=7)` returns the rows of a QuerySet that contains Parameter(Model, "pk")."""

    def __call__(self, **values: Any) -> list[Row]:
        sql, parameters, compiler = self._bound(values)
        # Without a transaction, rows would not stay locked. Django checks this only when it compiles the SQL.
        locks = compiler.query.select_for_update and connection.features.has_select_for_update
        if locks and connection.get_autocommit():
            raise TransactionManagementError("select_for_update cannot be used outside of a transaction.")
        compiler = copy(compiler)
        compiler.connection = connection
        compiler.as_sql = lambda: (sql, parameters)
        query = SimpleNamespace(get_compiler=lambda using: compiler)
        return list(ModelIterable(SimpleNamespace(query=query, db=connection.alias, _known_related_objects={})))


class PreparedUpdate(Prepared[Row]):
    """Prepared UPDATE: `update(pk=7, label="true")` sets the columns `names` and returns the number of rows.

    values: additional columns to set, with their constant values.
    """

    def __init__(self, rows: Callable[[], QuerySet[Row]], *names: str, **values: Any):
        super().__init__(rows)
        self._names, self._values = names, values

    def _query(self) -> Any:
        rows = self._rows()
        query = rows.query.chain(UpdateQuery)
        query.add_update_values({name: Parameter(rows.model, name) for name in self._names} | self._values)
        return query

    def __call__(self, **values: Any) -> int:
        sql, parameters, _ = self._bound(values)
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)


class PreparedInsert(Generic[Row]):
    """Prepared INSERT: `insert(row)` stores a new row whose primary key is already set."""

    def __init__(self, model: type[Row]):
        self._fields = model._meta.concrete_fields
        columns = ", ".join(f'"{field.column}"' for field in self._fields)
        marks = ", ".join(["%s"] * len(self._fields))
        self._sql = f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES ({marks})'  # noqa: S608

    def __call__(self, row: Row) -> None:
        values = [field.get_db_prep_save(getattr(row, field.attname), connection) for field in self._fields]
        with connection.cursor() as cursor:
            cursor.execute(self._sql, values)
        row._state.adding, row._state.db = False, connection.alias
