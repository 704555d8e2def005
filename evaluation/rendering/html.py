"""HTML: one file that needs nothing else."""

from __future__ import annotations

from base64 import b64encode

from django.template.loader import render_to_string

from evaluation.rendering.figures.report_figures import ReportFigure, figures_of
from evaluation.rendering.tables import Document
from evaluation.reports.document import tables_to_read


def write_html(document: Document) -> str:
    tables = tables_to_read(document)
    figures = [_inline(figure, document) for figure in figures_of(document)]
    context = {"document": document, "tables": tables, "figures": figures}
    return render_to_string("evaluation/reports/report_export.html", context)


def _inline(figure: ReportFigure, document: Document) -> dict[str, str]:
    address = f"data:image/svg+xml;base64,{b64encode(figure.render(document)).decode()}"
    return {"title": figure.title, "alt": figure.alt(document), "address": address}
