"""External sort: the tuples of a file, best first, in memory that does not grow with the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.knowledge.tuple_store import TupleRow

CACHE_KB = 4096  # the cache of the table, and once more of its sorting: an import needs no more, however long its file
INSERT = """
INSERT INTO tuple_row (key, surface, score, mtl, line) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET surface = excluded.surface, score = excluded.score, mtl = excluded.mtl, line = excluded.line
WHERE excluded.score > tuple_row.score
"""


class ExternalSort:
    """Tuples by score, each once: of equal ones the better stays, equal scores keep their order."""

    def __init__(self) -> None:
        # "" is SQLite's name for a database of this connection's own, on disk, which goes when it is closed.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE tuple_row (key TEXT UNIQUE, surface TEXT, score REAL, mtl REAL, line INTEGER)"
        )

    def __enter__(self) -> ExternalSort:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[TupleRow]) -> int:
        """Take in the rows of a file; return how many they were."""
        n_rows = 0

        def parameters() -> Iterator[tuple[str | float | None, ...]]:
            nonlocal n_rows
            for n_rows, row in enumerate(rows, start=1):
                yield KEY_SEPARATOR.join(row.entities), KEY_SEPARATOR.join(row.surface), row.score, row.mtl, n_rows

        self._database.execute("BEGIN")
        self._database.executemany(INSERT, parameters())
        self._database.execute("COMMIT")
        return n_rows

    def __len__(self) -> int:
        n_rows: int = self._database.execute("SELECT count(*) FROM tuple_row").fetchone()[0]
        return n_rows

    def __iter__(self) -> Iterator[TupleRow]:
        rows = self._database.execute("SELECT key, surface, score, mtl FROM tuple_row ORDER BY score DESC, line")
        for key, surface, score, mtl in rows:
            yield TupleRow(tuple(key.split(KEY_SEPARATOR)), tuple(surface.split(KEY_SEPARATOR)), score, mtl)
