"""A backup of the installation in one file: the database, the secret key, and a manifest of what is in it.

The file is a ZIP archive. manifest.json says which version made it of what, the migrations that its database has, the
rows of each table, and the SHA-256 of each file. LMs, paper packs, logs and the broker's files are not in it.
"""

from __future__ import annotations

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
PIECE = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Manifest:
    """rows: by table. files: SHA-256 of each, in hexadecimal digits. migrations: [app, name] of those applied."""

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
        """Apps that have tables in the backup but are not installed. Their tables are restored like others."""
        return uninstalled_apps(self.migrations)


def back_up(path: Path) -> Manifest:
    """Write a backup to `path`, readable by its owner alone. People may go on judging meanwhile.

    Whatever was acknowledged before this is called is in it. Raises BackupRefused if there is a file already.
    """
    if path.exists():
        raise DomainError("BackupRefused", f"{path} is there already; name a new file.")
    seal_all()
    with _workplace(path.parent) as folder:
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
            os.link(draft, path)  # unlike a rename it replaces nothing that somebody made meanwhile
        except FileExistsError:
            raise DomainError("BackupRefused", f"{path} is there already; name a new file.") from None
    return manifest


def restore(path: Path, replace: bool = False) -> Manifest:
    """Put what the backup at `path` has in the place of what this installation has; all of it or nothing.

    replace: also where there is something already. Raises BackupRefused, CopyFailed.
    """
    try:
        with zipfile.ZipFile(path) as archive, _workplace(settings.DATA_DIR) as folder:
            manifest = _manifest(archive, path)
            _check_fits(manifest, path)
            if not replace and not database_copies.is_empty():
                raise DomainError(
                    "BackupRefused",
                    "This installation is not empty, and all it has would be lost; back it up, then add --replace.",
                )
            for name, sha256 in manifest.files.items():
                with archive.open(name) as source, (folder / name).open("xb") as file:
                    shutil.copyfileobj(source, file, PIECE)
                if _sha256(folder / name) != sha256:
                    raise _damaged(path, f"{name} is not what was written")
            with _key_put_in_place(folder / SECRET_KEY if SECRET_KEY in manifest.files else None):
                database_copies.restore_from(folder / DATABASE, manifest.rows)
    except (zipfile.BadZipFile, EOFError, zlib.error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    return manifest


@contextmanager
def _key_put_in_place(key: Path | None) -> Iterator[None]:
    """Put the key of a backup in place after its database. Who is killed between leaves a file, by which nothing
    starts with a database and a key that do not belong together (kgharvest.environment.generated_secret_key). It stays
    until a restore has come to its end.
    """
    place = settings.DATA_DIR / "secret_key"
    waiting = restoring_key(place)
    was_interrupted = waiting.exists()
    if key:
        key.chmod(0o600)
        _flush(key)
        os.replace(key, waiting)
    try:
        yield
    except BaseException:
        if not was_interrupted:
            waiting.unlink(missing_ok=True)
        raise
    if key:
        os.replace(waiting, place)
    waiting.unlink(missing_ok=True)  # of a restore that was killed


def _manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    content = json.loads(archive.read(MANIFEST))
    if content["format"] != FORMAT:
        raise DomainError(
            "BackupRefused", f"{path} was made by a newer kgharvest ({content.get('version')}); update this one first."
        )
    if not {DATABASE} <= set(content["files"]) <= {DATABASE, SECRET_KEY}:
        raise _damaged(path, "its files are not those of a backup")
    if not all(re.fullmatch(r"\w+", table) and isinstance(n, int) for table, n in content["rows"].items()):
        raise _damaged(path, "its numbers of rows are none")
    return Manifest(**content)


def _check_fits(manifest: Manifest, path: Path) -> None:
    known = set(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)
    newer = [
        f"{app}.{name}"
        for app, name in manifest.migrations
        if (app, name) not in known and app not in manifest.uninstalled_apps
    ]
    if newer:
        raise DomainError(
            "BackupRefused",
            f"{path} was made by a newer kgharvest ({manifest.version}, with {newer[-1]}); update this one first.",
        )
    if manifest.database != connection.vendor:
        raise DomainError(
            "BackupRefused",
            f"{path} is of {manifest.database} and this installation uses {connection.vendor}; set DATABASE_URL "
            "to a database of the same kind.",
        )


def _damaged(path: Path, how: str) -> DomainError:
    return DomainError(
        "BackupRefused", f"{path} is damaged or no backup ({how}); nothing was changed. Use another backup."
    )


@contextmanager
def _workplace(parent: Path) -> Iterator[Path]:
    """A folder on the disk of `parent`, readable by its owner alone, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=".kgharvest-", dir=parent) as folder:
        yield Path(folder)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _flush(file: Path) -> None:
    """Have the disk hold the file before anybody relies on it."""
    with file.open("rb") as content:
        os.fsync(content.fileno())
