"""What stands beside the numbers of a pack: the data set's card, and packages to verify with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib import metadata

from django.conf import settings

from evaluation.paper.files import PackFile
from evaluation.paper.rows.tables import TABLES
from evaluation.rendering.documents import Document
from evaluation.rendering.figures.canvas import FIGURE_FORMATS
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.document import report_tables, tables_to_read
from kgharvest import code_version
from kgharvest.tables.formats import FORMATS, csv_text, markdown_of, markdown_text
from kgharvest.tables.latex import latex_of

CARD = "README.md"
NAME_OF_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


# -- packages ----------------------------------------------------------------------------------------------------------


def requirements_file() -> PackFile:
    """Pin the packages that the source asks for, and what these need, to the versions that are installed here."""
    text = (settings.BASE_DIR / "requirements.txt").read_text(encoding="utf-8")
    asked = [line.split("#")[0].split("=")[0].strip() for line in text.splitlines()]
    lines = [
        f"# kgharvest {code_version()}: with the source at this version, `python manage.py verify` needs these.",
        *(f"{name}=={version}" for name, version in sorted(_installed(filter(None, asked)).items())),
    ]
    about = "Versions of the packages that made this pack."
    return PackFile("requirements.txt", ("\n".join(lines) + "\n").encode(), "text/plain", about)


def _installed(names: Iterator[str]) -> dict[str, str]:
    """Return the versions of packages and of all that they need; what is not installed here is not needed here."""
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


# -- the card ----------------------------------------------------------------------------------------------------------


def card_file(document: Document, files: Sequence[PackFile], licence: str, title: str) -> PackFile:
    """Return the data set's card as Hugging Face reads it: configurations in YAML, then what each file is.

    title: of the data, as people said it; the name of the round if empty.
    """
    title = title or document["round"]
    paths = {file.path for file in files}
    configs = [table for table in TABLES if table.parquet in paths]
    header = ["---", f"pretty_name: {json.dumps(title, ensure_ascii=False)}"]  # JSON is YAML
    header += [f"license: {json.dumps(licence.lower())}"] if licence else []
    header += ["tags:", "- knowledge-graph", "- language-model-evaluation", "- human-annotation"]
    header += ["configs:"] if configs else []
    for table in configs:
        default = ["  default: true"] if table.name == "judgments" else []
        header += [f"- config_name: {table.name}", f"  data_files: {table.parquet}", *default]
    return PackFile(
        CARD, "\n".join([*header, "---", "", *_card(document, files, title)]).encode(), "text/markdown", "This card."
    )


def _card(document: Document, files: Sequence[PackFile], title: str) -> Iterator[str]:
    yield f"# {markdown_text(title)}"
    yield ""
    yield (
        f"The paper pack of a report of kgharvest on {document['n_tasks']:,} statements from language models and "
        f"{document['n_judgments']:,} counted judgments: its numbers, tables and figures, and the raw rows that they "
        "are computed from."
    )
    for note in document["notes"]:
        yield ""
        yield markdown_text(note)
    yield ""
    yield "## Verify"
    yield ""
    yield (
        "Get the source of kgharvest at the version that `requirements.txt` names, and in a fresh environment of "
        "Python 3.11 to 3.13:"
    )
    yield ""
    yield "```sh\npip install -r PACK/requirements.txt\npython manage.py verify PACK\n```"
    yield ""
    yield (
        "Every number of the report is computed again from the raw rows; what differs is named. Files alone are "
        "checked by `sha256sum -c SHA256SUMS`."
    )
    yield ""
    yield "## Files"
    yield ""
    yield from (f"- `{file.path}`: {markdown_text(file.description)}" for file in files)
    yield ""
    yield "## Columns"
    for file in files:
        if file.columns and file.path.endswith(".parquet"):
            yield ""
            yield f"### {file.path}"
            yield ""
            yield from (f"- `{column.name}` ({column.type}): {column.description}" for column in file.columns)
    yield ""
    yield "## People"
    yield ""
    yield (
        "Annotators are under pseudonyms. Names, accounts, invites, comments and what they were asked about themselves "
        "are not in the pack."
    )
    yield ""


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
