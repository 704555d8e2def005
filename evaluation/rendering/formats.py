"""The files a report can be had as; HTML is one page that needs nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import NamedTuple

from django.template.loader import render_to_string

from evaluation.rendering.figures.report_figures import figures_of
from evaluation.rendering.latex import write_latex
from evaluation.rendering.plain import write_csv, write_json, write_markdown
from evaluation.rendering.tables import Document
from evaluation.rendering.xlsx import write_xlsx
from evaluation.reports.document import tables_to_read


class Format(NamedTuple):
    """title: what the file holds, for people."""

    write: Callable[[Document], str | bytes]
    content_type: str
    title: str

    def bytes_of(self, document: Document) -> bytes:
        content = self.write(document)
        return content if isinstance(content, bytes) else content.encode()


def write_html(document: Document) -> str:
    figures = [
        {
            "title": figure.title,
            "alt": figure.alt(document),
            "address": f"data:image/svg+xml;base64,{b64encode(figure.render(document)).decode()}",
        }
        for figure in figures_of(document)
    ]
    context = {"document": document, "tables": tables_to_read(document), "figures": figures}
    return str(render_to_string("evaluation/reports/report_export.html", context))


XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

FORMATS = {
    "html": Format(write_html, "text/html; charset=utf-8", "the whole report, one page to keep or print"),
    "xlsx": Format(write_xlsx, XLSX_TYPE, "a sheet per table"),
    "tex": Format(write_latex, "application/x-tex; charset=utf-8", "tables for LaTeX, booktabs"),
    "md": Format(write_markdown, "text/markdown; charset=utf-8", "tables as text"),
    "csv": Format(write_csv, "text/csv; charset=utf-8", "one row per cell"),
    "json": Format(write_json, "application/json", "everything, for programs"),
}
