"""Report sections that apps add to REPORT_SECTIONS of kgharvest.registries. For an example, see docs/extending.md."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluation.rendering.documents import Document
from kgharvest.entry_points import REPORT_SECTIONS, entry_points
from kgharvest.tables.table import Table

if TYPE_CHECKING:
    from annotation.models import Round
    from evaluation.evidence.evidence import Evidence

Facts = Mapping[str, Any]  # plain JSON with the facts of a section, from the database or a replication package


class ReportSection(ABC):
    """A section of reports. Subclass it, set the attributes, and override `gather` and `entry`.

    key: key of the section's entry in the document; absent from reports without the section. title: heading on the
    page. method: paragraphs appended to the report's text on methods. tables: functions that take the document and
    return a table. If the document lacks the key, the table has no rows. template: content of the section on the page,
    without heading, rendered with the context of _report_body.html; the default shows the tables.
    """

    key: str
    title: str
    template: str = "evaluation/reports/_added_section.html"
    method: str = ""
    tables: Sequence[Callable[[Document], Table]] = ()

    @abstractmethod
    def gather(self, round: Round) -> Facts | None:
        """Return the section's facts about the round from the database, or None to omit the section."""

    @abstractmethod
    def entry(self, document: Document, facts: Facts) -> dict[str, Any]:
        """Return the section's entry, computed from the rest of the document and the facts."""

    def prepared(self, evidence: Evidence, facts: Facts) -> Evidence:
        """Return the evidence with the facts that other sections need."""
        return evidence

    def packed_facts(self, round: Round, entry: Mapping[str, Any]) -> Facts:
        """Return the facts that reproduce the entry of a frozen report, for its replication package."""
        return self.gather(round) or {}

    def headline(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the section's values for lists of reports."""
        return {}

    def badge(self, entry: Mapping[str, Any]) -> str:
        """Return the short text of a badge below the finding. If it is empty, there is no badge."""
        return ""


def report_sections() -> list[ReportSection]:
    """Return the sections of optional apps and of installed distributions."""
    from django.conf import settings  # Django may be missing: the Python API computes documents without it
    from django.utils.module_loading import import_string

    sections = [import_string(path) for path in settings.REPORT_SECTIONS]
    return [*sections, *entry_points(REPORT_SECTIONS).values()]


def sections_of(document: Mapping[str, Any]) -> list[ReportSection]:
    """Return the sections that the document contains and whose apps are installed."""
    return [section for section in report_sections() if document.get(section.key)]
