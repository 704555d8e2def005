"""The files a report can be had as, and tables as text: HTML on one page, JSON, CSV, Markdown, for terminals."""

from __future__ import annotations

import csv
import io
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from django.template.loader import render_to_string

from evaluation.rendering.figures.report_figures import figures_of
from evaluation.rendering.latex import write_latex
from evaluation.rendering.tables import Document, Kind, Marked, Table, made_at, split_rates
from evaluation.rendering.xlsx import write_xlsx
from evaluation.reports.document import tables_to_read
from evaluation.reports.finding import finding
from evaluation.reports.sections.rates import cell_table
from kgharvest.bulk.file_writing import escape_formula


def write_html(document: Document) -> str:
    figures = [
        {
            "name": figure.name,
            "title": figure.title,
            "left_out": figure.left_out(document),
            "alt": figure.alt(document),
            "address": f"data:image/svg+xml;base64,{b64encode(figure.render(document)).decode()}",
        }
        for figure in figures_of(document)
    ]
    context = {
        "document": document,
        "finding": finding(document),
        "made_at": made_at(document),
        "tables": tables_to_read(document),
        "figures": figures,
    }
    return str(render_to_string("evaluation/reports/report_export.html", context))


def write_json(document: Document) -> str:
    """Keys are sorted, as databases give them back in orders of their own: jsonb the shorter ones first."""
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


# -- CSV ---------------------------------------------------------------------------------------------------------------


def write_csv(document: Document) -> str:
    return table_csv(cell_table(document))


def table_csv(table: Table) -> str:
    """Return any table with full numbers: a heading, then a line per row; what was undefined is empty."""
    flat = split_rates(table)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow([escape_formula(": ".join(filter(None, [column.group, column.title]))) for column in flat.columns])
    for row in flat.rows:
        values = (value.value if isinstance(value, Marked) else value for value in row.values)
        writer.writerow([escape_formula(value) for value in values])
    return buffer.getvalue()


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


# -- files of a report -------------------------------------------------------------------------------------------------


class Format(NamedTuple):
    """title: what the file holds, for people."""

    write: Callable[[Document], str | bytes]
    content_type: str
    title: str

    def bytes_of(self, document: Document) -> bytes:
        content = self.write(document)
        return content if isinstance(content, bytes) else content.encode()


XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

FORMATS = {
    "html": Format(write_html, "text/html; charset=utf-8", "the whole report, one page to keep or print"),
    "xlsx": Format(write_xlsx, XLSX_TYPE, "a sheet per table"),
    "tex": Format(write_latex, "application/x-tex; charset=utf-8", "tables for LaTeX, booktabs"),
    "md": Format(write_markdown, "text/markdown; charset=utf-8", "tables as text"),
    "csv": Format(write_csv, "text/csv; charset=utf-8", "one row per cell"),
    "json": Format(write_json, "application/json", "everything, for programs"),
}
