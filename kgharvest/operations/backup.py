"""Backup of the installation in one ZIP file: the database, the secret key, and manifest.json.

The manifest contains the kgharvest version, the kind of database, the applied migrations, the number of rows of each
table, and the SHA-256 of each file. LMs, replication packages, logs, and the broker's files are not included.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from kgharvest import VERSION
from kgharvest.environment import create_data_folder, restoring_key
from kgharvest.errors import DomainError
from kgharvest.events.chain import seal_all
from kgharvest.optional_apps import uninstalled_apps

FORMAT = 1
MANIFEST, DATABASE, SECRET_KEY = "manifest.json", "database", "secret_key"
CHUNK = 1 << 20  # number of bytes that are read at a time


@dataclass(frozen=True)
class Manifest:
    """Manifest of a backup. rows: number of rows by table. files: hexadecimal SHA-256 by name of the file.

    migrations: applied migrations as [app, name].
    """

    format: int
    version: str
    made_at: str
    database: str
    migrations: list[list[str]]
    rows: dict[str, int]
    files: dict[str, str]

    @property
    def n_rows(self) -> int:
        return sum(self.rows.values())

    @property
    def uninstalled_apps(self) -> list[str]:
        """Apps that are not installed but have tables in the backup. Their tables are restored, too."""
        return uninstalled_apps(self.migrations)


def back_up(path: Path) -> Manifest:
    """Write a backup to a file at `path` that only its owner can read. Annotators can continue judging meanwhile.

    The backup includes all data that was acknowledged before the call. Raises BackupRefused if the file exists.
    """
    exists = _refused(f"The file {path} already exists. Use a new file name.")
    if path.exists():
        raise exists
    seal_all()
    str(settings.SECRET_KEY)  # a generated key is created on first use
    with _private_folder(path.parent) as folder:
        rows = copy_to(folder / DATABASE)
        files = {DATABASE: folder / DATABASE}
        if (key := settings.DATA_DIR / "secret_key").exists():
            files[SECRET_KEY] = key
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            made_at=timezone.now().isoformat(timespec="seconds"),
            database=connection.vendor,
            migrations=sorted(list(applied) for applied in MigrationLoader(connection).applied_migrations),
            rows=rows,
            files={name: _sha256(file) for name, file in files.items()},
        )
        draft = folder / "backup"
        with zipfile.ZipFile(draft, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1))
            for name, file in files.items():
                archive.write(file, name)
        draft.chmod(0o600)
        _flush(draft)
        try:
            os.link(draft, path)  # unlike a rename, a link never replaces a file that was created meanwhile
        except FileExistsError:
            raise exists from None
    return manifest


def restore(path: Path, replace: bool = False) -> Manifest:
    """Replace the contents of this installation with the backup at `path`, completely or not at all.

    replace: required if the installation is not empty. Raises BackupRefused or CopyFailed.
    """
    try:
        with zipfile.ZipFile(path) as archive, _private_folder(create_data_folder(settings.DATA_DIR)) as folder:
            manifest = _read_manifest(archive, path)
            if not replace and not is_empty():
                raise _refused(
                    "This installation is not empty, and all its data would be lost. Back it up, then add --replace."
                )
            for name, sha256 in manifest.files.items():
                with archive.open(name) as source, (folder / name).open("xb") as file:
                    shutil.copyfileobj(source, file, CHUNK)
                if _sha256(folder / name) != sha256:
                    raise _damaged(path, f"wrong checksum of {name}")
            with _restored_key(folder / SECRET_KEY if SECRET_KEY in manifest.files else None):
                restore_from(folder / DATABASE, manifest.rows)
    except (zipfile.BadZipFile, EOFError, zlib.error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    return manifest


@contextmanager
def _restored_key(key: Path | None) -> Iterator[None]:
    """Install the key of a backup after its database.

    If a restore is killed, the pending key remains. While it exists, kgharvest.environment.generated_secret_key
    prevents all processes from starting, because database and key may not match. The next completed restore removes the
    pending key.
    """
    installed_key = settings.DATA_DIR / "secret_key"
    pending_key = restoring_key(installed_key)
    was_interrupted = pending_key.exists()
    if key:
        key.chmod(0o600)
        _flush(key)
        os.replace(key, pending_key)
    try:
        yield
    except BaseException:
        if not was_interrupted:
            pending_key.unlink(missing_ok=True)
        raise
    if key:
        os.replace(pending_key, installed_key)
    pending_key.unlink(missing_ok=True)  # a pending key that a killed restore has left


def _read_manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    """Read the manifest and check the backup.

    Raises BackupRefused if the backup is damaged or does not fit this installation.
    """
    content = json.loads(archive.read(MANIFEST))
    if content["format"] != FORMAT:
        raise _refused(
            f"{path} was written by a newer kgharvest ({content.get('version')}). Update this installation first."
        )
    if not {DATABASE} <= set(content["files"]) <= {DATABASE, SECRET_KEY}:
        raise _damaged(path, "unexpected files")
    if not all(re.fullmatch(r"\w+", table) and isinstance(n, int) for table, n in content["rows"].items()):
        raise _damaged(path, "invalid numbers of rows")
    manifest = Manifest(**content)
    disk_migrations = set(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)
    newer = [
        f"{app}.{name}"
        for app, name in manifest.migrations
        if (app, name) not in disk_migrations and app not in manifest.uninstalled_apps
    ]
    if newer:
        raise _refused(
            f"{path} was written by a newer kgharvest ({manifest.version}, with {newer[-1]}). Update this installation "
            "first."
        )
    if manifest.database != connection.vendor:
        raise _refused(
            f"{path} was backed up from {manifest.database}, but this installation uses {connection.vendor}. Set "
            "DATABASE_URL to a database of the same kind."
        )
    return manifest


def _damaged(path: Path, reason: str) -> DomainError:
    return _refused(f"{path} is damaged or not a backup ({reason}). Nothing was changed. Use another backup.")


def _refused(message: str) -> DomainError:
    return DomainError("BackupRefused", message)


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder on the disk of `parent` that only its owner can read."""
    with tempfile.TemporaryDirectory(prefix=".kgharvest-", dir=parent) as folder:
        yield Path(folder)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _flush(file: Path) -> None:
    """Flush the file from the operating system's cache to the disk."""
    with file.open("rb") as content:
        os.fsync(content.fileno())


# Copying and restoring of whole databases, with SQLite's backup interface, and with PostgreSQL's `pg_dump` and `psql`.
# A copy is consistent even during concurrent writes, and a restore is atomic.

BUSY_S = 30  # maximum time in seconds for which a restore waits for locks
# Tables that are filled during setup, or whose contents can be lost.
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
    """Write a snapshot of the database to `path`. Return the number of rows of each table."""
    if connection.vendor == "postgresql":
        # `pg_dump` uses the snapshot of the transaction that counts the rows.
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            [snapshot] = cursor.fetchone()
            options = ["--format=plain", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={path}"]
            _run("pg_dump", *options)
            return _count_rows(cursor, connection.introspection.table_names(cursor))
    # SQLite reads all pages in one transaction. WAL mode allows concurrent writes.
    with _opened(connection.settings_dict["NAME"]) as database, _opened(path) as copy:
        database.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # makes the copy a single file, without a WAL file
        return _count_sqlite_rows(copy)


def restore_from(path: Path, rows: dict[str, int]) -> None:
    """Replace the database with the copy at `path`, in one transaction.

    rows: expected number of rows by table. If it raises CopyFailed, the database is unchanged.
    """
    if connection.vendor == "sqlite":
        _restore_sqlite(path, rows)
        return
    before, after = path.with_suffix(".before"), path.with_suffix(".after")
    before.write_text(DROP_ALL.format(busy_s=BUSY_S))
    after.write_text("".join(CHECK_ROWS.format(table=table, n=n) for table, n in rows.items()))
    connection.close()
    files = [f"--file={file}" for file in (before, path, after)]
    _run("psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", *files)


def is_empty() -> bool:
    """Return whether the database contains no data that would be lost if it was replaced."""
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


def _count_sqlite_rows(database: sqlite3.Connection) -> dict[str, int]:
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return _count_rows(database.cursor(), [name for (name,) in tables])


def _opened(path: Path | str) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, timeout=BUSY_S))


def _restore_sqlite(path: Path, rows: dict[str, int]) -> None:
    with _opened(path) as copy:
        [(verdict,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok" or _count_sqlite_rows(copy) != rows:
            raise _failed(f"The database in the backup is damaged ({verdict}). Use another backup.")
        connection.close()
        with _opened(connection.settings_dict["NAME"]) as database:
            try:
                copy.backup(database)
            except sqlite3.OperationalError as error:
                advice = "Stop the web server and the workers, then restore again."
                raise _failed(f"The database is in use ({error}). {advice}") from error
            database.execute("PRAGMA journal_mode = WAL")


def _failed(message: str) -> DomainError:
    return DomainError("CopyFailed", message)


def _run(program: str, *options: str) -> None:
    """Run a PostgreSQL client program on the database. Raises CopyFailed."""
    if not shutil.which(program):
        raise _failed(f"{program} is not installed. Install PostgreSQL's client (postgresql-client on Debian).")
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
        raise _failed(f"{program} failed. The database is unchanged. Error: {reason}")
