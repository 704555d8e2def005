"""Sections of study files that apps add to STUDY_SECTIONS of kgharvest.registries (docs/extending.md)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string
from rest_framework import serializers

from kgharvest.entry_points import STUDY_SECTIONS, entry_points
from kgharvest.models import Job
from kgharvest.tables.table import Table

if TYPE_CHECKING:
    from evaluation.models import Study

APPS = {"probes": "probing"}  # sections that belong to an optional app of this project


class StudySection:
    """A list of jobs that studies run, such as probes. Subclass it and register an instance.

    key: key of study files. noun: of an entry, in stages and plans. entry: serializer of an entry. file_keys: keys of
    entries that name a file or folder, relative to the study file. published_row: serializer of `published.KEY`.
    """

    key: str
    noun: str
    entry: type[serializers.Serializer]
    file_keys: frozenset[str] = frozenset()
    published_row: type[serializers.Serializer]

    def jobs(self) -> QuerySet:
        """Return all jobs of the section's kind. They have `get_absolute_url`."""
        raise NotImplementedError

    def requests(self, study: "Study") -> dict[str, Any]:
        """Return the request of each entry by the `unique_key` of its job, in the order of the file.

        Equal inputs have equal keys. Raises DomainError for entries that cannot run, without loading an LM.
        """
        raise NotImplementedError

    def plan_line(self, request: Any) -> str:
        """Return the work of the request in words."""
        raise NotImplementedError

    def queue(self, request: Any, unique_key: str, study: "Study", by: Any) -> Job:
        """Queue a job with this key in the project of the study."""
        raise NotImplementedError

    def table(self, study: "Study", jobs: list[Any]) -> Table:
        """Return the results of the study's finished jobs beside the published numbers."""
        raise NotImplementedError

    def entries(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the entries of a valid document with all defaults."""
        serializer = self.entry(data=document[self.key], many=True)
        serializer.is_valid(raise_exception=True)
        return list(serializer.validated_data)


def study_sections() -> dict[str, StudySection]:
    """Return the sections of optional apps and of installed distributions by key."""
    sections = [*map(import_string, settings.STUDY_SECTIONS), *entry_points(STUDY_SECTIONS).values()]
    return {section.key: section for section in sections}


def sections_of(document: Mapping[str, Any]) -> list[StudySection]:
    """Return the sections in the document, without those of apps that are not installed."""
    return [section for key, section in study_sections().items() if key in document]
