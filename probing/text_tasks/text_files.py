"""Files of texts with labels: JSON lines, or tab-separated columns with a heading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import Line, read_json_objects, read_lines
from kgharvest.errors import BadEntry, ImportRefused

LABEL = "label"


class LabelledRow(NamedTuple):
    """A line of a file: the texts of some of its columns."""

    number: int
    texts: Mapping[str, str]
    label: str


def columns_of(path: Path) -> list[str]:
    """Return the columns of the first line that has any. Raises NoSuchFile or ImportRefused."""
    return next((list(line.value) for line in _lines(path) if not isinstance(line, BadEntry)), [])


def read_labelled(path: Path, columns: Sequence[str]) -> list[LabelledRow]:
    """Return the rows with the texts in `columns`. Raises NoSuchFile, or ImportRefused with every line at fault."""
    rows, faults = [], []
    for line in _lines(path):
        fault = line if isinstance(line, BadEntry) else _fault(line, columns)
        if fault:
            faults.append(fault)
        else:
            texts = {column: line.value[column] for column in columns}
            rows.append(LabelledRow(line.number, texts, str(line.value[LABEL]).strip()))
    if faults:
        raise ImportRefused(path.name, faults)
    return rows


def _lines(path: Path) -> Iterator[Line | BadEntry]:
    """Yield the objects of JSON lines or, if the file's name ends in .tsv, of tab-separated ones."""
    read = _tab_separated if path.suffix.lower() == ".tsv" else read_json_objects
    return read(read_lines(path))


def _tab_separated(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    rows = (line.rstrip("\r\n").split("\t") for line in lines)
    heading = next(rows, [])
    for number, row in enumerate(rows, start=2):
        if len(row) == len(heading):
            yield Line(number, dict(zip(heading, row, strict=True)))
        elif row != [""]:
            yield BadEntry(f"line {number}", f"has {len(row)} columns and the heading {len(heading)}")


def _fault(line: Line, columns: Sequence[str]) -> BadEntry | None:
    where = f"line {line.number}"
    for column in columns:
        if column not in line.value:
            return BadEntry(where, f"has no {column!r}")
        if not isinstance(line.value[column], str) or not line.value[column].strip():
            return BadEntry(where, f"has no text in {column!r}")
    if not _is_label(line.value.get(LABEL)):
        return BadEntry(where, f"has no {LABEL!r} that is a text or a whole number")
    return None


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int) and bool(str(value).strip())
