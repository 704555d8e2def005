"""HTML: one file that needs nothing else."""

from __future__ import annotations

from django.template.loader import render_to_string

from evaluation.reports.contents import report_tables
from evaluation.reports.tables import Document
from evaluation.reports.writers.plain import LISTS


def write_html(document: Document) -> str:
    tables = [table for table in report_tables(document) if table.name not in LISTS]
    return render_to_string("evaluation/report_export.html", {"document": document, "tables": tables})
