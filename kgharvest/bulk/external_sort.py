"""Put the tuples of a file in order before they are stored, in memory that does not grow with the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.knowledge.tuple_store import TupleRow

CACHE_KB = 4096  # the cache of the table, and once more of its sorting: an import needs no more, however long its file
STAGE = """
INSERT INTO staged (key, surface, score, mtl, place) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET surface = excluded.surface, score = excluded.score, mtl = excluded.mtl, place = excluded.place
WHERE excluded.score > staged.score
"""


class StagedTuples:
    """Tuples by score, each once: of equal ones the better stays, equal scores keep their order."""

    def __init__(self):
        # "" is SQLite's name for a database of this connection's own, on disk, which goes when it is closed.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE staged (key TEXT UNIQUE, surface TEXT, score REAL, mtl REAL, place INTEGER)"
        )

    def __enter__(self) -> StagedTuples:
        return self

    def __exit__(self, *_) -> None:
        self._database.close()

    def add(self, rows: Iterable[TupleRow]) -> int:
        """Take in the rows of a file; return how many they were."""
        place = 0

        def staged() -> Iterator[tuple]:
            nonlocal place
            for place, row in enumerate(rows, start=1):
                yield *map(KEY_SEPARATOR.join, row[:2]), row.score, row.mtl, place

        self._database.execute("BEGIN")
        self._database.executemany(STAGE, staged())
        self._database.execute("COMMIT")
        return place

    def __len__(self) -> int:
        return self._database.execute("SELECT count(*) FROM staged").fetchone()[0]

    def __iter__(self) -> Iterator[TupleRow]:
        rows = self._database.execute("SELECT key, surface, score, mtl FROM staged ORDER BY score DESC, place")
        for key, surface, score, mtl in rows:
            yield TupleRow(tuple(key.split(KEY_SEPARATOR)), tuple(surface.split(KEY_SEPARATOR)), score, mtl)
