"""Tables and figures of a report as files of its pack."""

from __future__ import annotations

from collections.abc import Iterator

from evaluation.paper.files import PackFile
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.rendering.formats import table_csv, write_markdown
from evaluation.rendering.latex import write_latex
from evaluation.rendering.tables import Document
from evaluation.reports.document import report_tables

FIGURES = {"svg": "image/svg+xml", "pdf": "application/pdf"}


def rendered_tables(document: Document) -> Iterator[PackFile]:
    for table in report_tables(document):
        yield PackFile(f"tables/{table.name}.csv", table_csv(table).encode(), "text/csv", table.caption)
    yield PackFile("tables/tables.tex", write_latex(document).encode(), "application/x-tex", "Tables for LaTeX.")
    yield PackFile("tables/tables.md", write_markdown(document).encode(), "text/markdown", "Tables as text.")


def rendered_figures(document: Document) -> Iterator[PackFile]:
    for figure in figures_of(document):
        about = f"{figure.title}; its numbers are in tables/{figure.table}.csv."
        for suffix, media_type in FIGURES.items():
            content = figure.render(document, suffix)
            yield PackFile(f"figures/{figure.name}.{suffix}", content, media_type, about)
