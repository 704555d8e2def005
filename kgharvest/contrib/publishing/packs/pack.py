"""Replication package of a report: the frozen report, rendered tables and figures, and the rows behind every number.

Packages are reproducible byte by byte. Each new package is verified. If the current rows give other numbers than the
frozen report, the package is not created.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from django.conf import settings

from evaluation.evidence.rows import rows_of_round
from evaluation.evidence.tables import Rows
from evaluation.models import Report
from evaluation.rendering.documents import Document
from evaluation.rendering.figures.drawing import FIGURE_FORMATS
from evaluation.rendering.figures.report_figures import figures_of
from evaluation.reports.services import one_moment
from kgharvest import code_version
from kgharvest.contrib.publishing.datasheets.documents import card_file, datasheets
from kgharvest.contrib.publishing.datasheets.facts import (
    Scrub,
    gather_facts,
    scrubbed_report,
    scrubbed_texts,
    scrubber,
    with_answers,
)
from kgharvest.contrib.publishing.packs import row_files
from kgharvest.contrib.publishing.packs.archive import PackFile, sums_of
from kgharvest.contrib.publishing.packs.verification import REPORT, rendered_tables, verify_contents
from kgharvest.engine.types import OnProgress, Progress, ignore
from kgharvest.errors import DomainError
from kgharvest.tables.formats import FORMATS, json_text

ABOUT_FACTS = "Rules, dates, and log of the round, which are not in the rows."
SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
MOST_AUTHORS = 200
LONGEST_NAME = 200  # maximum number of characters of an author
REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def pack_files(
    report: Report, licence: str = "", authors: Sequence[str] = (), on_progress: OnProgress = ignore
) -> list[PackFile]:
    """Return all files of the report's package. Raises RoundChanged or OtherTrail.

    licence: an SPDX identifier. authors: names of the form "Family, Given". Both default to the paper metadata of the
    round.
    """
    on_progress(Progress("reading the rows", 0))
    scrub = scrubber(report.round, report)
    document, rows, facts = _scrubbed_source(report, scrub)
    on_progress(Progress("rendering tables and figures", 0))
    files = [
        PackFile(REPORT, json_text(document).encode(), "application/json", "The frozen report."),
        *rendered_tables(document),
        *rendered_figures(document),
        *row_files.row_files(rows),
        PackFile(row_files.FACTS, json_text(facts).encode(), "application/json", ABOUT_FACTS),
        *row_files.preregistration_files(facts),
        *row_files.audit_files(report.round, document["audit"], scrub),
    ]
    on_progress(Progress("recomputing the report", 0))
    check_unchanged(report, files)
    on_progress(Progress("writing the files", 0))
    study = with_answers(gather_facts(report), licence, authors)
    files.append(requirements_file())
    files += datasheets(study, files)
    files.append(card_file(study, files))
    return [*files, sums_of(files)]


def _scrubbed_source(report: Report, scrub: Scrub) -> tuple[dict[str, Any], Rows, dict[str, Any]]:
    """Return the report's scrubbed document, the raw rows, and the scrubbed facts about the round.

    Raises RoundChanged if an older version created the report, or if the report uses a deleted judge run.
    """
    document, round = report.document, report.round
    recorded = {name for name, value in document.items() if value is not None}
    if missing := {"conduct", "audit", "equivalence_margin"} - recorded:
        raise DomainError(
            "RoundChanged",
            f"Report {report.pk} was created by kgharvest {report.code_version}, which did not record {min(missing)}. "
            "Create a new report.",
        )
    document = scrubbed_report(document, scrub)
    judge, run = report.document.get("judge"), None
    if judge is not None and not (run := round.judge_runs.filter(name=judge["run"]).first()):
        raise DomainError(
            "RoundChanged", f"Report {report.pk} uses the deleted judge run {judge['run']}. Create a new report."
        )
    with one_moment():
        facts = row_files.round_facts(round, document)
        rows = row_files.values_of_files(rows_of_round(round, run, for_files=True))
    facts |= {"round": scrub(facts["round"]), "conduct": scrubbed_texts(facts["conduct"], scrub)}
    return document, rows, facts


def check_unchanged(report: Report, files: Sequence[PackFile]) -> None:
    """Raise RoundChanged unless the rows in the files yield the numbers of the report."""
    verification = verify_contents({file.path: file.content for file in files})
    if not verification.problems:
        return
    first, *others = verification.problems
    more = f" and {len(others):,} more differences" if others else ""
    other = report.code_version if report.code_version != code_version() else ""
    since = f", or kgharvest {other} computed the report differently" if other else ""
    raise DomainError(
        "RoundChanged",
        f"Round {report.round} has changed since report {report.pk} was created{since} ({first}{more}). Create a new "
        "report.",
    )


def rendered_figures(document: Document) -> Iterator[PackFile]:
    for figure in figures_of(document):
        about = f"{figure.title}; its numbers are in tables/{figure.table}.csv."
        for suffix in FIGURE_FORMATS:
            content = figure.render(document, suffix)
            yield PackFile(f"figures/{figure.name}.{suffix}", content, FORMATS[suffix].content_type, about)


def requirements_file() -> PackFile:
    """Return a file that pins the packages of requirements.txt and their dependencies to the installed versions."""
    pending = (settings.BASE_DIR / "requirements.txt").read_text(encoding="utf-8").splitlines()
    versions: dict[str, str] = {}
    while pending:
        match = REQUIREMENT_NAME.match(pending.pop())  # None for a comment or an empty line
        name = re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
        if name and name not in ("torch", *versions):
            with suppress(metadata.PackageNotFoundError):  # optional and not installed
                package = metadata.distribution(name)
                versions[name] = package.version
                pending += [line for line in package.requires or [] if "extra ==" not in line]
    lines = [
        f"# Packages that `python manage.py verify` of kgharvest {code_version()} requires",
        *(f"{name}=={version}" for name, version in sorted(versions.items())),
    ]
    about = "Versions of the Python packages that were used to create these files."
    return PackFile("requirements.txt", ("\n".join(lines) + "\n").encode(), "text/plain", about)


def check_options(licence: str, authors: Sequence[str]) -> None:
    """Raise BadPackOption for an invalid SPDX identifier or names."""
    if licence and not SPDX.fullmatch(licence):
        message = f"Invalid license: {licence!r:.80}. Use an SPDX identifier, for example CC-BY-4.0."
        raise DomainError("BadPackOption", message)
    if len(authors) > MOST_AUTHORS:
        raise DomainError("BadPackOption", f"Too many authors: {len(authors)}. The maximum is {MOST_AUTHORS}.")
    for author in authors:
        if not author.strip() or len(author) > LONGEST_NAME or not author.isprintable():
            raise DomainError("BadPackOption", f'Invalid author: {author!r:.80}. Use "Family, Given" on one line.')
