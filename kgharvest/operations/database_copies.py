"""Consistent copies of a whole database during concurrent writes, and atomic restores.

Uses SQLite's backup interface and PostgreSQL's `pg_dump` and `psql`.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.db import connection, transaction

from kgharvest.errors import DomainError

BUSY_S = 30  # maximum time that a restore waits for locks
# Tables that are filled during setup, or whose contents are expendable.
EXPENDABLE = {
    "auth_permission", "django_content_type", "django_migrations", "django_session", "kgharvest_attempts",
    "kgharvest_sensitiveword", "kgharvest_worker",
}  # fmt: skip

DROP_ALL = """
SET lock_timeout = '{busy_s}s';
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
        AND c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
    LOOP EXECUTE 'DROP TABLE IF EXISTS ' || name || ' CASCADE'; END LOOP;
    FOR name IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    LOOP EXECUTE 'DROP ROUTINE IF EXISTS ' || name || ' CASCADE'; END LOOP;
END $$;
"""
CHECK_ROWS = """
DO $$ BEGIN
    IF (SELECT count(*) FROM public."{table}") <> {n} THEN RAISE 'table {table} must have {n} rows'; END IF;
END $$;
"""


def copy_to(path: Path) -> dict[str, int]:
    """Write a snapshot of the database to `path`; return the number of rows of each table."""
    if connection.vendor == "postgresql":
        # `pg_dump` uses the snapshot of the transaction that counts the rows.
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            [snapshot] = cursor.fetchone()
            options = ["--format=plain", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={path}"]
            _run("pg_dump", *options)
            return _count_rows(cursor, connection.introspection.table_names(cursor))
    # Reads all pages in one transaction. WAL mode allows concurrent writes.
    with _opened(connection.settings_dict["NAME"]) as database, _opened(path) as copy:
        database.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # a single file without a WAL file
        return _count_rows(copy.cursor(), _sqlite_tables(copy))


def restore_from(path: Path, rows: dict[str, int]) -> None:
    """Replace the database by the copy at `path`, in one transaction.

    rows: expected number of rows by table. Raises CopyFailed and then leaves the database unchanged.
    """
    if connection.vendor == "sqlite":
        _restore_sqlite(path, rows)
    else:
        _restore_postgresql(path, rows)


def is_empty() -> bool:
    """Return whether replacing the database would lose no data."""
    tables = set(connection.introspection.table_names()) - EXPENDABLE
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {connection.ops.quote_name(table)})")  # noqa: S608
            if cursor.fetchone()[0]:
                return False
    return True


def _count_rows(cursor, tables: list[str]) -> dict[str, int]:
    counts = {}
    for table in sorted(tables):
        cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608 - names of tables
        counts[table] = cursor.fetchone()[0]
    return counts


@contextmanager
def _opened(path: Path | str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=BUSY_S)) as database:
        yield database


def _sqlite_tables(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [name for (name,) in rows]


def _restore_sqlite(path: Path, rows: dict[str, int]) -> None:
    with _opened(path) as copy:
        [(verdict,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok" or _count_rows(copy.cursor(), _sqlite_tables(copy)) != rows:
            raise DomainError("CopyFailed", f"The database in the backup is damaged ({verdict}). Use another backup.")
        connection.close()
        with _opened(connection.settings_dict["NAME"]) as database:
            try:
                copy.backup(database)
            except sqlite3.OperationalError as error:
                raise DomainError(
                    "CopyFailed",
                    f"The database is in use ({error}). Stop the web server and the workers, then restore again.",
                ) from error
            database.execute("PRAGMA journal_mode = WAL")


def _restore_postgresql(path: Path, rows: dict[str, int]) -> None:
    before, after = path.with_suffix(".before"), path.with_suffix(".after")
    before.write_text(DROP_ALL.format(busy_s=BUSY_S))
    after.write_text("".join(CHECK_ROWS.format(table=table, n=n) for table, n in rows.items()))
    connection.close()
    files = [f"--file={file}" for file in (before, path, after)]
    _run("psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", *files)


def _run(program: str, *options: str) -> None:
    """Run a PostgreSQL client program on the database. Raises CopyFailed."""
    if not shutil.which(program):
        raise DomainError(
            "CopyFailed", f"{program} is not installed. Install PostgreSQL's client (postgresql-client on Debian)."
        )
    database = connection.settings_dict
    address = {"--host": database["HOST"], "--port": database["PORT"], "--username": database["USER"]}
    command = [program, *(f"{option}={value}" for option, value in address.items() if value)]
    ssl = {f"PG{name.upper()}": str(value) for name, value in database["OPTIONS"].items() if name.startswith("ssl")}
    completed = subprocess.run(  # noqa: S603
        [*command, "--no-password", f"--dbname={database['NAME']}", *options],
        env=os.environ | ssl | {"PGPASSWORD": database["PASSWORD"]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if completed.returncode:
        errors = (line.strip() for line in completed.stderr.splitlines() if "ERROR" in line or "error" in line)
        reason = next(errors, "no error message")
        raise DomainError("CopyFailed", f"{program} failed. The database is unchanged. Error: {reason}")
