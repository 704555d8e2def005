"""Tables that do not depend on the file or page in which they are shown.

`kgharvest.tables.formats` writes them to files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

from kgharvest.pages import number_format


class Kind(Enum):
    """Kind of values in a column.

    SHARE: a share in [0, 1]. FINE: a share shown with four digits. POINTS: a difference of shares. RATES: values of
    type `Rates`. LIST: a list of strings. TIME: an aware datetime.
    """

    TEXT = auto()
    COUNT = auto()
    NUMBER = auto()
    SHARE = auto()
    FINE = auto()
    COEFFICIENT = auto()
    POINTS = auto()
    P = auto()
    RATES = auto()
    LIST = auto()
    BOOLEAN = auto()
    TIME = auto()


class Rates(NamedTuple):
    """A cell of the paper's tables: the shares of accepted and rejected tuples.

    low, high: 95 % interval of the share of accepted tuples. n: number of statements. mark: footnote mark, or empty.
    As text, the second line shows the interval and n. Formats without line breaks in cells join the lines.
    """

    accepted: float | None
    rejected: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    mark: str = ""

    def __str__(self) -> str:
        shares = f"{number_format.share(self.accepted)} / {number_format.share(self.rejected)}{self.mark}"
        n = "" if self.n is None else f"n = {number_format.count(self.n)}"
        basis = ", ".join(filter(None, (number_format.interval(self.low, self.high), n)))
        return f"{shares}\n({basis})" if basis else shares


class Marked(NamedTuple):
    """A number of the column's kind, with a mark that is explained in the table's notes."""

    value: float
    mark: str


class Column(NamedTuple):
    """A column of a table. title: heading, and key in JSON Lines.

    group: heading shared with neighboring columns, for example the LM.

    is_optional: True if JSON Lines omit the key when the value is None.
    """

    title: str
    kind: Kind = Kind.TEXT
    group: str = ""
    is_optional: bool = False

    @property
    def whole_title(self) -> str:
        return " · ".join(filter(None, [self.group, self.title]))

    @property
    def heading(self) -> str:
        """Heading in CSV and XLSX files."""
        return f"{self.group}: {self.title}" if self.group else self.title


def of_kind(kind: Kind, *titles: str, group: str = "") -> tuple[Column, ...]:
    """Return columns of one kind and group."""
    return tuple(Column(title, kind, group) for title in titles)


class Row(NamedTuple):
    """A row with one value per column. is_summary: True for an average, which pages separate from the rows above it.

    about: the evidence to which pages link: `relation`, `model`, and `setting` of statements, or an `annotator`.
    """

    values: Sequence[Any]
    is_summary: bool = False
    about: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class Table:
    """A table. name: identifies the table in file names and URLs.

    origin: source of the judgments if people did not make them.

    rows: a tuple, or an iterator for formats that are streamed (CSV, JSON Lines, and Parquet).
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Iterable[Row]
    notes: tuple[str, ...] = ()
    origin: str = ""

    @property
    def caption(self) -> str:
        return f"{self.title} ({self.origin})" if self.origin else self.title

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings of groups, with the numbers of their columns. The list is empty if no column has a group."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and column.group and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans if any(title for title, _ in spans) else []

    @property
    def laid_out(self) -> Iterator[dict[str, Any]]:
        """Yield rows of (value, column) pairs, for templates."""
        for row in self.rows:
            yield {"is_summary": row.is_summary, "about": row.about, "cells": list(self.cells(row))}

    def texts(self) -> Iterator[tuple[bool, list[str]]]:
        """Yield (is_summary, formatted values) for each row."""
        for row in self.rows:
            yield row.is_summary, [text_of(value, column.kind) for value, column in self.cells(row)]

    def cells(self, row: Row) -> Iterator[tuple[Any, Column]]:
        return zip(row.values, self.columns, strict=True)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dictionary by column title. Optional columns are omitted if their value is None."""
        titles = [(column.title, column.is_optional) for column in self.columns]
        for row in self.rows:
            cells = zip(titles, row.values, strict=True)
            yield {title: value for (title, is_optional), value in cells if value is not None or not is_optional}


def table_of_records(titles: Iterable[str], records: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of text columns. Its rows are read from `records` only when they are written."""
    columns = tuple(map(Column, titles))
    rows = (Row([record[column.title] for column in columns]) for record in records)
    return Table("", "", columns, rows)


def first_rows(table: Table, most: int, n: int, hint: str = "The files below contain all rows.") -> Table:
    """Return the table. If it has more than `most` rows, keep the first n and the summaries, and add a note.

    hint: end of the note.
    """
    rows = [row for row in table.rows if not row.is_summary]
    if len(rows) <= most:
        return table
    summaries = [row for row in table.rows if row.is_summary]
    note = f"The first {n} of {len(rows):,} rows. {hint}"
    return replace(table, rows=(*rows[:n], *summaries), notes=(*table.notes, note))


def without_empty_columns(table: Table) -> Table:
    """Return the table without the columns in which all values are undefined."""
    columns = range(len(table.columns))
    numbers = [number for number in columns if any(row.values[number] not in (None, "") for row in table.rows)]
    return table if len(numbers) == len(table.columns) else with_columns(table, numbers)


def with_columns(table: Table, numbers: Sequence[int]) -> Table:
    """Return the table with only the given columns."""
    rows = tuple(row._replace(values=tuple(row.values[number] for number in numbers)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[number] for number in numbers), rows=rows)


SUBCOLUMNS = ("accepted", "rejected", "low", "high", "n")


def split_rates(table: Table) -> Table:
    """Return the table with a column for each part of `Rates`: accepted, rejected, low, high, and n."""
    if all(column.kind is not Kind.RATES for column in table.columns):
        return table
    columns: list[Column] = []
    for column in table.columns:
        if column.kind is Kind.RATES:
            *shares, n = SUBCOLUMNS
            columns += of_kind(Kind.SHARE, *shares, group=column.whole_title)
            column = Column(n, Kind.COUNT, column.whole_title)
        columns.append(column)
    rows = []
    for row in table.rows:
        values: list[Any] = []
        for value, column in table.cells(row):
            is_rates = column.kind is Kind.RATES
            values += [getattr(value, title, None) for title in SUBCOLUMNS] if is_rates else [value]
        rows.append(row._replace(values=tuple(values)))
    return replace(table, columns=tuple(columns), rows=tuple(rows))


# Values as text


TEXTS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.COUNT: number_format.count,
    Kind.NUMBER: number_format.number,
    Kind.SHARE: number_format.share,
    Kind.FINE: partial(number_format.share, decimals=4),
    Kind.COEFFICIENT: number_format.share,
    Kind.POINTS: number_format.points,
    Kind.P: number_format.p_value,
    Kind.RATES: str,
}


def text_of(value: Any, kind: Kind) -> str:
    if isinstance(value, Marked):
        return f"{text_of(value.value, kind)} {value.mark}"
    if value is None or value == "":
        return number_format.DASH
    return TEXTS[kind](value) if kind in TEXTS else str(value).replace("\n", " ")
