"""Report documents for label files. No database is used. `document_of_labels` does not need Django either."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluation.evidence.evidence import evidence_of_rows
from evaluation.evidence.judges import judge_answers_of_rows, judged_tuples_of_rows
from evaluation.evidence.label_files import (
    REQUIRED_OF_JUDGES,
    Labels,
    read_labels,
    rows_of_labels,
    rules_of_labels,
)
from evaluation.reports.document import build_document, method_of
from kgharvest import code_version
from kgharvest.statistics.paired_tests import MARGIN


def document_of_labels(
    labels: Labels, judge_labels: Labels | None = None, *, duplicates: str = "error", equivalence_margin: float = MARGIN
) -> dict[str, Any]:
    """Return the report's JSON without the date, version, and method.

    labels, judge_labels: a CSV file, a DataFrame, or mappings (docs/label-files.md). duplicates: one of DUPLICATES.
    Raises ImportRefused with all faults, or NoSuchFile.
    """
    people = read_labels(labels)
    judge = None if judge_labels is None else read_labels(judge_labels, REQUIRED_OF_JUDGES)
    rows = rows_of_labels(people, duplicates, judge)
    evidence = evidence_of_rows(rows, rules_of_labels(Path(people.name).stem))
    answers = judge_answers_of_rows(rows, evidence) if judge else None
    judged = judged_tuples_of_rows(rows, evidence) if rows["harvested"] else None
    document = build_document(evidence, equivalence_margin, None, answers, judged)
    # Statements of a file have no ranks. The judge's strata number the statements in the order of the file.
    return document | {"curves": [], "cuts": []}


def report_of_labels(labels: Labels, judge_labels: Labels | None = None, **options: Any) -> dict[str, Any]:
    """Return the document with the date, version, and method. The arguments are those of `document_of_labels`."""
    document = document_of_labels(labels, judge_labels, **options)
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    return document | {"created_at": created_at, "code_version": code_version(), "method": method_of(document)}
