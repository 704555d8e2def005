"""Section `probes` of study files: probes of LMs, and their P@1 beside published numbers (docs/probing.md)."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.db.models import QuerySet

from annotation.rounds.serializers import Description, Number, Text
from evaluation.models import Study
from evaluation.scores.facts import BUILT_IN
from evaluation.studies.outputs import measured_on
from evaluation.studies.schema import NOT_WRITTEN, names_field
from evaluation.studies.sections import JobsSection
from evaluation.studies.services import relations_of
from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.api import ProbeOptions, params_of
from kgharvest.contrib.probing.probes.facts import (
    PARTS,
    documents_in,
    read_words,
    relations_from,
)
from kgharvest.contrib.probing.probes.services import ProbeRequest, check_probe, queue_probe
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import get_language_model
from kgharvest.harvests.runner import HarvestRequest
from kgharvest.models import Job
from kgharvest.pages.number_format import counted
from kgharvest.tables.table import Column, Kind, Row, Table

FILES = ("facts", "prompts", "words")


class ProbeEntry(ProbeOptions):
    """Probe of an LM for known facts, as in the command probe."""

    relations = names_field("Names of relations of this study. Default: all binary relations with facts.")
    facts = Text(
        max_length=1000,
        default="",
        help_text="FOLDER/RELATION/{train,dev,test}.jsonl, a ZIP file of FOLDER, or one file, relative to the study "
        "file. Default: facts of the embedded LMs' world.",
    )
    prompts = Text(
        max_length=1000,
        default="",
        help_text="Additional prompts, relative to the study file: FOLDER/RELATION.jsonl, or LAMA's relations file.",
    )
    words = Text(
        max_length=1000,
        default="",
        help_text="Words among which ranks are counted, one per line, in a file relative to the study file.",
    )
    checksum = Text(
        max_length=64,
        default="",
        help_text="Checksum of the files. Computed whenever the study file is read.",
        style=NOT_WRITTEN,
    )


class PublishedP1(Description):
    method = Text(max_length=30)
    model = Text(
        max_length=500,
        default="",
        help_text="LM of the publication. If the study does not probe this LM, its own LMs are compared.",
    )
    p1 = Number(min_value=0, max_value=1, help_text="Published P@1, averaged over relations.")
    source = Text(max_length=200, default="", help_text="Publication and table.")


class ProbesSection(JobsSection):
    key = "probes"
    noun = "probe"
    entry = ProbeEntry
    published_row = PublishedP1

    def jobs(self) -> QuerySet[Probe]:
        return Probe.objects.select_related("language_model")

    def with_files_read(self, section: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
        """Return the entries with absolute paths and a checksum of the files: facts can be too large to store twice."""
        read = []
        for position, entry in enumerate(section):
            paths = {name: (folder / entry[name]).absolute() for name in FILES if entry.get(name)}
            entry = entry | {name: str(path) for name, path in paths.items()}
            with _named(f"{self.key}[{position}]"):
                read.append(entry | ({"checksum": _checksum(paths)} if paths else {}))
        return read

    def without_files(self, section: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the entries with the bare names of their files, and a sentence about each."""
        written, notes = [], []
        for position, entry in enumerate(section):
            names = {option: Path(entry[option]).name for option in FILES if entry.get(option)}
            written.append({option: value for option, value in entry.items() if option != "checksum"} | names)
            notes += [
                f"{self.key}[{position}].{option}: copy {name} into the folder of this file. It does not contain it."
                for option, name in names.items()
            ]
        return written, notes

    def check(self, study: Study, requests: Sequence[HarvestRequest]) -> None:
        self.requests(study)

    def plan_lines(self, study: Study, requests: Sequence[HarvestRequest]) -> Iterator[str]:
        planned = {self.unique_key(study, request): request for request in self.requests(study)}
        probes = self.jobs_by_key(study, list(planned))
        for key, request in planned.items():
            if key not in probes or probes[key].can_retry:
                yield _plan_line(request)

    def request(self, study: Study, entry: Mapping[str, Any], path: str) -> ProbeRequest:
        with _named(path):
            request = _request(study, entry)
            check_probe(request)
            return request

    def inputs(self, study: Study, request: ProbeRequest) -> Any:
        relations = [asdict(relation) for relation in request.relations]
        return [request.language_model.pk, list(request.methods), relations, asdict(request.params)]

    def queue_request(self, study: Study, request: ProbeRequest, unique_key: str, by: Any) -> Job:
        return queue_probe(request, by, study.project, unique_key)

    def published_tables(self, study: Study) -> list[Table]:
        probes = [probe for _, probe in self.finished(study)]
        return [_table(study.document.get("published", {}), probes)] if probes else []


SECTION = ProbesSection()


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the path of the entry to errors."""
    try:
        yield
    except (DomainError, EngineError) as refusal:
        raise DomainError(getattr(refusal, "code", "BadStudy"), f"{path}: {refusal}") from refusal


def _checksum(paths: Mapping[str, Path]) -> str:
    """Return the SHA-256 checksum of files, folders, and ZIP files by option, with the names of their documents.

    Raises NoSuchFile, NotProbed, or ImportRefused.
    """
    entries = []
    for option, path in paths.items():
        for document in documents_in(path):
            with document.open_file() as file:
                entries.append([option, document.source, hashlib.file_digest(file, "sha256").hexdigest()])
    return sha256(canonical_json(entries))


def _plan_line(request: ProbeRequest) -> str:
    facts = [relation.facts for relation in request.relations]
    n_facts = {part: sum(len(parts[part]) for parts in facts) for part in PARTS}
    numbers = ", ".join(f"{n:,} {part}" for part, n in n_facts.items())
    control = ", and all of it with random weights" if request.params.with_control else ""
    return (
        f"probe of {request.language_model.short_name}: {counted(len(request.methods), 'method')} × "
        f"{counted(len(request.relations), 'relation')}, facts: {numbers}{control}"
    )


def _table(published: Mapping[str, Any], probes: Sequence[Probe]) -> Table:
    """Return the published P@1 in the order of the file, then methods without a published number."""
    published_rows = published.get(SECTION.key, [])
    measured = [(probe, row) for probe in probes for row in probe.document["summary"]]
    rows = []
    for row in published_rows:
        of_lm = measured_on(row.get("model", ""), measured, lambda entry: str(entry[0].language_model))
        matching = [entry for entry in of_lm if entry[1]["method"] == row["method"]]
        rows += [_row(row["method"], row, entry) for entry in matching or [None]]
    methods = {row["method"] for row in published_rows}
    rows += [_row(row["method"], {}, (probe, row)) for probe, row in measured if row["method"] not in methods]
    notes = [f"Published: {published['source']}."] if published_rows else []
    notes.append("P@1, averaged over relations, with the 95 % t interval of this study for similar relations.")
    if any(probe.language_model.is_demonstrator for probe in probes):
        notes.append("* Demonstrator: its P@1 says nothing about other LMs.")
    return Table(SECTION.key, "Published and reproduced P@1", COLUMNS, tuple(rows), tuple(notes))


COLUMNS = (
    Column("method"),
    Column("published LM"),
    Column("LM"),
    Column("published", Kind.SHARE),
    Column("this study", Kind.SHARE),
    Column("low", Kind.SHARE),
    Column("high", Kind.SHARE),
    Column("difference", Kind.POINTS),
    Column("source"),
)


def _row(method: str, published: Mapping[str, Any], entry: tuple[Probe, Mapping[str, Any]] | None) -> Row:
    lm, ours, theirs = "", {}, published.get("p1")
    if entry:
        probe, ours = entry
        lm = f"{probe.language_model.short_name}{'*' if probe.language_model.is_demonstrator else ''}"
    measures = [ours.get(name) for name in ("p1", "p1_low", "p1_high")]
    difference = None if None in (theirs, measures[0]) else measures[0] - theirs
    return Row((
        *(method, published.get("model", ""), lm, theirs, *measures, difference),
        published.get("source", ""),
    ))  # fmt: skip


def _request(study: Study, entry: Mapping[str, Any]) -> ProbeRequest:
    """Return the request of an entry. Reads its files.

    Raises BadStudy, NoSuchFile, ImportRefused, NotProbed, or NotFound.
    """
    relations = {relation.name: relation for relation in relations_of(study)}
    if unknown := [name for name in entry["relations"] if name not in relations]:
        raise DomainError("BadStudy", f"relations: the study has no relation {unknown[0]!r}. Add it to relations.")
    names = entry["relations"] or list(relations)
    paths = {name: Path(entry[name]) for name in FILES if entry[name]}
    facts, prompts, words = map(paths.get, FILES)
    request = ProbeRequest(
        language_model=get_language_model(entry["model"]),
        relations=relations_from(
            [relations[name] for name in names],
            facts and documents_in(facts),
            prompts and documents_in(prompts),
            entry["split"],
            entry.get("seed", 0),
        ),
        methods=entry["methods"],
        name=entry.get("name") or study.name,
        facts=facts.name if facts else BUILT_IN,
        params=params_of(entry, read_words(words.name, read_bytes(words)) if words else [], get_language_model),
    )
    if paths and _checksum(paths) != entry["checksum"]:
        raise DomainError("BadStudy", f"{', '.join(paths)}: files have changed meanwhile. Start the command again.")
    return request
