"""Sections of study files that are registered in STUDY_SECTIONS of kgharvest.registries."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string
from rest_framework import serializers

from kgharvest.models import Job
from kgharvest.tables.table import Table

if TYPE_CHECKING:
    from annotation.models import Round
    from evaluation.models import Study
    from kgharvest.harvests.runner import HarvestRequest

APPS = {"preregistration": "publishing"}  # sections that belong to an optional app of this project
KeyPath = tuple[str | int, ...]  # keys and positions, such as ("harvests", 0, "settings")


class Fault(NamedTuple):
    """An error of a study file. reason: a sentence that starts with the key, without the final full stop."""

    path: KeyPath
    reason: str


class Stage(NamedTuple):
    """state: "done", "under way", "waiting" (for people), "failed", or "not started". links: (label, URL)."""

    name: str
    state: str
    text: str
    links: list[tuple[str, str]]


class StudySection(ABC):
    """A section of study files. Subclass it, set the attributes, and override `field` and the steps of the section.

    key: key of the section. needs_round: True if the section is about the round of the study. has_files: True if
    `write` writes files. published_row: serializer of the entries of `published.KEY`, if results can be published. All
    methods except `field`, `check_change`, and `section_of` are called only for studies with the section.
    """

    key: str
    needs_round: bool = False
    has_files: bool = False
    published_row: type[serializers.Serializer] | None = None

    @abstractmethod
    def field(self) -> serializers.Field:
        """Return the field that validates the section, which is optional."""

    def faults(self, document: Mapping[str, Any]) -> Iterator[Fault]:
        """Yield disagreements between the section and the rest of a document whose sections are valid."""
        return iter(())

    def with_files_read(self, section: Any, folder: Path) -> Any:
        """Return the section with the contents of files instead of their names. Raises NoSuchFile, ImportRefused."""
        return section

    def check(self, study: "Study", requests: Sequence["HarvestRequest"]) -> None:
        """Raise the errors that need the database. requests: all harvests of the study."""
        return

    def plan_lines(self, study: "Study", requests: Sequence["HarvestRequest"]) -> Iterator[str]:
        """Yield the work of the section."""
        return iter(())

    def check_change(self, study: "Study", document: Mapping[str, Any]) -> None:
        """Raise StudyFrozen if the document's section cannot replace that of the study, which has a round.

        Called if they differ; either can be missing.
        """
        return

    def round_opened(self, study: "Study", by: Any = None) -> None:
        """Do what must precede the first judgment, in the transaction that opens the round and at each later run."""
        return

    def queue(self, study: "Study", by: Any = None) -> list[Job]:
        """Queue the missing jobs of the section, and failed ones again; return the unfinished ones.

        Called in a transaction that locks the study, after its harvests and judge runs.
        """
        return []

    def stages(self, study: "Study") -> list[Stage]:
        return []

    def published_tables(self, study: "Study") -> list[Table]:
        """Return results beside the published ones."""
        return []

    def write(self, study: "Study", folder: Path) -> Iterator[Path]:
        """Write the missing and outdated files of the section to the folder; yield their paths. Raises NotWritable."""
        return iter(())

    def section_of(self, round: "Round", model_names: Mapping[str, str]) -> Any:
        """Return the section that reproduces this part of the round, or None if the round lacks it.

        model_names: names of LMs in the file, by `str(LanguageModel)`.
        """
        return None


def study_sections() -> dict[str, StudySection]:
    """Return the registered sections by key."""
    return {section.key: section for section in map(import_string, settings.STUDY_SECTIONS)}


def sections_of(document: Mapping[str, Any]) -> list[StudySection]:
    """Return the sections in the document, without those of apps that are not installed."""
    return [section for key, section in study_sections().items() if key in document]
