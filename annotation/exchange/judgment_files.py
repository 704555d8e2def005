"""Parser for judgments in CSV files and in records (rows of a DataFrame). It yields rows and faults.

The parser uses neither the database nor Django.
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import CONTROL, read_lines
from kgharvest.bulk.file_values import BadValue, read_entities, read_label
from kgharvest.errors import BadEntry, ImportRefused

REQUIRED = ("relation", "entities", "annotator", "label")
STATEMENT = ("item", "entities")  # columns that can identify the statement if a file is evaluated without a database
LONGEST_COMMENT = 1000  # characters
DUPLICATES = ("error", "first", "last")  # policies for repeated judgments of an annotator on a statement
MOST_ROWS = 1_000_000  # per file, including invalid rows; rows are held in memory
LONGEST_NAME = 200  # characters of an annotator's name
CACHED_VALUES = 10_000  # parsed values cached per column, as values often repeat


class ImportedRow(NamedTuple):
    """One row of a file of judgments. Missing values are empty strings or None.

    If the file has a column `item`, its value is the only entity.
    """

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
    stratum: str = ""
    weight: float | None = None
    cluster: str = ""
    wrong_part: str = ""


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
    """The first fault for each reason and the number of faults with this reason. Each unknown label is listed once.

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


def read_judgments(lines: Iterable[str], required: Sequence[str] = REQUIRED) -> Iterator[ImportedRow | BadEntry]:
    """Yield the rows or faults of a CSV file with commas, semicolons, or tabs and any line endings.

    lines: lines including their line endings. required: names of the required columns. If "entities" is not required,
    the file must have exactly one of the columns in STATEMENT. Memory use does not depend on the size of the file.
    Equal values share one object.
    """
    lines = iter(lines)
    heading = next(lines, "")
    reader = csv.reader(chain([heading], lines), delimiter=max(",;\t", key=heading.count))
    try:
        columns = [name.strip().casefold() for name in next(reader, [])]
        if reason := columns_error(columns, required):
            yield BadEntry("line 1", reason)
            return
        readers = _readers_of(columns, required)
        for values in reader:
            if len(values) == len(columns):
                yield _row("line", reader.line_num, dict(zip(columns, values, strict=True)), readers)
            elif values:
                reason = f"has {len(values)} values but the heading has {len(columns)}"
                yield BadEntry(f"line {reader.line_num}", reason)
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


def read_records(records: Iterable[Mapping[str, Any]], required: Sequence[str]) -> Iterator[ImportedRow | BadEntry]:
    """Yield the rows or faults of mappings of column names to values, such as the rows of a DataFrame.

    Values are parsed like the values of a file. None and NaN count as empty. A list is a list of entities.
    """
    readers: Mapping[str, Callable[[str], Any]] = {}
    columns: list[str] | None = None
    for number, record in enumerate(records, start=1):
        names = [str(name).strip().casefold() for name in record]
        if names != columns:
            if reason := columns_error(names, required):
                yield BadEntry(f"row {number}", reason)
                return
            columns, readers = names, _readers_of(names, required)
        yield _row("row", number, dict(zip(names, map(_text, record.values()), strict=True)), readers)


def _text(value: Any) -> str:
    if hasattr(value, "tolist"):  # NumPy values
        value = value.tolist()
    if value is None or value != value:  # NaN differs from itself
        return ""
    if isinstance(value, list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def columns_error(columns: Sequence[str], required: Sequence[str]) -> str | None:
    """Return an error message if a required column is missing or a known column occurs twice, otherwise None."""
    if missing := [name for name in required if name not in columns]:
        return f"has no column {' or '.join(missing)}"
    if "entities" not in required and len(present := [name for name in STATEMENT if name in columns]) != 1:
        return f"must have one of the columns {' and '.join(STATEMENT)}, but has {' and '.join(present) or 'neither'}"
    if duplicates := [name for name in (*READERS, *SAMPLING, "item") if columns.count(name) > 1]:
        return f"has the column {' and '.join(duplicates)} twice"
    return None


def _readers_of(columns: Sequence[str], required: Sequence[str]) -> dict[str, Callable[[str], Any]]:
    """Return a cached parser for each field of a row. The relation and annotator are empty if their column is missing.

    Imports into a round ignore the columns in SAMPLING.
    """
    used = READERS if required is REQUIRED else READERS | SAMPLING
    readers = {name: lru_cache(CACHED_VALUES)(read) for name, read in used.items()}
    return readers | {name: str for name in ("relation", "annotator") if name not in columns}


def _row(
    unit: str, number: int, texts: dict[str, str], readers: Mapping[str, Callable[[str], Any]]
) -> ImportedRow | BadEntry:
    values_by_name: dict[str, Any] = {}
    for name, reader in readers.items():
        try:
            if name == "entities" and name not in texts:
                name = "item"
                values_by_name["entities"] = _item(texts["item"].strip())
            else:
                values_by_name[name] = reader(texts.get(name, "").strip())
        except BadValue as fault:
            return BadEntry(f"{unit} {number}, {name}", str(fault))
    return ImportedRow(number, **values_by_name)


def _name(longest: int, shortest: int = 1) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not shortest <= len(text) <= longest:
            raise BadValue(f"must have 1 to {longest} characters")
        return _without_nul(text)

    return read


def _item(text: str) -> tuple[str]:
    if not text:
        raise BadValue("is empty")
    if CONTROL.search(text):
        raise BadValue(f"has a control character ({text!r:.60})")
    return (text,)


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


def _weight(text: str) -> float | None:
    if not text:
        return None
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= 1:
        raise BadValue(f"is {text!r:.40}; give the stratum's share of the population, above 0 and at most 1")
    return weight


def _moment(text: str) -> datetime | None:
    """Parse an ISO 8601 time. A time without a time zone is interpreted as UTC."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(f"is {text!r:.40}; give an ISO time such as 2026-03-01T12:00:00Z, or leave it empty") from None
    if not 1970 <= moment.year <= 2200:
        raise BadValue(f"is {text!r:.40}; give a time between 1970 and 2200, or leave it empty")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


READERS: dict[str, Callable[[str], Any]] = {  # parsers by column; they raise BadValue
    "relation": _name(200),
    "entities": read_entities,
    "annotator": _name(LONGEST_NAME),
    "label": read_label,
    "model": _name(500, shortest=0),
    "setting": _name(30, shortest=0),
    "seconds": _seconds,
    "judged_at": _moment,
    "comment": _comment,
    "wrong_part": _name(8, shortest=0),
}
# Parsers of the columns that describe how the statements of a file were sampled. They raise BadValue.
SAMPLING: dict[str, Callable[[str], Any]] = {
    "stratum": _name(LONGEST_NAME, shortest=0),
    "weight": _weight,
    "cluster": _name(LONGEST_NAME, shortest=0),
}
