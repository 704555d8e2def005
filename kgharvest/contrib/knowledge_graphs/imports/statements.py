"""Statements of KG files: streaming readers for TSV, CSV, N-Triples, and JSON Lines, and a temporary table on disk."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from kgharvest.bulk.file_reading import Line, opened, read_json_objects, read_lines
from kgharvest.bulk.file_writing import FORMULA_STARTS
from kgharvest.errors import BadEntry, Faults, ImportRefused

ROLES: Mapping[str, Sequence[str]] = {
    "relation": ("relation", "predicate", "rel", "label", "r", "p"),
    "head": ("head", "subject", "node1", "h", "s"),
    "tail": ("tail", "object", "node2", "t", "o"),
    "score": ("score", "confidence", "weight"),
}
ESCAPED_FORMULAS = tuple(f"'{start}" for start in FORMULA_STARTS)  # starts of formulas as `csv_value` escapes them
LabelOf = Callable[[str, str], str]  # takes an id and a default, and returns the label of the id


class Statement(NamedTuple):
    """A statement of a KG file. line: line number, starting at 1.

    others: further values by name, for example qualifiers.
    """

    line: int
    relation: str
    head: str
    tail: str
    score: float | None = None
    others: Mapping[str, str] = {}


class BadCell(Exception):
    """Error in a line. column: position of the error, or None if unknown."""

    def __init__(self, reason: str, column: int | None = None):
        self.column = column
        super().__init__(reason)

    def at(self, line: int) -> BadEntry:
        return BadEntry(f"line {line}, column {self.column}" if self.column else f"line {line}", str(self))


def number_of(text: Any, column: int | None = None) -> float | None:
    """Return the score in a cell, or None for an empty cell. Raises BadCell."""
    if text is None or text == "":
        return None
    try:
        number = float("" if isinstance(text, bool) else text)
    except (ValueError, TypeError, OverflowError):
        number = float("nan")
    if not isfinite(number):
        raise BadCell(f"the score {text!r:.60} is not a number", column)
    return number


# Tables


def read_tsv(lines: Iterable[str], label_of: LabelOf) -> Iterator[Statement | BadEntry]:
    rows = ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(lines, start=1) if line.strip())
    return _read_table(rows, label_of)


def read_csv(lines: Iterable[str], label_of: LabelOf) -> Iterator[Statement | BadEntry]:
    reader = csv.reader(lines, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        for cells in reader:
            if cells:
                yield reader.line_num, cells

    try:
        yield from _read_table(rows(), label_of)
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


def _read_table(rows: Iterator[tuple[int, list[str]]], label_of: LabelOf) -> Iterator[Statement | BadEntry]:
    """Read head, relation, tail, and optionally score. A header line, if present, names the columns."""
    columns: Sequence[str] = ("head", "relation", "tail", "score")
    for position, (line, texts) in enumerate(rows):
        cells = [text[1:] if text.startswith(ESCAPED_FORMULAS) else text for text in texts]
        if position == 0:
            if header := header_columns(cells):
                columns = header
                continue
            columns = columns[: max(3, len(cells))]
        try:
            yield _table_statement(line, columns, cells, label_of)
        except BadCell as error:
            yield error.at(line)


def header_columns(cells: Sequence[str]) -> list[str] | None:
    """Return the column names, with aliases replaced by roles, or None if the cells are not a header."""
    names = [cell.strip().casefold() for cell in cells]
    columns = list(cells)
    for role, aliases in ROLES.items():
        if alias := next((alias for alias in aliases if alias in names), None):
            columns[names.index(alias)] = role
    return columns if {"head", "relation", "tail"} <= set(columns) else None


def _table_statement(line: int, columns: Sequence[str], cells: Sequence[str], label_of: LabelOf) -> Statement:
    if len(cells) != len(columns):
        raise BadCell(f"has {len(cells)} columns instead of {len(columns)} ({', '.join(columns)})")
    row = dict(zip(columns, cells, strict=True))
    others = {name: label_of(value, value) for name, value in row.items() if value and name not in ROLES}
    score = number_of(row.get("score"), columns.index("score") + 1) if "score" in row else None
    for role in ("head", "relation", "tail"):
        if not row[role].strip():
            raise BadCell(f"has no {role}", columns.index(role) + 1)
    head, tail = (label_of(row[role], row[role]) for role in ("head", "tail"))
    return Statement(line, row["relation"].strip(), head, tail, score, others)


# N-Triples

IRI = r"<([^\x00-\x20<>\"{}|^`]*)>"
BLANK = r"(_:[^\s<>\"]+)"
TRIPLE = re.compile(
    rf"\s*(?:{IRI}|{BLANK})\s*{IRI}\s*"
    rf"(?:{IRI}|{BLANK}|\"((?:[^\"\\\n\r]|\\.)*)\"(?:\^\^{IRI}|@[a-zA-Z]+(?:-[a-zA-Z0-9]+)*)?)\s*\.\s*(?:#.*)?"
)
PART = (re.compile(rf"\s*(?:{IRI}|{BLANK})"), re.compile(rf"\s*{IRI}"))
NT_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
NT_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def read_ntriples(lines: Iterable[str], label_of: LabelOf) -> Iterator[Statement | BadEntry]:
    for line, text in enumerate(lines, start=1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        match = TRIPLE.fullmatch(text.rstrip())
        if match is None:
            yield BadEntry(f"line {line}, column {_first_wrong_column(text)}", "is not a valid N-Triples statement")
            continue
        head_iri, head_blank, relation, tail_iri, tail_blank, literal, _ = match.groups()
        try:
            head = resource(head_iri, head_blank, label_of)
            tail = resource(tail_iri, tail_blank, label_of) if literal is None else unescaped(literal)
            yield Statement(line, unescaped(relation), head, tail)
        except BadCell as error:
            yield error.at(line)


def _first_wrong_column(text: str) -> int:
    """Return the column, starting at 1, of the first invalid part: subject, predicate, or object."""
    end = 0
    for part in PART:
        match = part.match(text, end)
        if match is None:
            break
        end = match.end()
    return len(text) - len(text[end:].lstrip()) + 1


def resource(iri: str | None, blank: str | None, label_of: LabelOf) -> str:
    """Return the label of an IRI or blank node."""
    if iri is None:
        return label_of(blank or "", blank or "")
    iri = unescaped(iri)
    return label_of(iri, last_part(iri))


def unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match[3]:
            if match[3] not in NT_ESCAPES:
                raise BadCell(f"has an invalid N-Triples escape ({match.group()})")
            return NT_ESCAPES[match[3]]
        code = int(match[1] or match[2], 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise BadCell(f"has an escape sequence for an invalid character ({match.group()})")
        return chr(code)

    return NT_ESCAPE.sub(character, text)


def last_part(iri: str) -> str:
    """Return the default label of an IRI: its last part, decoded, with spaces for underscores."""
    part = re.split(r"[/#]", iri.rstrip("/#"))[-1]
    if "/" not in iri and "#" not in iri:
        part = iri.rsplit(":", 1)[-1]
    return unquote(part).replace("_", " ").strip() or iri


# JSON lines

SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_jsonl(lines: Iterable[str], label_of: LabelOf) -> Iterator[Statement | BadEntry]:
    """Read objects with the keys head, relation, and tail, or relation and entities.

    The keys score and qualifiers are optional.
    """
    for value in read_json_objects(lines):
        if isinstance(value, BadEntry):
            yield value
            continue
        try:
            yield _json_statement(value, label_of)
        except BadCell as error:
            yield error.at(value.number)


def _json_statement(line: Line, label_of: LabelOf) -> Statement:
    fields = line.value
    values = {
        role: next((fields[alias] for alias in aliases if alias in fields), None) for role, aliases in ROLES.items()
    }
    entities = fields.get("entities")
    if entities is None:
        entities = [values["head"], values["tail"]]
    if not isinstance(entities, list) or len(entities) < 2 or not all(map(_is_value, entities)):
        raise BadCell('has neither "head" and "tail" nor a list of "entities"')
    relation = values["relation"]
    if not isinstance(relation, str) or not relation.strip():
        raise BadCell('has no "relation"')
    qualifiers = fields.get("qualifiers") or {}
    if not isinstance(qualifiers, dict) or not all(map(_is_value, qualifiers.values())):
        raise BadCell('"qualifiers" must be an object whose values are texts or numbers')
    head, tail, *further = (label_of(str(entity), str(entity)) for entity in entities)
    others = {f"ENT{slot}": entity for slot, entity in enumerate(further, start=2)}
    others |= {name: label_of(str(value), str(value)) for name, value in qualifiers.items()}
    if any(map(SURROGATE.search, (relation, head, tail, *others, *others.values()))):
        raise BadCell("has an incomplete surrogate pair (\\ud800 to \\udfff)")
    return Statement(line.number, relation.strip(), head, tail, number_of(values["score"]), others)


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""


# Label and reader by format
FORMATS: Mapping[str, tuple[str, Callable[[Iterable[str], LabelOf], Iterator[Statement | BadEntry]]]] = {
    "tsv": ("TSV: head, relation, tail, optional score", read_tsv),
    "csv": ("CSV: head, relation, tail, optional score", read_csv),
    "nt": ("N-Triples", read_ntriples),
    "jsonl": ("JSON lines", read_jsonl),
}


def guess_format(lines: Iterable[str]) -> str:
    """Detect the format from the first non-blank line and return its key in FORMATS."""
    first = next((line.strip("\r\n") for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        return "jsonl"
    if first.lstrip().startswith(("<", "_:", "#")):
        return "nt"
    return "tsv" if "\t" in first else "csv"


# Temporary table

CACHE_KB = 8192
CACHED_LABELS = 20_000
MOST_RELATIONS = 100_000  # a larger number indicates that the wrong column was read as the relation
TABLES = """
CREATE TABLE statement
    (line INTEGER PRIMARY KEY, relation INTEGER, head TEXT, tail TEXT, score REAL, others TEXT);
CREATE TABLE label (id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID;
"""
TableRow = tuple[object, ...]


class FileRelation(NamedTuple):
    """A relation of the file. others: names of the values besides head and tail in the relation's statements."""

    name: str
    n_statements: int
    others: tuple[str, ...]


class StagedKG:
    """Statements of a file, stored in a temporary table on disk to limit memory use.

    Leaving the context deletes the table.
    """

    def __init__(self, path: Path, file_format: str = "auto", labels: Path | None = None):
        """Read the file. Raises ImportRefused with all errors, or NoSuchFile."""
        # The name "" opens a private temporary database on disk. SQLite deletes it when the connection closes.
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
                self._fill("INSERT OR IGNORE INTO label VALUES (?, ?)", _labels(labels), labels.name)
            self.file_format = guess_format(read_lines(path)) if file_format == "auto" else file_format

            @lru_cache(CACHED_LABELS)
            def label_of(name: str, default: str) -> str:
                row = self._database.execute("SELECT text FROM label WHERE id = ?", [name]).fetchone()
                return row[0] if row else default

            _, read = FORMATS[self.file_format]
            statements = read(read_lines(path), label_of if labels else lambda name, default: default)
            insert = "INSERT OR REPLACE INTO statement VALUES (?, ?, ?, ?, ?, ?)"
            self._fill(insert, map(self._row, statements), path.name)
            self._database.execute("CREATE INDEX statement_relation ON statement (relation, line)")
            if not self._database.execute("SELECT 1 FROM statement LIMIT 1").fetchone():
                raise ImportRefused(self.source, [BadEntry("file", "has no statements")])
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> StagedKG:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def _row(self, statement: Statement | BadEntry) -> TableRow | BadEntry:
        if isinstance(statement, BadEntry):
            return statement
        line, relation, head, tail, score, others = statement
        number = self._names.setdefault(relation, len(self._names))
        if number == MOST_RELATIONS:
            reason = f"more than {MOST_RELATIONS:,} relations; check the order of the columns"
            raise ImportRefused(self.source, [BadEntry(f"line {line}", reason)])
        return line, number, head, tail, score, json.dumps(others, ensure_ascii=False) if others else None

    def _fill(self, insert: str, rows: Iterable[TableRow | BadEntry], source: str) -> None:
        """Insert the rows of a file. Raises ImportRefused if any row is an error."""
        faults = Faults()

        def valid() -> Iterator[TableRow]:
            for row in rows:
                if isinstance(row, BadEntry):
                    faults.add(row)
                else:
                    yield row

        self._database.execute("BEGIN")
        self._database.executemany(insert, valid())
        self._database.execute("COMMIT")
        faults.refuse(source)

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
        """Yield up to `most` statements of a relation in file order. If `most` is -1, there is no limit."""
        if relation not in self._names:
            return
        query = "SELECT line, head, tail, score, others FROM statement WHERE relation = ? ORDER BY line LIMIT ?"
        for line, head, tail, score, others in self._database.execute(query, [self._names[relation], most]):
            yield Statement(line, relation, head, tail, score, json.loads(others) if others else {})


def _labels(path: Path) -> Iterator[tuple[str, str] | BadEntry]:
    """Yield the id and label, or an error, for each non-blank line."""
    for number, line in enumerate(read_lines(path), start=1):
        name, tab, label = line.rstrip("\r\n").partition("\t")
        if tab and name and label.strip():
            yield name.removeprefix("<").removesuffix(">"), label.strip()
        elif line.strip():
            yield BadEntry(f"line {number}", "expected an id and a label, separated by a tab")
