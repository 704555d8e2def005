"""Statements of a KG file in a temporary table on disk, so that memory does not grow with the file."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kgharvest.bulk.file_reading import opened, read_lines
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMATS, Statement, guess_format
from kgharvest.errors import BadEntry, Faults, ImportRefused

CACHE_KB = 8192
CACHED_LABELS = 20_000
MOST_RELATIONS = 100_000  # more relations indicate a wrong relation column
TABLES = """
CREATE TABLE statement
    (line INTEGER PRIMARY KEY, relation INTEGER, head TEXT, tail TEXT, score REAL, others TEXT);
CREATE TABLE label (id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID;
"""


class FileRelation(NamedTuple):
    """Relation of the file. others: names of further values of its statements, besides head and tail."""

    name: str
    n_statements: int
    others: tuple[str, ...]


class StagedKG:
    """Statements of a file. Leaving the context deletes the temporary table."""

    def __init__(self, path: Path, file_format: str = "auto", labels: Path | None = None):
        """Read the file. Raises ImportRefused with all errors, or NoSuchFile."""
        # "" opens a private temporary database on disk, which SQLite deletes when the connection closes.
        self._database = sqlite3.connect("", isolation_level=None)
        self.source = path.name
        self._names: dict[str, int] = {}
        with opened(path) as file:
            self.digest = hashlib.file_digest(file, "sha256").hexdigest()
        try:
            self._database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.executescript(TABLES)
            if labels:
                self._read_labels(labels)
            self.file_format = guess_format(read_lines(path)) if file_format == "auto" else file_format

            @lru_cache(CACHED_LABELS)
            def label_of(name: str, default: str) -> str:
                row = self._database.execute("SELECT text FROM label WHERE id = ?", [name]).fetchone()
                return row[0] if row else default

            self._read(path, label_of if labels else lambda name, default: default)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> StagedKG:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def _read_labels(self, path: Path) -> None:
        faults = Faults()

        def rows() -> Iterator[tuple[str, str]]:
            for number, line in enumerate(read_lines(path), start=1):
                name, tab, label = line.rstrip("\r\n").partition("\t")
                if not line.strip():
                    continue
                if not tab or not name or not label.strip():
                    faults.add(BadEntry(f"line {number}", "expected an id and a label, separated by a tab"))
                else:
                    yield name.removeprefix("<").removesuffix(">"), label.strip()

        self._fill("INSERT OR IGNORE INTO label VALUES (?, ?)", rows())
        faults.refuse(path.name)

    def _read(self, path: Path, label_of: Callable[[str, str], str]) -> None:
        faults = Faults()

        def rows() -> Iterator[tuple[object, ...]]:
            for statement in FORMATS[self.file_format](read_lines(path), label_of):
                if isinstance(statement, BadEntry):
                    faults.add(statement)
                else:
                    yield self._row(statement)

        self._fill("INSERT OR REPLACE INTO statement VALUES (?, ?, ?, ?, ?, ?)", rows())
        faults.refuse(self.source)
        self._database.execute("CREATE INDEX statement_relation ON statement (relation, line)")
        if not self._database.execute("SELECT 1 FROM statement LIMIT 1").fetchone():
            raise ImportRefused(self.source, [BadEntry("file", "has no statements")])

    def _row(self, statement: Statement) -> tuple[object, ...]:
        line, relation, head, tail, score, others = statement
        number = self._names.setdefault(relation, len(self._names))
        if number == MOST_RELATIONS:
            reason = f"more than {MOST_RELATIONS:,} relations; check the order of the columns"
            raise ImportRefused(self.source, [BadEntry(f"line {line}", reason)])
        return line, number, head, tail, score, json.dumps(others, ensure_ascii=False) if others else None

    def _fill(self, insert: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(insert, rows)
        self._database.execute("COMMIT")

    def relations(self) -> list[FileRelation]:
        """Return the relations of the file, most frequent first."""
        names = list(self._names)
        counts = self._database.execute("SELECT relation, count(*) FROM statement GROUP BY relation ORDER BY 2 DESC, 1")
        return [FileRelation(names[number], n, ()) for number, n in counts]

    def with_others(self, relation: FileRelation) -> FileRelation:
        """Return the relation with `others` set from its first statements."""
        names = dict.fromkeys(name for statement in self.statements(relation.name, 20) for name in statement.others)
        return relation._replace(others=tuple(name for name in names if name != "score"))

    def statements(self, relation: str, most: int = -1) -> Iterator[Statement]:
        """Yield up to `most` statements of a relation in file order. -1: no limit."""
        if relation not in self._names:
            return
        query = "SELECT line, head, tail, score, others FROM statement WHERE relation = ? ORDER BY line LIMIT ?"
        for line, head, tail, score, others in self._database.execute(query, [self._names[relation], most]):
            yield Statement(line, relation, head, tail, score, json.loads(others) if others else {})
