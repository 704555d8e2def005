"""Files of a pack beside its rows: rendered tables and figures, and the package versions for verification."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from django.conf import settings

from evaluation.paper.files import PackFile
from evaluation.rendering.documents import Document
from evaluation.rendering.figures.drawing import FIGURE_FORMATS
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import report_tables, tables_to_read
from kgharvest import code_version
from kgharvest.tables.formats import FORMATS, csv_text, markdown_of
from kgharvest.tables.latex import latex_of

NAME_OF_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


# Packages


def requirements_file() -> PackFile:
    """Pin the packages of requirements.txt, and their dependencies, to the installed versions."""
    text = (settings.BASE_DIR / "requirements.txt").read_text(encoding="utf-8")
    asked = [line.split("#")[0].split("=")[0].strip() for line in text.splitlines()]
    lines = [
        f"# kgharvest {code_version()}: with the source at this version, `python manage.py verify` needs these.",
        *(f"{name}=={version}" for name, version in sorted(_installed(filter(None, asked)).items())),
    ]
    about = "Versions of the packages that created this pack."
    return PackFile("requirements.txt", ("\n".join(lines) + "\n").encode(), "text/plain", about)


def _installed(names: Iterator[str]) -> dict[str, str]:
    """Return the versions of packages and their dependencies. Packages that are not installed are not required."""
    versions: dict[str, str] = {}
    waiting = [name for asked in names if (name := _normalized(asked))]
    while waiting:
        name = waiting.pop()
        if name in versions:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        versions[name] = package.version
        needed = (package.requires or []) if name != "torch" else []
        waiting += [_normalized(line) for line in needed if "extra ==" not in line]
    return {name: version for name, version in versions.items() if name != "torch"}


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
