"""How services refuse: one sentence for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DomainError(Exception):
    """A rule of the domain says no. `str(error)` is one sentence: what is wrong, where, what to do.

    Pages show it as a message, the API as 409 with `code`, commands print it and exit with status 1. Subclasses stand
    beside the function that raises them.
    """

    @property
    def code(self) -> str:
        return type(self).__name__


class NotFound(DomainError):
    """A relation, job, round, ... that somebody named and that does not exist."""


class BadEntry(NamedTuple):
    """One thing wrong in an imported file. `where`: "line 3", "line 3, column 5", "relation 'helps'"."""

    where: str
    reason: str


class ImportRefused(DomainError):
    """A file with bad entries. All of them are in `entries`; nothing of the file was stored."""

    SHOWN = 50

    def __init__(self, source: str, entries: Sequence[BadEntry]):
        self.source = source
        self.entries = list(entries)
        super().__init__(source, self.entries)

    @property
    def shown(self) -> list[BadEntry]:
        return self.entries[: self.SHOWN]

    def __str__(self) -> str:
        shown = "; ".join(f"{entry.where}: {entry.reason}" for entry in self.shown)
        left = len(self.entries) - self.SHOWN
        more = f"; and {left} more ({len(self.entries)} in all)" if left > 0 else ""
        return f"{self.source}: nothing was imported because of {shown}{more}."
