"""Tuple files: external sorting, and streaming readers for exported JSONL and CSV and for BertNet's ent_tuples.json."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from math import isfinite, log
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import Line, parse_json, read_json_array, read_json_lines
from kgharvest.bulk.file_values import BadValue, read_entities, read_references
from kgharvest.errors import BadEntry
from kgharvest.knowledge.models import KEY_SEPARATOR
from kgharvest.knowledge.tuple_store import TupleRow
from kgharvest.models import HarvestJob, Relation

# Memory for the cache of the sort table; its sorter uses the same amount. Neither depends on the file size.
CACHE_KB = 4096
INSERT = """
INSERT INTO tuple_row (list, key, surface, score, mtl, reference, line) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (list, key) DO UPDATE
SET surface = excluded.surface, score = excluded.score, mtl = excluded.mtl, reference = excluded.reference,
    line = excluded.line
WHERE excluded.score > tuple_row.score
"""


class Format(NamedTuple):
    """Parser of a file format. is_by_line: True if `read` requires complete lines instead of arbitrary chunks."""

    read: Callable[[Iterable[str]], Iterator[Line | BadEntry]]
    row: Callable[[Any, Relation], TupleRow]  # raises BadValue
    score_scale: HarvestJob.ScoreScale
    is_by_line: bool = True


def read_tuples(chunks: Iterable[str], relation: Relation, tuple_format: Format) -> Iterator[TupleRow | BadEntry]:
    """Yield the tuples of `relation` and the errors of invalid rows, in file order."""
    for line in tuple_format.read(chunks):
        if isinstance(line, BadEntry):
            yield line
            continue
        try:
            yield tuple_format.row(line.value, relation)
        except BadValue as error:
            yield BadEntry(f"line {line.number}", str(error))


def guess_format(chunks: Iterable[str]) -> str:
    """Detect the format of a text and return its key in IMPORT_FORMATS."""
    start = next((chunk for chunk in map(str.lstrip, chunks) if chunk), "")
    return {"[": "reference", "{": "jsonl"}.get(start[:1], "csv")


def _project_row(fields: Any, relation: Relation) -> TupleRow:
    if not isinstance(fields, dict):
        raise BadValue("is not a JSON object")
    name = fields.get("relation") or relation.name
    if name != relation.name:
        raise BadValue(f"belongs to the relation {name!r}, not {relation.name!r}; import one relation at a time")
    surface = fields.get("surface") or fields.get("entities")
    row = _row(surface, _number(fields.get("score"), "score"), relation)
    row = row._replace(references=read_references(fields.get("references")))
    return row if fields.get("mtl") is None else row._replace(mtl=_number(fields["mtl"], "mtl"))


def _reference_row(pair: Any, relation: Relation) -> TupleRow:
    if not isinstance(pair, list) or len(pair) != 2:
        raise BadValue("is not a pair of entities and a weight")
    share = _number(pair[1], "weight")
    if not 0 < share <= 1:
        raise BadValue(f"has the weight {share:g}; weights must be greater than 0 and at most 1")
    return _row(pair[0], log(share), relation)


def _row(surface: Any, score: float, relation: Relation) -> TupleRow:
    surface = read_entities(surface, relation.arity)
    return TupleRow(tuple(entity.casefold() for entity in surface), surface, score, None)


def _number(value: Any, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise BadValue(f"{name}: the number is too large") from None
        if isfinite(number):
            return number
    raise BadValue(f"{name}: {value!r} is not a number")


def _read_csv(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    """Yield the rows of a CSV file, with values as in the JSONL format."""
    reader = csv.DictReader(lines)
    try:
        if missing := {"entities", "score"} - set(reader.fieldnames or ()):
            yield BadEntry("line 1", f"missing column: {', '.join(sorted(missing))}")
            return
        for fields in reader:
            texts = ("relation", "references")
            typed: dict[str, Any] = {name: (fields.get(name) or "").removeprefix("'") or None for name in texts}
            try:
                for column in ("entities", "surface", "score", "mtl"):
                    typed[column] = parse_json(fields[column]) if fields.get(column) else None
                yield Line(reader.line_num, typed)
            except json.JSONDecodeError:
                expected = "number" if column in ("score", "mtl") else 'JSON list such as ["dog", "swim"]'
                yield BadEntry(f"line {reader.line_num}", f"column {column}: {fields[column]!r} is not a {expected}")
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


IMPORT_FORMATS = {
    "jsonl": Format(read_json_lines, _project_row, HarvestJob.ScoreScale.NATS),
    "csv": Format(_read_csv, _project_row, HarvestJob.ScoreScale.NATS),
    "reference": Format(read_json_array, _reference_row, HarvestJob.ScoreScale.LOG_SHARE, is_by_line=False),
}


class ExternalSort:
    """Sorts numbered lists of distinct tuples, largest score first, in constant memory.

    Of duplicates, the tuple with the larger score is kept. Tuples with equal scores keep their file order. The default
    list is 0.
    """

    def __init__(self) -> None:
        # The name "" opens a temporary database on disk. SQLite deletes it when the connection is closed.
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE tuple_row (list INTEGER, key TEXT, surface TEXT, score REAL, mtl REAL, reference TEXT, "
            "line INTEGER, UNIQUE (list, key))"
        )

    def __enter__(self) -> ExternalSort:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, rows: Iterable[TupleRow], number: int = 0) -> int:
        """Add rows to list `number`. Return the number of added rows, including duplicates."""
        n_rows = 0

        def parameters() -> Iterator[tuple[str | float | None, ...]]:
            nonlocal n_rows
            for n_rows, row in enumerate(rows, start=1):
                texts = KEY_SEPARATOR.join(row.entities), KEY_SEPARATOR.join(row.surface)
                yield number, *texts, row.score, row.mtl, KEY_SEPARATOR.join(row.references), n_rows

        self._database.execute("BEGIN")
        self._database.executemany(INSERT, parameters())
        self._database.execute("COMMIT")
        return n_rows

    def size_of(self, number: int = 0) -> int:
        counted = self._database.execute("SELECT count(*) FROM tuple_row WHERE list = ?", [number])
        n_rows: int = counted.fetchone()[0]
        return n_rows

    def rows_of(self, number: int = 0) -> Iterator[TupleRow]:
        ordered = "SELECT key, surface, reference, score, mtl FROM tuple_row WHERE list = ? ORDER BY score DESC, line"
        for *texts, score, mtl in self._database.execute(ordered, [number]):
            key, surface, references = (tuple(text.split(KEY_SEPARATOR)) if text else () for text in texts)
            yield TupleRow(key, surface, score, mtl, references)
