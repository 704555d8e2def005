"""What a table of a report is, whatever file or page it ends in. Writers lay the same tables out in their own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from kgharvest.pages import number_format

Document = Mapping[str, Any]

ORIGINS = {"simulated": "simulated, not people", "imported": "imported judgments"}  # of what rests on no own people
SUBCOLUMNS = ("accepted", "rejected", "low", "high", "n")


class Kind(Enum):
    """What the values of a column are.

    SHARE: in [0, 1]. FINE: a share that needs four digits. POINTS: a difference of shares. RATES: `Rates`.
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


class Rates(NamedTuple):
    """A cell of the paper's tables: shares of accepted and rejected tuples, 95 % interval of the first, statements.

    mark: of the footnote that the cell needs, or empty.
    """

    accepted: float | None
    rejected: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    mark: str = ""

    def __str__(self) -> str:
        return f"{number_format.share(self.accepted)} / {number_format.share(self.rejected)}{self.mark}"


class Marked(NamedTuple):
    """A number of a column's kind with a mark that its table's notes explain."""

    value: float
    mark: str


class Column(NamedTuple):
    """group: the heading above it that neighbouring columns share, e.g. the LM above its settings."""

    title: str
    kind: Kind = Kind.TEXT
    group: str = ""

    @property
    def whole_title(self) -> str:
        return " · ".join(filter(None, [self.group, self.title]))


class Row(NamedTuple):
    """One value per column. is_summary: an average, set off from the rows above it.

    about: what it rests on, for pages to lead there: `relation`, `model`, `setting` of statements, or an `annotator`.
    """

    values: tuple[Any, ...]
    is_summary: bool = False
    about: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class Table:
    """name: identifies it in files and addresses. origin: what its numbers rest on where that is not people."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())
    origin: str = ""

    @property
    def caption(self) -> str:
        return f"{self.title} ({self.origin})" if self.origin else self.title

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings above the columns with the number of columns under each; empty if there are none."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and column.group and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans if any(title for title, _ in spans) else []

    @property
    def laid_out(self) -> Iterator[dict[str, Any]]:
        """Yield the rows with each value beside its column, for templates."""
        for row in self.rows:
            yield {"is_summary": row.is_summary, "about": row.about, "cells": list(self.cells(row))}

    def texts(self) -> Iterator[tuple[bool, list[str]]]:
        """Yield each row as it is read, with whether it is a summary."""
        for row in self.rows:
            yield row.is_summary, [text_of(value, column.kind) for value, column in self.cells(row)]

    def cells(self, row: Row) -> Iterator[tuple[Any, Column]]:
        return zip(row.values, self.columns, strict=True)


def first_rows(table: Table, most: int, n: int) -> Table:
    """Return a table of more than `most` rows cut to its first n and its summaries, which says so."""
    rows = [row for row in table.rows if not row.is_summary]
    if len(rows) <= most:
        return table
    summaries = [row for row in table.rows if row.is_summary]
    note = f"The first {n} of {len(rows):,} rows; all are in the files below."
    return replace(table, rows=(*rows[:n], *summaries), notes=(*table.notes, note))


def without_empty_columns(table: Table) -> Table:
    """Return the table as people read it: a column in which every value is undefined tells nothing."""
    kept = [
        number
        for number in range(len(table.columns))
        if any(row.values[number] is not None and row.values[number] != "" for row in table.rows)
    ]
    if len(kept) == len(table.columns):
        return table
    rows = tuple(row._replace(values=tuple(row.values[number] for number in kept)) for row in table.rows)
    return replace(table, columns=tuple(table.columns[number] for number in kept), rows=rows)


def split_rates(table: Table) -> Table:
    """Return the table with one number per cell: accepted, rejected, low, high and n where `Rates` were."""
    columns = tuple(_flatten([_columns_of(column) for column in table.columns]))
    rows = tuple(
        row._replace(values=tuple(_flatten([_values_of(value, column) for value, column in table.cells(row)])))
        for row in table.rows
    )
    return replace(table, columns=columns, rows=rows)


def _flatten(parts: Iterable[Iterable[Any]]) -> list[Any]:
    return [value for part in parts for value in part]


def _columns_of(column: Column) -> list[Column]:
    if column.kind is not Kind.RATES:
        return [column]
    return [Column(title, Kind.COUNT if title == "n" else Kind.SHARE, column.whole_title) for title in SUBCOLUMNS]


def _values_of(value: Any, column: Column) -> list[Any]:
    if column.kind is not Kind.RATES:
        return [value]
    return [getattr(value, title, None) for title in SUBCOLUMNS]


# -- how values read ---------------------------------------------------------------------------------------------------


TEXTS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.COUNT: number_format.count,
    Kind.NUMBER: number_format.number,
    Kind.SHARE: number_format.share,
    Kind.FINE: partial(number_format.share, decimals=4),
    Kind.COEFFICIENT: number_format.share,
    Kind.POINTS: number_format.points,
    Kind.P: number_format.p_value,
}


def text_of(value: Any, kind: Kind) -> str:
    if isinstance(value, Marked):
        return f"{text_of(value.value, kind)} {value.mark}"
    return number_format.DASH if value is None or value == "" else TEXTS.get(kind, str)(value)


def name_of(model_or_setting: str | None) -> str:
    return "not named" if model_or_setting is None else model_or_setting


def lm_and_setting(part: Mapping[str, Any]) -> str:
    return f"{name_of(part['model'])} · {name_of(part['setting'])}"


def about_side(part: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what a row on an LM and setting is about, for `Row.about`."""
    return {"model": part.get("model"), "setting": part.get("setting")}


def made_at(document: Document) -> str:
    """Return when the report was made, in words: "3 November 2026, 01:23 UTC"."""
    moment = datetime.fromisoformat(document["created_at"]).astimezone(UTC)
    return f"{moment:%d %B %Y, %H:%M} UTC".lstrip("0")


def tuples_query(about: Mapping[str, Any], **part: Any) -> str:
    """Return the query that names those of a relation, LM and setting on the page of tuples. part: filters besides."""
    keys = {key: about.get(key) for key in ("relation", "model", "setting")} | part
    return urlencode({key: value for key, value in keys.items() if value is not None})
