"""A report as a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evaluation.rendering.html import write_html
from evaluation.rendering.latex import write_latex
from evaluation.rendering.plain import write_csv, write_json, write_markdown
from evaluation.rendering.tables import Document
from evaluation.rendering.xlsx import write_xlsx


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
