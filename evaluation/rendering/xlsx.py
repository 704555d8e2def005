"""XLSX: a sheet per table, numbers as numbers."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from evaluation.rendering.tables import Column, Document, Kind, Marked, Table, split_rates
from evaluation.reports.document import report_tables

NUMBER_FORMATS = {
    Kind.COUNT: "#,##0",
    Kind.NUMBER: "0.000",
    Kind.SHARE: "0.0%",
    Kind.COEFFICIENT: "0.00",
    Kind.POINTS: "+0.0%;-0.0%;0.0%",
    Kind.P: "0.0000",
}
WIDEST_COLUMN = 40
INERT = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}


def write_xlsx(document: Document) -> bytes:
    from xlsxwriter import Workbook  # not at import: the pages do without it

    buffer = io.BytesIO()
    with Workbook(buffer, {"constant_memory": True, **INERT}) as workbook:
        workbook.set_properties({"title": document["round"], "created": _made(document)})
        tables = report_tables(document)
        formats = _formats(workbook, sorted(set(_marks(tables))))
        for table in tables:
            _write_sheet(workbook.add_worksheet(table.name), split_rates(table), formats)
    return buffer.getvalue()


def _made(document: Document) -> datetime:
    """Return the report's date, so that the same report is the same file."""
    made = document.get("created_at")
    return datetime.fromisoformat(made).replace(tzinfo=None) if made else datetime(2000, 1, 1)


def _marks(tables: Iterable[Table]) -> Iterator[str]:
    return (value.mark for table in tables for row in table.rows for value in row.values if isinstance(value, Marked))


def _formats(workbook: Any, marks: Iterable[str]) -> dict[Any, Any]:
    """Return the formats of numbers by kind and whether they are a summary, or how they are marked."""
    formats: dict[Any, Any] = {
        "head": workbook.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "bottom"}),
        "bold": workbook.add_format({"bold": True}),
    }
    for kind, code in NUMBER_FORMATS.items():
        formats[kind, False] = workbook.add_format({"num_format": code})
        formats[kind, True] = workbook.add_format({"num_format": code, "bold": True, "top": 1})
        for mark in marks:
            marked = ";".join(f'{part}" {mark}"' for part in code.split(";"))
            formats[kind, mark] = workbook.add_format({"num_format": marked})
    return formats


def _write_sheet(sheet: Any, table: Table, formats: Mapping[Any, Any]) -> None:
    """Write the heading in the first row, which stays in view, then the rows; the notes follow below."""
    sheet.freeze_panes(1, 1)
    for number, column in enumerate(table.columns):
        sheet.set_column(number, number, _width(table, number))
        sheet.write_string(0, number, ": ".join(filter(None, [column.group, column.title])), formats["head"])
    for line, row in enumerate(table.rows, start=1):
        for number, (value, column) in enumerate(table.cells(row)):
            _write_value(sheet, line, number, value, column, row.is_summary, formats)
    for line, note in enumerate([table.caption, *table.notes], start=len(table.rows) + 2):
        sheet.write_string(line, 0, note)


def _write_value(
    sheet: Any, line: int, number: int, value: Any, column: Column, is_summary: bool, formats: Mapping[Any, Any]
) -> None:
    """A number is written as one; what is undefined leaves its cell empty; a text can start no formula."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return
    if isinstance(value, Marked):
        sheet.write_number(line, number, value.value, formats[column.kind, value.mark])
    elif isinstance(value, int | float):
        sheet.write_number(line, number, value, formats.get((column.kind, is_summary)))
    else:
        sheet.write_string(line, number, value, formats["bold"] if is_summary else None)


def _width(table: Table, number: int) -> int:
    column = table.columns[number]
    if column.kind is not Kind.TEXT:
        return 12
    longest = max([len(column.title), *(len(str(row.values[number] or "")) for row in table.rows)])
    return min(longest + 2, WIDEST_COLUMN)
