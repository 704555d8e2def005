"""Parser for judgment files in CSV format. It yields rows and faults and does not use the database."""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from annotation.models import LONGEST_COMMENT, Label
from kgharvest.bulk.file_reading import MOST_ENTITIES, entities_error, parse_json, read_lines
from kgharvest.errors import BadEntry, ImportRefused

REQUIRED = ("relation", "entities", "annotator", "label")
LABELS = {label.casefold(): label for label in Label.values}
LABELS |= {"t": Label.TRUE, "f": Label.FALSE, "u": Label.UNJUDGEABLE}
MOST_ROWS = 1_000_000  # per file, including invalid rows; rows are held in memory
LONGEST_NAME = 200  # characters of an annotator's name
CACHED_VALUES = 10_000  # parsed values cached per column, as values often repeat


class ImportedRow(NamedTuple):
    """One row of the file. Missing values are empty or None."""

    line: int
    relation: str
    entities: tuple[str, ...]
    annotator: str
    label: str
    model: str
    setting: str
    seconds: float | None
    judged_at: datetime | None
    comment: str


class BadValue(ValueError):
    """Fault of one value."""


def read_rows(path: Path) -> list[ImportedRow]:
    """Return the rows of a CSV file. Raises ImportRefused with the first fault per reason."""
    rows: list[ImportedRow] = []
    faults = _FaultsByReason()
    for n_rows, row in enumerate(read_judgments(read_lines(path)), start=1):
        if n_rows > MOST_ROWS:
            where = row.where.partition(",")[0] if isinstance(row, BadEntry) else f"line {row.line}"
            reason = f"exceeds the limit of {MOST_ROWS:,} rows; split the file"
            raise ImportRefused(path.name, [BadEntry(where, reason)])
        if isinstance(row, BadEntry):
            faults.add(row)
        else:
            rows.append(row)
    faults.refuse(path.name)
    if not rows:
        raise ImportRefused(path.name, [BadEntry("file", "has no judgments")])
    return rows


class _FaultsByReason:
    """First fault per reason, with the number of faults for that reason, so that each unknown label is listed once.

    Only the reasons that are shown are stored, which bounds memory.
    """

    def __init__(self) -> None:
        self._first: dict[str, BadEntry] = {}
        self._n = Counter[str]()

    def add(self, fault: BadEntry) -> None:
        reason = fault.reason
        if reason in self._first or len(self._first) <= ImportRefused.SHOWN:
            self._first.setdefault(reason, fault)
            self._n[reason] += 1

    def refuse(self, source: str) -> None:
        if self._first:
            more = {reason: f" (and {n - 1} more)" if n > 1 else "" for reason, n in self._n.items()}
            faults = [fault._replace(reason=f"{reason}{more[reason]}") for reason, fault in self._first.items()]
            raise ImportRefused(source, faults)


def read_judgments(lines: Iterable[str]) -> Iterator[ImportedRow | BadEntry]:
    """Yield the rows or faults of a CSV file with commas, semicolons, or tabs and any line endings.

    lines: with their line endings. Memory use is constant. Equal values share one object.
    """
    lines = iter(lines)
    heading = next(lines, "")
    reader = csv.reader(chain([heading], lines), delimiter=max(",;\t", key=heading.count))
    try:
        columns = [name.strip().casefold() for name in next(reader, [])]
        if missing := [name for name in REQUIRED if name not in columns]:
            yield BadEntry("line 1", f"has no column {' or '.join(missing)}")
            return
        if duplicates := [name for name in READERS if columns.count(name) > 1]:
            yield BadEntry("line 1", f"has the column {' and '.join(duplicates)} twice")
            return
        readers = {name: lru_cache(CACHED_VALUES)(read) for name, read in READERS.items()}
        for values in reader:
            if values:
                yield _row(reader.line_num, columns, values, readers)
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


def _row(
    line: int, columns: list[str], values: list[str], readers: Mapping[str, Callable[[str], Any]]
) -> ImportedRow | BadEntry:
    if len(values) != len(columns):
        return BadEntry(f"line {line}", f"has {len(values)} values but the heading has {len(columns)}")
    texts = dict(zip(columns, values, strict=True))
    values_by_name: dict[str, Any] = {}
    for name, reader in readers.items():
        try:
            values_by_name[name] = reader(texts.get(name, "").strip())
        except BadValue as fault:
            return BadEntry(f"line {line}, {name}", str(fault))
    return ImportedRow(line, **values_by_name)


def _name(longest: int, shortest: int = 1) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not shortest <= len(text) <= longest:
            raise BadValue(f"must have 1 to {longest} characters")
        return _without_nul(text)

    return read


def _entities(text: str) -> tuple[str, ...]:
    try:
        entities = parse_json(text)
    except json.JSONDecodeError:
        raise BadValue(f'is {text!r:.60}, not a JSON list such as ["dog", "swim"]') from None
    arity = len(entities) if isinstance(entities, list) and 2 <= len(entities) <= MOST_ENTITIES else 2
    if fault := entities_error(entities, arity):
        raise BadValue(fault)
    return tuple(entity.strip() for entity in entities)


def _label(text: str) -> str:
    if text.casefold() not in LABELS:
        raise BadValue(f"is {text!r:.40}; use True, False, or Unjudgeable")
    return str(LABELS[text.casefold()])


def _comment(text: str) -> str:
    if len(text) > LONGEST_COMMENT:
        raise BadValue(f"has {len(text)} characters; shorten it to {LONGEST_COMMENT}")
    return _without_nul(text)


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise BadValue("has a NUL character; remove it")
    return text


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 24 * 3600:
        raise BadValue(f"is {text!r:.40}; give a number of seconds, at most one day, or leave it empty")
    return seconds


def _moment(text: str) -> datetime | None:
    """Parse an ISO 8601 time. A time without a time zone is in UTC."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(f"is {text!r:.40}; give an ISO time such as 2026-03-01T12:00:00Z, or leave it empty") from None
    if not 1970 <= moment.year <= 2200:
        raise BadValue(f"is {text!r:.40}; give a time between 1970 and 2200, or leave it empty")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


READERS: dict[str, Callable[[str], Any]] = {  # raise BadValue
    "relation": _name(200),
    "entities": _entities,
    "annotator": _name(LONGEST_NAME),
    "label": _label,
    "model": _name(500, shortest=0),
    "setting": _name(30, shortest=0),
    "seconds": _seconds,
    "judged_at": _moment,
    "comment": _comment,
}
