"""Files that web servers and workers share, in the data folder or in an S3-compatible store (`KGHARVEST_FILES`).

Both kinds of storage write files atomically and overwrite existing files. They raise FileNotFoundError or
FilesUnavailable.
"""

import os
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from django.conf import settings
from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage, storages

from kgharvest.bulk.file_writing import write_atomically
from kgharvest.engine.types import OnProgress, Progress
from kgharvest.environment import PROGRAM
from kgharvest.errors import DomainError

ALIAS = "files"
LONGEST_WAIT_S = 300  # maximum time for which a job waits for an unresponsive file store
RETRY_EVERY_S = 5
AWAY = "The file store does not respond, so files cannot be stored or read. Try again in a few minutes."
REFUSED = (
    f"The file store rejects this server's requests. The operator can find the reason with {PROGRAM} doctor. "
    "Then try again."
)


class FilesUnavailable(DomainError):
    """The file store failed. is_passing: True if it did not respond, so that a retry may succeed.

    reason: reason for operators only, because it contains hosts and buckets.
    """

    def __init__(self, reason: str, is_passing: bool):
        super().__init__(AWAY if is_passing else REFUSED)
        self.reason = reason
        self.is_passing = is_passing


class DataFolder(FileSystemStorage):
    """Files in a local folder or in a folder shared by all machines."""

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
                "NotWritable", f"Cannot create {path.parent} ({error.strerror}). Check the data folder."
            ) from error
        write_atomically(path, content.chunks())
        return name

    def check(self) -> None:
        """Raise FilesUnavailable if the folder is not writable."""
        if not os.access(self.location, os.W_OK):
            raise FilesUnavailable(f"{self.location} is not writable; check KGHARVEST_DATA_DIR", is_passing=False)


def kept_files() -> Storage:
    """Return the storage of this process, shared by its threads."""
    return storages[ALIAS]


def new_connection() -> Storage:
    """Return a new storage for a process that forks, because its child processes must not inherit open connections."""
    return storages.create_storage(settings.STORAGES[ALIAS])


def keep(name: str, file: IO[bytes], on_progress: OnProgress) -> None:
    """Store the result file of a job. Retries for LONGEST_WAIT_S while the store is unresponsive.

    Raises FilesUnavailable, NotWritable, and the exceptions of `on_progress`.
    """
    give_up = monotonic() + LONGEST_WAIT_S
    while True:
        on_progress(Progress("storing the file", 0))
        try:
            kept_files().save(name, File(file))
            return
        except FilesUnavailable as error:
            if not error.is_passing or monotonic() > give_up:
                raise
        on_progress(Progress("waiting for the file store", 0))
        sleep(RETRY_EVERY_S)
