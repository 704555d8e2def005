"""File formats of reports. All formats except the evidence page are written from the frozen document alone."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from django.template.loader import render_to_string

from evaluation.models import Report
from evaluation.rendering.documents import Document, made_at
from evaluation.rendering.evidence_page import write_evidence_page
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import finding, report_tables, tables_to_read
from evaluation.reports.evidence_rows import gather_rows
from evaluation.reports.sections.rates import cell_table
from kgharvest.tables.formats import FORMATS, csv_text, json_text, markdown_of
from kgharvest.tables.latex import latex_of
from kgharvest.tables.xlsx import xlsx_of


class DocumentFormat(NamedTuple):
    """A file format. title: description of its contents."""

    title: str
    write: Callable[[Document], str | bytes]

    def bytes_of(self, document: Document) -> bytes:
        content = self.write(document)
        return content if isinstance(content, bytes) else content.encode()


def write_html(document: Document, note: str = "", with_annotators: bool = True) -> str:
    figures = [{**figure.image(document), "address": figure.data_url(document)} for figure in figures_of(document)]
    context = {
        "document": document,
        "note": note,
        "finding": finding(document),
        "made_at": made_at(document),
        "tables": tables_to_read(document, with_annotators),
        "figures": figures,
    }
    return str(render_to_string("evaluation/reports/report_export.html", context))


def write_xlsx(document: Document) -> bytes:
    created_at = document.get("created_at")
    options = [datetime.fromisoformat(created_at).replace(tzinfo=None)] if created_at else []
    return xlsx_of(document["round"], report_tables(document), *options)


DOCUMENT_FORMATS = {
    "html": DocumentFormat("whole report as one printable page", write_html),
    "xlsx": DocumentFormat("one sheet per table", write_xlsx),
    "tex": DocumentFormat(
        "LaTeX tables (booktabs)", lambda document: latex_of(document["round"], tables_to_read(document))
    ),
    "md": DocumentFormat("Markdown tables", lambda document: markdown_of(document["round"], tables_to_read(document))),
    "csv": DocumentFormat("one row per cell", lambda document: csv_text(cell_table(document))),
    "json": DocumentFormat("complete document", json_text),
}
EVIDENCE = "evidence"
FILES = {name: form.title for name, form in DOCUMENT_FORMATS.items()} | {
    EVIDENCE: "one page with the statements and labels behind every number"
}  # titles by format


def write_report(report: Report, name: str) -> bytes:
    """Return the content of a file in FILES. Raises RowsChanged or TooManyRows for the evidence page."""
    if name == EVIDENCE:
        return write_evidence_page(report.document, gather_rows(report)).encode()
    return DOCUMENT_FORMATS[name].bytes_of(report.document)


def file_suffix(name: str) -> str:
    return "evidence.html" if name == EVIDENCE else f"report.{name}"


def content_type_of(name: str) -> str:
    return FORMATS["html" if name == EVIDENCE else name].content_type
