"""`migrate` on an empty database: the same tables, constraints, triggers, and rows as all migrations together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from kgharvest.management.commands.migrate import Command
from kgharvest.models import SensitiveWord
from tests.database_copies import remove_tables
from tests.kgharvest.old_release import upgraded_release
from tests.postgres import on_postgresql, run_on_postgresql

# Unused by this release and absent from new databases; the last release still uses them while it is updated.
UNUSED_TABLES = {"annotation_roundevent"}
UNUSED_COLUMNS = {("kgharvest_job", "enqueued_at")}
# Django's migrations create these ids as 64-bit integers, its models as 32-bit integers.
IDS_OF_AUTH = {(f"auth_{table}", "id") for table in ("user_groups", "user_user_permissions", "group_permissions")}

CHECKS = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = %s",
    "postgresql": "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass",
}
TRIGGERS = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}
COLUMNS = {
    "sqlite": 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(%s)',
    "postgresql": "SELECT column_name, data_type, character_maximum_length, is_nullable, column_default, is_identity"
    " FROM information_schema.columns WHERE table_name = %s",
}
INDEXES = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = %s AND sql IS NOT NULL",
    "postgresql": "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s::regclass",
}


def rows(query: str, *values: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchall()


def check_constraints(definitions: Iterable[str]) -> list[str]:
    """Return the check constraints of PostgreSQL's list, or of a CREATE TABLE statement of SQLite."""
    if connection.vendor == "postgresql":
        return sorted(definitions)
    (statement,) = definitions
    checks = re.findall(r'(?:CONSTRAINT "\w+" )?CHECK \(.*?\)(?=, CONSTRAINT|, "| DEFERRABLE|\)$)', statement)
    assert len(checks) == statement.count("CHECK"), statement
    return sorted(checks)


def without_generated_names(definition: str) -> str:
    """Replace the names of indexes that Django generated from an earlier name of their table."""
    return re.sub(r'(INDEX "?)\w+_(?:[0-9a-f]{8}(?:_like|_uniq)?|pkey|key)"? ON', r"\1... ON", definition)


def schema_of(table: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, table).values()
    ignored = UNUSED_COLUMNS | IDS_OF_AUTH
    columns = [column for column in rows(COLUMNS[connection.vendor], table) if (table, column[0]) not in ignored]
    return {
        "columns": sorted(columns, key=str),
        "constraints": sorted(str(sorted(constraint.items())) for constraint in constraints if not constraint["check"]),
        "checks": check_constraints(sql for (sql,) in rows(CHECKS[connection.vendor], table)),
        "indexes": sorted(without_generated_names(sql) for (sql,) in rows(INDEXES[connection.vendor], table)),
    }


def schema() -> dict[str, dict[str, Any]]:
    tables = set(connection.introspection.table_names()) - UNUSED_TABLES
    return {table: schema_of(table) for table in tables} | {
        "triggers": {"all": sorted(rows(TRIGGERS[connection.vendor]))},
        "words": {"all": sorted(SensitiveWord.objects.values_list("word", flat=True))},
        "migrations": {"all": sorted(rows("SELECT app, name FROM django_migrations"))},
        "filled": {"all": [table for table in sorted(tables) if rows(f'SELECT 1 FROM "{table}" LIMIT 1')]},
    }


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not apps.is_installed("kgharvest.contrib.recruiting"), reason="compares all apps")
def test_new_database_equals_migrated_database(shared_folder):
    upgraded_release(shared_folder).enter()
    migrated = schema()
    remove_tables()

    Command().create_tables(connection)

    new = schema()
    assert new.keys() == migrated.keys()
    differences = {
        (table, part): (new[table][part], expected)
        for table, parts in migrated.items()
        for part, expected in parts.items()
        if new[table][part] != expected
    }
    assert not differences
    call_command("migrate", "--check", verbosity=0)


@on_postgresql
def test_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout
