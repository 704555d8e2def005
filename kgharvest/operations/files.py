"""Files that web servers and workers share: in the data folder, or in an S3-compatible store (`KGHARVEST_FILES`).

Both kinds of storage write a file whole or not at all, in the place of one of the same name, and say FileNotFoundError
or FilesUnavailable where they fail.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from django.conf import settings
from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage, storages

from kgharvest.bulk.file_writing import write_atomically
from kgharvest.engine.types import OnProgress, Progress
from kgharvest.errors import DomainError

ALIAS = "files"
LONGEST_WAIT_S = 300  # of a job for a store that does not answer
ASKED_EVERY_S = 5
AWAY = "The store of files does not answer, so no file can be kept or fetched now; try again in a few minutes."
REFUSED = (
    "The store of files does not take this server's requests; whoever runs the server learns why from "
    "python manage.py doctor, then try again."
)


class FilesUnavailable(DomainError):
    """The store of files does not do what it is asked. is_passing: it gave no answer, and may soon.

    `reason` is for the operator alone, as it names hosts and buckets.
    """

    def __init__(self, reason: str, is_passing: bool):
        super().__init__(AWAY if is_passing else REFUSED)
        self.reason = reason
        self.is_passing = is_passing


class DataFolder(FileSystemStorage):
    """Files below a folder of this machine, or of all machines."""

    def __init__(self, location: Path):
        super().__init__(location, allow_overwrite=True)

    @property
    def place(self) -> str:
        return str(self.location)

    def _save(self, name: str, content: File) -> str:
        path = Path(self.path(name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DomainError(
                "NotWritable", f"{path.parent} cannot be made ({error.strerror}); check the data folder."
            ) from error
        write_atomically(path, content.chunks())
        return name

    def check(self) -> None:
        """Raise FilesUnavailable if nothing can be kept."""
        if not os.access(self.location, os.W_OK):
            raise FilesUnavailable(f"{self.location} cannot be written; check KGHARVEST_DATA_DIR", is_passing=False)


def kept_files() -> Storage:
    """Return the storage of this process, which its threads share."""
    return storages[ALIAS]


def new_connection() -> Storage:
    """Return a storage of its own for a process that forks: its children must not inherit what is open."""
    return storages.create_storage(settings.STORAGES[ALIAS])


def keep(name: str, file: IO[bytes], on_progress: OnProgress) -> None:
    """Keep what is in `file`, a job's result; wait for a store that is away.

    Raises FilesUnavailable if it stays away or refuses, NotWritable, and what `on_progress` does.
    """
    give_up = monotonic() + LONGEST_WAIT_S
    while True:
        on_progress(Progress("keeping the file", 0))
        try:
            kept_files().save(name, File(file))
            return
        except FilesUnavailable as error:
            if not error.is_passing or monotonic() > give_up:
                raise
        on_progress(Progress("waiting for the store of files", 0))
        sleep(ASKED_EVERY_S)
