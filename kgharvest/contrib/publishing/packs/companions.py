"""Package files derived from the report: rendered tables and figures, and pinned requirements."""

import re
from collections.abc import Iterator
from importlib import metadata

from django.conf import settings

from evaluation.rendering.documents import Document
from evaluation.rendering.figures.drawing import FIGURE_FORMATS
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import report_tables, tables_to_read
from kgharvest import code_version
from kgharvest.contrib.publishing.packs.archive import PackFile
from kgharvest.tables.formats import FORMATS, csv_text, markdown_of
from kgharvest.tables.latex import latex_of

NAME_OF_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


# Packages


def requirements_file() -> PackFile:
    """Pin the packages of requirements.txt and their dependencies to the installed versions."""
    text = (settings.BASE_DIR / "requirements.txt").read_text(encoding="utf-8")
    waiting = [_normalized(line.split("#")[0].split("=")[0].strip()) for line in text.splitlines()]
    versions: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if not name or name in versions:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # optional
            continue
        versions[name] = package.version
        if name != "torch":
            waiting += [_normalized(line) for line in package.requires or [] if "extra ==" not in line]
    versions.pop("torch", None)
    lines = [
        f"# kgharvest {code_version()}: with the source at this version, `python manage.py verify` needs these.",
        *(f"{name}=={version}" for name, version in sorted(versions.items())),
    ]
    about = "Versions of the packages that created this package."
    return PackFile("requirements.txt", ("\n".join(lines) + "\n").encode(), "text/plain", about)


def _normalized(requirement: str) -> str:
    match = NAME_OF_REQUIREMENT.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


# Tables and figures


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
