"""Domain errors raised by services, and messages for disk and database failures.

The Python API imports this module without Django, so functions about databases import Django themselves.
"""

import errno
from collections.abc import Sequence
from typing import NamedTuple

CONNECTION_IS_LOST = ("08", "57P")  # SQLSTATE classes of PostgreSQL for connection errors and server shutdown
TOO_MANY_CONNECTIONS = "53300"
DATABASE_DISK_IS_FULL = "53100"
FILE_IS_BUSY = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_IOERR")
DISK_IS_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DomainError(Exception):
    """Violation of a domain rule: `DomainError(code, message)`.

    The message states the problem, its location, and a fix.

    Pages show `on_page` or the message. The API answers 409 with the code and the message. Commands print the message
    and exit with status 1. Codes are part of the API. A subclass exists only if a caller catches it by name. The code
    of a subclass is its class name, and its constructor takes only the message.
    """

    def __init__(self, *args: object, on_page: str = ""):
        super().__init__(*args)
        self.on_page = on_page
        if type(self) is DomainError:
            code, self._message = args
            self.code = str(code)
        else:
            self.code = type(self).__name__

    def __str__(self) -> str:
        return str(self._message) if type(self) is DomainError else super().__str__()


class NotFound(DomainError):
    """An object, such as a relation, job, or round, does not exist."""


class BadEntry(NamedTuple):
    """An error in an imported file. where: "line 3", "line 3, column 5", "relation 'helps'"."""

    where: str
    reason: str


class ImportRefused(DomainError):
    """An import file has errors; nothing was stored.

    entries: the first SHOWN errors, with reasons of at most LONGEST_REASON characters. n_entries: total number of
    errors.
    """

    SHOWN = 20
    LONGEST_REASON = 500

    def __init__(self, source: str, entries: Sequence[BadEntry], n_entries: int | None = None):
        self.source = source
        n = self.LONGEST_REASON
        shown = [[text if len(text) <= n else f"{text[:n]}…" for text in entry] for entry in entries[: self.SHOWN]]
        self.entries = [BadEntry(*texts) for texts in shown]
        self.n_entries = n_entries or len(entries)
        super().__init__(source, self.entries)

    def __str__(self) -> str:
        """Return one sentence for one error, or one line per error."""
        lines = [f"{entry.where}: {entry.reason}" for entry in self.entries]
        if self.n_entries == 1:
            return f"{self.source}: rejected because of an error in {lines[0]}."
        left = self.n_entries - len(lines)
        more = [f"and {left:,} more"] if left > 0 else []
        head = f"{self.source}: rejected because of {self.n_entries:,} errors:"
        return "\n  ".join([head, *lines, *more])


class Faults:
    """Errors collected while a file is read. n: number of errors. Only the first SHOWN errors are stored."""

    def __init__(self) -> None:
        self.n = 0
        self._first: list[BadEntry] = []

    def add(self, entry: BadEntry) -> None:
        self.n += 1
        if self.n <= ImportRefused.SHOWN:
            self._first.append(entry)

    def refuse(self, source: str) -> None:
        """Raise ImportRefused if there are errors."""
        if self.n:
            raise ImportRefused(source, self._first, self.n)


def fault_of_machine(error: BaseException) -> str | None:
    """Return a sentence about a disk, file, or database failure, or None for all other errors (bugs)."""
    from django.db import DatabaseError, InternalError, OperationalError

    from kgharvest.environment import PROGRAM

    if isinstance(error, OSError) and error.errno:
        file = f" ({error.filename})" if error.filename else ""
        if error.errno in DISK_IS_FULL:
            return f"The disk is full{file}. Free disk space and try again."
        return f"{error.strerror}{file}. Check that it exists and that you have permission."
    # Other subclasses of DatabaseError indicate bugs.
    if type(error) in (OperationalError, InternalError, DatabaseError):
        reason = str(error).strip().partition("\n")[0]
        return f"Database error: {reason}. Run {PROGRAM} doctor to find the cause."
    return None


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection to PostgreSQL failed or was lost."""
    state = getattr(error.__cause__, "sqlstate", "")  # None if the server did not respond
    return state is None or state.startswith(CONNECTION_IS_LOST)


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether the disk of a file or of the database is full."""
    from django.db import OperationalError

    if isinstance(error, OperationalError):
        cause = error.__cause__
        is_sqlite_full = getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL"
        return is_sqlite_full or getattr(cause, "sqlstate", "") == DATABASE_DISK_IS_FULL
    return isinstance(error, OSError) and error.errno in DISK_IS_FULL


def is_database_away(error: BaseException | None) -> bool:
    """Return whether the database is temporarily unavailable, so that a retry can succeed."""
    from django.db import InterfaceError, OperationalError

    if not isinstance(error, OperationalError | InterfaceError):
        return False
    is_full = getattr(error.__cause__, "sqlstate", "") == TOO_MANY_CONNECTIONS
    is_busy = getattr(error.__cause__, "sqlite_errorname", "").startswith(FILE_IS_BUSY)
    return is_connection_lost(error) or is_full or is_busy or isinstance(error, InterfaceError)
