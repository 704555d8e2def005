"""Backup of the installation in one ZIP file: the database, the secret key, and manifest.json.

The manifest contains the kgharvest version, the kind of database, the applied migrations, the number of rows of each
table, and the SHA-256 of each file. LMs, replication packages, logs and the broker's files are not included.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from kgharvest import VERSION
from kgharvest.environment import restoring_key
from kgharvest.errors import DomainError
from kgharvest.events.chain import seal_all
from kgharvest.operations import database_copies
from kgharvest.optional_apps import uninstalled_apps

FORMAT = 1
MANIFEST, DATABASE, SECRET_KEY = "manifest.json", "database", "secret_key"
CHUNK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Manifest:
    """rows: number by table. files: hexadecimal SHA-256 by name. migrations: [app, name] of applied migrations."""

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
        """Apps with tables in the backup that are not installed. Their tables are restored, too."""
        return uninstalled_apps(self.migrations)


def back_up(path: Path) -> Manifest:
    """Write a backup to `path`, readable by its owner only. Annotators can continue judging meanwhile.

    The backup includes everything acknowledged before the call. Raises BackupRefused if the file exists.
    """
    exists = DomainError("BackupRefused", f"The file {path} already exists. Use a new file name.")
    if path.exists():
        raise exists
    seal_all()
    with _private_folder(path.parent) as folder:
        rows = database_copies.copy_to(folder / DATABASE)
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
            os.link(draft, path)  # unlike a rename, never replaces a file created meanwhile
        except FileExistsError:
            raise exists from None
    return manifest


def restore(path: Path, replace: bool = False) -> Manifest:
    """Replace the contents of this installation by the backup at `path`, completely or not at all.

    replace: required if the installation is not empty. Raises BackupRefused, CopyFailed.
    """
    try:
        with zipfile.ZipFile(path) as archive, _private_folder(settings.DATA_DIR) as folder:
            manifest = _read_manifest(archive, path)
            if not replace and not database_copies.is_empty():
                raise DomainError(
                    "BackupRefused",
                    "This installation is not empty, and all its data would be lost. Back it up, then add --replace.",
                )
            for name, sha256 in manifest.files.items():
                with archive.open(name) as source, (folder / name).open("xb") as file:
                    shutil.copyfileobj(source, file, CHUNK)
                if _sha256(folder / name) != sha256:
                    raise _damaged(path, f"wrong checksum of {name}")
            with _restored_key(folder / SECRET_KEY if SECRET_KEY in manifest.files else None):
                database_copies.restore_from(folder / DATABASE, manifest.rows)
    except (zipfile.BadZipFile, EOFError, zlib.error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    return manifest


@contextmanager
def _restored_key(key: Path | None) -> Iterator[None]:
    """Install the key of a backup after its database.

    A killed restore leaves the pending key. While it exists, nothing starts with a mismatched database and key
    (kgharvest.environment.generated_secret_key). The next completed restore removes it.
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
    pending_key.unlink(missing_ok=True)  # left by a killed restore


def _read_manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    """Raises BackupRefused if the backup is damaged or does not fit this installation."""
    content = json.loads(archive.read(MANIFEST))
    if content["format"] != FORMAT:
        raise DomainError(
            "BackupRefused",
            f"{path} was written by a newer kgharvest ({content.get('version')}). Update this installation first.",
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
        raise DomainError(
            "BackupRefused",
            f"{path} was written by a newer kgharvest ({manifest.version}, with {newer[-1]}). Update this installation "
            "first.",
        )
    if manifest.database != connection.vendor:
        raise DomainError(
            "BackupRefused",
            f"{path} was backed up from {manifest.database}, but this installation uses {connection.vendor}. Set "
            "DATABASE_URL to a database of the same kind.",
        )
    return manifest


def _damaged(path: Path, reason: str) -> DomainError:
    return DomainError(
        "BackupRefused", f"{path} is damaged or not a backup ({reason}). Nothing was changed. Use another backup."
    )


@contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder on the disk of `parent`, readable by its owner only."""
    with tempfile.TemporaryDirectory(prefix=".kgharvest-", dir=parent) as folder:
        yield Path(folder)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _flush(file: Path) -> None:
    """Write the file from the operating system's cache to disk."""
    with file.open("rb") as content:
        os.fsync(content.fileno())
