"""Sections of study files that are registered in STUDY_SECTIONS of kgharvest.registries."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string
from rest_framework import serializers

from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.entry_points import STUDY_SECTIONS, entry_points
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.pages.number_format import counted
from kgharvest.tables.table import Table

if TYPE_CHECKING:
    from annotation.models import Round
    from evaluation.models import Study
    from kgharvest.harvests.runner import HarvestRequest

APPS = {"preregistration": "publishing", "probes": "probing"}  # sections of optional apps of this project
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

    key: key of the section. needs_round: True if the section is about the round of the study. published_row: serializer
    of the entries of `published.KEY`, if results can be published. All methods except `field`, `check_change`, and
    `exported` are called only for studies with the section.
    """

    key: str
    needs_round: bool = False
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

    def without_files(self, section: Any) -> tuple[Any, list[str]]:
        """Return the stored section for downloads, and a sentence about each file that it only names."""
        return section, []

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

    def exported(self, round: "Round", model_names: Mapping[str, str]) -> Any:
        """Return the section that reproduces this part of the round, or None if the round lacks it.

        model_names: names of LMs in the file, by `str(LanguageModel)`.
        """
        return None


class JobsSection(StudySection):
    """A section with one job per entry. Subclass it, set the attributes, and override the abstract methods.

    entry: serializer of an entry. noun: of a job. jobs: queryset of all jobs of this kind, which have a page.
    """

    entry: type[serializers.Serializer]
    noun: str

    @abstractmethod
    def jobs(self) -> QuerySet[Any]: ...

    @abstractmethod
    def request(self, study: "Study", entry: Mapping[str, Any], path: str) -> Any:
        """Return the request of the job of an entry. path: of the entry, for errors."""

    @abstractmethod
    def inputs(self, study: "Study", request: Any) -> Any:
        """Return all inputs of the job as JSON. A job with the same inputs is not repeated."""

    @abstractmethod
    def queue_request(self, study: "Study", request: Any, unique_key: str, by: Any) -> Job: ...

    def field(self) -> serializers.Field:
        return self.entry(many=True, required=False, allow_empty=False)

    def entries(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the entries of a valid document with all defaults."""
        entries = self.entry(data=document[self.key], many=True)
        entries.is_valid(raise_exception=True)
        return list(entries.validated_data)

    def requests(self, study: "Study") -> list[Any]:
        """Return the request of each entry."""
        entries = self.entries(study.document)
        return [self.request(study, entry, f"{self.key}[{position}]") for position, entry in enumerate(entries)]

    def unique_key(self, study: "Study", request: Any) -> str:
        return f"{self.key}:{study.pk}:{sha256(canonical_json(self.inputs(study, request)))}"

    def jobs_by_key(self, study: "Study", keys: Sequence[str]) -> dict[str, Any]:
        """Return the newest job of each key that has one."""
        jobs = self.jobs().filter(project=study.project_id, unique_key__in=keys)
        return {job.unique_key: job for job in jobs.order_by("pk")}

    def queue(self, study: "Study", by: Any = None) -> list[Job]:
        requests = self.requests(study)
        keys = [self.unique_key(study, request) for request in requests]
        jobs = self.jobs_by_key(study, keys)
        for key, request in zip(keys, requests, strict=True):
            if key not in jobs:
                jobs[key] = self.queue_request(study, request, key, by)
            elif jobs[key].can_retry:
                ledger.retry(jobs[key], by)
                jobs[key].refresh_from_db()
        if study.section_keys.get(self.key) != keys:
            study.section_keys = study.section_keys | {self.key: keys}
            study.save(update_fields=["section_keys", "changed_at"])
        return [job for job in jobs.values() if job.is_unfinished]

    def existing_jobs(self, study: "Study") -> list[Any]:
        """Return the jobs of the entries that have one, in order."""
        keys = study.section_keys.get(self.key, [])
        jobs = self.jobs_by_key(study, keys)
        return [jobs[key] for key in keys if key in jobs]

    def finished(self, study: "Study") -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield each entry that has a finished job, with the job."""
        keys = study.section_keys.get(self.key, [])  # empty until the jobs are queued
        jobs = self.jobs_by_key(study, keys)
        for key, entry in zip(keys, self.entries(study.document), strict=False):
            if key in jobs and jobs[key].status == Job.Status.SUCCEEDED:
                yield entry, jobs[key]

    def stages(self, study: "Study") -> list[Stage]:
        n, jobs = len(study.document[self.key]), self.existing_jobs(study)
        n_done = sum(job.status == Job.Status.SUCCEEDED for job in jobs)
        failed = [job for job in jobs if job.status == Job.Status.FAILED]
        state = "failed" if failed else "done" if n_done == n else "under way" if jobs else "not started"
        reasons = [f"{job}: {job.error}" for job in failed]
        text = " ".join([f"{n_done} of {counted(n, self.noun)} finished", *reasons])
        return [Stage(self.key.capitalize(), state, text, [(str(job), job.get_absolute_url()) for job in jobs])]


def study_sections() -> dict[str, StudySection]:
    """Return the sections of this installation and of installed distributions by key."""
    sections = [*map(import_string, settings.STUDY_SECTIONS), *entry_points(STUDY_SECTIONS).values()]
    return {section.key: section for section in sections}


def sections_of(document: Mapping[str, Any]) -> list[StudySection]:
    """Return the sections in the document, without those of apps that are not installed."""
    return [section for key, section in study_sections().items() if key in document]


def job_sections_of(document: Mapping[str, Any]) -> list[JobsSection]:
    """Return the sections in the document that are lists of jobs."""
    return [section for section in sections_of(document) if isinstance(section, JobsSection)]
