"""XLSX workbooks with one sheet per table. Numbers are written as numbers, not as text."""

import io
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kgharvest.tables.table import Kind, Marked, Table, split_rates

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


def xlsx_of(title: str, tables: Sequence[Table], created_at: datetime = datetime(2000, 1, 1)) -> bytes:
    """Return a workbook. created_at: naive datetime. The same tables with the same date give the same bytes."""
    from xlsxwriter import Workbook  # imported here because pages do not need this package

    buffer = io.BytesIO()
    with Workbook(buffer, {"constant_memory": True, **INERT}) as workbook:
        workbook.set_properties({"title": title, "created": created_at})
        values = (value for table in tables for row in table.rows for value in row.values)
        marks = sorted({value.mark for value in values if isinstance(value, Marked)})
        # Number formats by kind and whether the row is a summary, and formats by kind and mark.
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
        for table in tables:
            _write_sheet(workbook.add_worksheet(table.name), split_rates(table), formats)
    return buffer.getvalue()


def _write_sheet(sheet: Any, table: Table, formats: Mapping[Any, Any]) -> None:
    """Write the headings to the first row, which is frozen, followed by the rows and the notes.

    Numbers are written as numbers and texts as texts, never as formulas. Cells with undefined values are empty.
    """
    sheet.freeze_panes(1, 1)
    rows = list(table.rows)
    for number, column in enumerate(table.columns):
        longest = max([len(column.title), *(len(str(row.values[number] or "")) for row in rows)])
        width = min(longest + 2, WIDEST_COLUMN) if column.kind is Kind.TEXT else 12
        sheet.set_column(number, number, width)
        sheet.write_string(0, number, column.heading, formats["head"])
    for line, row in enumerate(rows, start=1):
        for number, (value, column) in enumerate(table.cells(row)):
            if value is None or (isinstance(value, float) and not math.isfinite(value)):
                continue
            if isinstance(value, Marked):
                sheet.write_number(line, number, value.value, formats[column.kind, value.mark])
            elif isinstance(value, int | float):
                sheet.write_number(line, number, value, formats.get((column.kind, row.is_summary)))
            else:
                sheet.write_string(line, number, value, formats["bold"] if row.is_summary else None)
    for line, note in enumerate([table.caption, *table.notes], start=len(rows) + 2):
        sheet.write_string(line, 0, note)
