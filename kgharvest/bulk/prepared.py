"""Statements of SQL that are made once and run often.

Django makes SQL of a QuerySet each time that it is asked. For a row by its key that costs several times what running
it does, which is most of what an answer of an annotator would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import connection
from django.db.models import Expression, Model, QuerySet
from django.db.models.query import ModelIterable
from django.db.models.sql import UpdateQuery
from django.db.models.sql.compiler import SQLCompiler
from django.db.transaction import TransactionManagementError

Row = TypeVar("Row", bound=Model)


class Parameter(Expression):  # type: ignore[misc]
    """The place of a value of a model's field; when the statement is run, the value comes under the field's name."""

    def __init__(self, model: type[Model], name: str):
        super().__init__(output_field=model._meta.get_field(name))
        self.name = name

    def as_sql(self, compiler: SQLCompiler, connection: Any) -> tuple[str, list[Any]]:
        return "%s", [self]


class Statement(NamedTuple):
    """SQL as one kind of database takes it. parameters: each a value or a Parameter. compiler: knows the columns."""

    sql: str
    parameters: Sequence[Any]
    compiler: SQLCompiler

    def bound(self, values: dict[str, Any]) -> list[Any]:
        return [
            part.output_field.get_db_prep_value(values[part.name], connection) if isinstance(part, Parameter) else part
            for part in self.parameters
        ]


class Prepared(Generic[Row]):
    """A statement about the rows of a QuerySet that has Parameters in the place of values."""

    def __init__(self, rows: Callable[[], QuerySet[Row]]):
        """rows: called when the statement is first run, as databases and models are not there before."""
        self._rows = rows
        self._statements: dict[str, Statement] = {}  # by the kind of database

    def _statement(self) -> Statement:
        if connection.vendor not in self._statements:
            compiler = self._query().get_compiler(connection=connection)
            sql, parameters = compiler.as_sql()
            compiler.connection = None  # of one thread, which ends
            self._statements[connection.vendor] = Statement(sql, parameters, compiler)
        return self._statements[connection.vendor]

    def _query(self) -> Any:
        return self._rows().query


class PreparedSelect(Prepared[Row]):
    """`select(pk=7)` is the list of rows of a QuerySet that has Parameter(Model, "pk") somewhere."""

    def __call__(self, **values: Any) -> list[Row]:
        statement = self._statement()
        # Django looks at this when it makes SQL, which is once here: without a transaction nothing would stay locked.
        locks = statement.compiler.query.select_for_update and connection.features.has_select_for_update
        if locks and connection.get_autocommit():
            raise TransactionManagementError("Rows are locked within a transaction only; begin one.")
        parameters = statement.bound(values)
        compiler = copy(statement.compiler)
        compiler.connection = connection
        compiler.as_sql = lambda: (statement.sql, parameters)
        query = SimpleNamespace(get_compiler=lambda using: compiler)
        return list(ModelIterable(SimpleNamespace(query=query, db=connection.alias, _known_related_objects={})))


class PreparedUpdate(Prepared[Row]):
    """`update(pk=7, label="true")` sets the columns `names` in the rows of a QuerySet and returns how many these are.

    values: constants that are set as well.
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
        statement = self._statement()
        with connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.bound(values))
            return int(cursor.rowcount)


class PreparedInsert(Generic[Row]):
    """`insert(row)` stores a new row of a model that has its key already."""

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
