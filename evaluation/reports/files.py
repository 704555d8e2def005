"""The files that a report can be had as: those of its document alone, and the page with the rows behind it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from evaluation.models import Report
from evaluation.rendering.evidence_page import write_evidence_page
from evaluation.rendering.formats import FORMATS, Format
from evaluation.reports.evidence_rows import gather_rows


class ReportFile(NamedTuple):
    """bytes_of: may refuse with a DomainError where the file rests on rows. title: what it holds, for people."""

    bytes_of: Callable[[Report], bytes]
    content_type: str
    title: str
    suffix: str


def _of_document(chosen: Format, report: Report) -> bytes:
    return chosen.bytes_of(report.document)


def _evidence_page(report: Report) -> bytes:
    return write_evidence_page(report.document, gather_rows(report)).encode()


FILES = {
    **{
        name: ReportFile(partial(_of_document, chosen), chosen.content_type, chosen.title, f"report.{name}")
        for name, chosen in FORMATS.items()
    },
    "evidence": ReportFile(
        _evidence_page,
        "text/html; charset=utf-8",
        "every number with its statements and labels, one page",
        "evidence.html",
    ),
}
