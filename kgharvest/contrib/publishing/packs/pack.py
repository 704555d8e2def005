"""The paper pack of a report: what was frozen, how it looks in a paper, and the raw rows that it is computed from.

The same report makes the same bytes. Nothing is packed that does not verify: the rows are those of today, and where
they give other numbers than the frozen ones, packing is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from annotation.judges.models import JudgeRun
from evaluation.evidence.rows import rows_of_round
from evaluation.evidence.tables import Rows
from evaluation.models import Report
from evaluation.paper import round_facts
from evaluation.paper.files import PackFile
from evaluation.paper.row_files import row_files, values_of_files
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
from kgharvest.contrib.publishing.packs.archive import sums_of
from kgharvest.contrib.publishing.packs.audit_chain import audit_files
from kgharvest.contrib.publishing.packs.companions import rendered_figures, rendered_tables, requirements_file
from kgharvest.contrib.publishing.packs.verification import REPORT, verify_contents
from kgharvest.engine.types import OnProgress, Progress, ignore
from kgharvest.errors import DomainError
from kgharvest.tables.formats import json_text

STAGES = ("reading the rows", "drawing tables and figures", "computing the report again", "writing the files")
ABOUT_FACTS = "Rules, dates and log of the round, which no row tells."


def pack_files(
    report: Report, licence: str = "", authors: Sequence[str] = (), on_progress: OnProgress = ignore
) -> list[PackFile]:
    """Return all files of the report's pack. Raises RoundChanged, OtherTrail.

    licence: an SPDX identifier, authors: "Family, Given" each; without them those that were said about the round.
    """
    on_progress(Progress(STAGES[0], 0))
    scrub = scrubber(report.round, report)
    document, rows, facts = _scrubbed_source(report, scrub)
    on_progress(Progress(STAGES[1], 0))
    files = [
        PackFile(REPORT, json_text(document).encode(), "application/json", "The frozen report."),
        *rendered_tables(document),
        *rendered_figures(document),
        *row_files(rows),
        PackFile(round_facts.PATH, json_text(facts).encode(), "application/json", ABOUT_FACTS),
        *round_facts.preregistration_files(facts),
        *audit_files(report.round, document["audit"], scrub),
    ]
    on_progress(Progress(STAGES[2], 0))
    check_unchanged(report, files)
    on_progress(Progress(STAGES[3], 0))
    study = with_answers(gather_facts(report), licence, authors)
    files.append(requirements_file())
    files += datasheets(study, files)
    files.append(card_file(study, files))
    return [*files, sums_of(files)]


def _scrubbed_source(report: Report, scrub: Scrub) -> tuple[dict[str, Any], Rows, dict[str, Any]]:
    """Return the report's document without names and mail addresses, its raw rows, and the facts about the round."""
    document, round = report.document, report.round
    if missing := {"conduct", "audit", "equivalence_margin"} - {
        name for name in document if document[name] is not None
    }:
        raise DomainError(
            "RoundChanged",
            f"Report {report.pk} was made by kgharvest {report.code_version}, which did not record {min(missing)} yet; "
            "make a new report and pack that.",
        )
    document = scrubbed_report(document, scrub)
    with one_moment():
        facts = round_facts.round_facts(round, document)
        rows = values_of_files(rows_of_round(round, _judge_of(report), for_files=True))
    facts |= {"round": scrub(facts["round"]), "conduct": scrubbed_texts(facts["conduct"], scrub)}
    return document, rows, facts


def _judge_of(report: Report) -> JudgeRun | None:
    """Return the judge run that the report used. Raises RoundChanged if it is gone."""
    judge = report.document.get("judge")
    if judge is None:
        return None
    run = report.round.judge_runs.filter(name=judge["run"]).first()
    if run is None:
        raise DomainError(
            "RoundChanged",
            f"The judge run {judge['run']} that report {report.pk} used is no more; make a new report and pack that.",
        )
    return run


def check_unchanged(report: Report, files: Sequence[PackFile]) -> None:
    """Raise RoundChanged unless the files verify."""
    verification = verify_contents({file.path: file.content for file in files})
    if not verification.problems:
        return
    first, *others = verification.problems
    more = f" and {len(others):,} more differences" if others else ""
    since = "" if report.code_version == code_version() else f", or kgharvest {report.code_version} counted otherwise"
    raise DomainError(
        "RoundChanged",
        f"The round {report.round} has changed since report {report.pk} was made{since} ({first}{more}); make a new "
        "report and pack that.",
    )


# Licence and authors

SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
MOST_AUTHORS = 200
LONGEST_NAME = 200  # characters


def check_licence(licence: str) -> str:
    """Raises BadPackOption."""
    if licence and not SPDX.fullmatch(licence):
        raise DomainError(
            "BadPackOption", f"{licence!r:.80} is no identifier of a licence; give one of SPDX, such as CC-BY-4.0."
        )
    return licence


def check_authors(authors: Sequence[str]) -> Sequence[str]:
    """Raises BadPackOption."""
    if len(authors) > MOST_AUTHORS:
        raise DomainError("BadPackOption", f"These are {len(authors)} authors; give {MOST_AUTHORS} at most.")
    for author in authors:
        if not author.strip() or len(author) > LONGEST_NAME or not author.isprintable():
            raise DomainError("BadPackOption", f'{author!r:.80} is no name; write "Family, Given" on one line.')
    return authors
