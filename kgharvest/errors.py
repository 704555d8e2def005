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
    """A file with bad entries, nothing of which was stored.

    entries: all of them, or of a long file at least the first SHOWN; then n_entries says how many there are.
    """

    SHOWN = 50

    def __init__(self, source: str, entries: Sequence[BadEntry], n_entries: int | None = None):
        self.source = source
        self.entries = list(entries)
        self.n_entries = n_entries or len(self.entries)
        super().__init__(source, self.entries)

    @property
    def shown(self) -> list[BadEntry]:
        return self.entries[: self.SHOWN]

    def __str__(self) -> str:
        shown = "; ".join(f"{entry.where}: {entry.reason}" for entry in self.shown)
        left = self.n_entries - self.SHOWN
        more = f"; and {left} more ({self.n_entries} in all)" if left > 0 else ""
        return f"{self.source}: nothing of it was used because of {shown}{more}."
