"""Tables and figures of a report as files of its pack."""

from __future__ import annotations

from collections.abc import Iterator

from evaluation.paper.files import PackFile
from evaluation.rendering.documents import Document
from evaluation.rendering.figures.canvas import FIGURE_FORMATS
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import report_tables, tables_to_read
from kgharvest.tables.formats import FORMATS, csv_text, markdown_of
from kgharvest.tables.latex import latex_of


def rendered_tables(document: Document) -> Iterator[PackFile]:
    for table in report_tables(document):
        yield PackFile(f"tables/{table.name}.csv", csv_text(table).encode(), "text/csv", table.caption)
    title, tables = document["round"], tables_to_read(document)
    yield PackFile("tables/tables.tex", latex_of(title, tables).encode(), "application/x-tex", "Tables for LaTeX.")
    yield PackFile("tables/tables.md", markdown_of(title, tables).encode(), "text/markdown", "Tables as text.")


def rendered_figures(document: Document) -> Iterator[PackFile]:
    for figure in figures_of(document):
        about = f"{figure.title}; its numbers are in tables/{figure.table}.csv."
        for suffix in FIGURE_FORMATS:
            content = figure.render(document, suffix)
            yield PackFile(f"figures/{figure.name}.{suffix}", content, FORMATS[suffix].content_type, about)
