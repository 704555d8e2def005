"""Database upgrade from an earlier release: one row in each table, compared column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from tests.every_model import make_row_of_every_model
from tests.kgharvest.old_release import OLD_RELEASE, old_release
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("probing" not in apps.app_configs, reason="the old release contains all optional apps"),
]

# Tables that later migrations drop, with the reason.
DROPPED = {"kgharvest_entitycandidate": "reconciliation services are no longer supported"}
# Tables with rows moved by later migrations: the new table, and the old columns with their new names.
MOVED = {
    "annotation_roundevent": (
        "kgharvest_auditentry",
        {"round_id": "round_id", "kind": "kind", "at": "at", "by_id": "by_id", "details": "texts"},
    )
}
REWRITTEN = {"django_migrations", "django_content_type", "auth_permission"}


class Table(NamedTuple):
    columns: list[str]
    rows: list[tuple[Any, ...]]

    def select(self, columns: Iterable[str]) -> Counter[str]:
        """Return the values of these columns of each row, as text."""
        positions = [self.columns.index(column) for column in columns]
        return Counter(repr([row[position] for position in positions]) for row in self.rows)


def tables_of_database() -> dict[str, Table]:
    tables = {}
    with connection.cursor() as cursor:
        for name in set(connection.introspection.table_names(cursor)) - REWRITTEN:
            cursor.execute(f'SELECT * FROM "{name}"')
            tables[name] = Table([column[0] for column in cursor.description], cursor.fetchall())
    return tables


@pytest.fixture
def old_tables(transactional_db, shared_folder):
    """A database of the old release with a row of every model."""
    old_release(shared_folder).enter()
    make_row_of_every_model(MigrationLoader(connection).project_state(OLD_RELEASE).apps)
    yield tables_of_database()
    if connection.vendor != "sqlite":
        call_command("migrate", verbosity=0)


def test_every_row_of_the_old_release_is_kept(old_tables):
    empty = {name for name, table in old_tables.items() if not table.rows}
    assert not empty

    call_command("migrate", verbosity=0)

    tables = tables_of_database()
    assert old_tables.keys() - tables.keys() == DROPPED.keys()
    for name in old_tables.keys() - DROPPED.keys():
        old = old_tables[name]
        same = {column: column for column in old.columns if column in tables[name].columns}
        new_name, columns = MOVED.get(name, (name, same))
        assert not old.select(columns.keys()) - tables[new_name].select(columns.values()), name


@on_postgresql
def test_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
