"""JSON, CSV, Markdown and text for a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from evaluation.rendering.tables import Document, Kind, Marked, Table, split_rates
from evaluation.reports.document import tables_to_read
from evaluation.reports.sections.rates import cell_table
from kgharvest.bulk.file_writing import escape_formula


def write_json(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# -- CSV ---------------------------------------------------------------------------------------------------------------


def write_csv(document: Document) -> str:
    return table_csv(cell_table(document))


def table_csv(table: Table) -> str:
    """Return any table with full numbers: a heading, then a line per row; what was undefined is empty."""
    flat = split_rates(table)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([escape_formula(": ".join(filter(None, [column.group, column.title]))) for column in flat.columns])
    writer.writerows([[escape_formula(_unmarked(value)) for value in row.values] for row in flat.rows])
    return buffer.getvalue()


def _unmarked(value: Any) -> Any:
    return value.value if isinstance(value, Marked) else value


# -- Markdown ----------------------------------------------------------------------------------------------------------


def write_markdown(document: Document) -> str:
    return markdown_of(document["round"], tables_to_read(document))


def markdown_of(title: str, tables: Iterable[Table]) -> str:
    return "\n".join([f"# {markdown_text(title)}", "", *map(_markdown_table, tables)])


def _markdown_table(table: Table) -> str:
    titles = [" · ".join(filter(None, [column.group, column.title])) for column in table.columns]
    rules = ["---" if column.kind is Kind.TEXT else "---:" for column in table.columns]
    body = [_markdown_row(texts) for _, texts in table.texts()]
    notes = [f"{number}. {markdown_text(note)}" for number, note in enumerate(table.notes, start=1)]
    lines = [f"## {markdown_text(table.caption)}", "", _markdown_row(titles), _markdown_row(rules), *body, ""]
    return "\n".join([*lines, *notes, ""] if notes else lines)


def _markdown_row(values: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, values))} |"


def markdown_text(text: str) -> str:
    """Return `text` so that Markdown takes it for nothing but text on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))


# -- terminals ---------------------------------------------------------------------------------------------------------


def terminal_text(table: Table) -> str:
    """Return the table in columns as wide as their longest value, texts to the left and numbers to the right."""
    lines = [[column.title for column in table.columns], *(texts for _, texts in table.texts())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_text = [column.kind is Kind.TEXT for column in table.columns]
    return "".join(
        "  ".join(
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )
