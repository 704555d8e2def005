"""Section `probes` of study files: probes of LMs, and their P@1 beside published numbers (docs/probing.md)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.db.models import QuerySet

from annotation.rounds.serializers import Description, Number, Text
from evaluation.models import Study
from evaluation.scores.facts import BUILT_IN
from evaluation.studies.outputs import measured_on
from evaluation.studies.schema import names_field
from evaluation.studies.sections import StudySection
from evaluation.studies.services import chosen_relations, relations_of
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.api import ProbeOptions, params_of
from kgharvest.contrib.probing.probes.facts import (
    PARTS,
    documents_in,
    probe_relations,
    read_facts,
    read_prompts,
    read_words,
)
from kgharvest.contrib.probing.probes.services import ProbeRequest, check_probe, queue_probe, unique_key_of
from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import get_language_model
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted
from kgharvest.tables.table import Column, Kind, Row, Table


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


class PublishedP1(Description):
    method = Text(max_length=30)
    model = Text(
        max_length=500, default="", help_text="LM. If the study does not probe it, the study's own LMs are compared."
    )
    p1 = Number(min_value=0, max_value=1, help_text="Published P@1, averaged over relations.")
    source = Text(max_length=200, default="", help_text="Publication and table.")


class ProbesSection(StudySection):
    key = "probes"
    noun = "probe"
    entry = ProbeEntry
    file_keys = frozenset({"facts", "prompts", "words"})
    published_row = PublishedP1

    def jobs(self) -> QuerySet:
        return Probe.objects.select_related("language_model")

    def requests(self, study: Study) -> dict[str, ProbeRequest]:
        relations = {relation.name: relation for relation in relations_of(study)}
        requests: dict[str, ProbeRequest] = {}
        for position, entry in enumerate(self.entries(study.document)):
            key = f"{self.key}[{position}]"
            chosen = chosen_relations(relations, entry["relations"], f"{key}.relations")
            try:
                request = _request(entry, chosen, study.name)
                check_probe(request)
            except (DomainError, EngineError) as refusal:
                raise DomainError(getattr(refusal, "code", "BadStudy"), f"{key}: {refusal}") from refusal
            requests.setdefault(unique_key_of(request), request)
        return requests

    def plan_line(self, request: ProbeRequest) -> str:
        facts = [relation.facts for relation in request.relations]
        n_facts = {part: sum(len(parts[part]) for parts in facts) for part in PARTS}
        numbers = ", ".join(f"{n:,} {part}" for part, n in n_facts.items())
        control = ", and all of it with random weights" if request.params.with_control else ""
        return (
            f"{request.language_model.short_name}: {counted(len(request.methods), 'method')} × "
            f"{counted(len(request.relations), 'relation')}, facts: {numbers}{control}"
        )

    def queue(self, request: ProbeRequest, unique_key: str, study: Study, by: Any) -> Probe:
        return queue_probe(request, by, study.project, unique_key)

    def table(self, study: Study, jobs: list[Probe]) -> Table:
        """Return the published P@1 in the order of the file, then methods without a published number."""
        published = study.document.get("published", {})
        measured = [(probe, row) for probe in jobs for row in probe.document["summary"]]
        rows = []
        for row in published.get(self.key, []):
            of_lm = measured_on(row.get("model", ""), measured, lambda entry: str(entry[0].language_model))
            matching = [entry for entry in of_lm if entry[1]["method"] == row["method"]]
            rows += [_row(row["method"], row, entry) for entry in matching or [None]]
        methods = {row["method"] for row in published.get(self.key, [])}
        rows += [_row(row["method"], {}, (probe, row)) for probe, row in measured if row["method"] not in methods]
        notes = [f"Published: {published['source']}."] if self.key in published else []
        notes.append("P@1, averaged over relations, with the 95 % t interval of this study for similar relations.")
        if any(probe.language_model.is_demonstrator for probe in jobs):
            notes.append("* Demonstrator: its P@1 says nothing about other LMs.")
        return Table(self.key, "Published and reproduced P@1", COLUMNS, tuple(rows), tuple(notes))


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


def _request(entry: Mapping[str, Any], relations: Sequence[Relation], study: str) -> ProbeRequest:
    """Return the request of an entry. Reads its files. Raises NoSuchFile, ImportRefused, NotProbed, or NotFound."""
    names = [relation.name for relation in relations]
    facts, prompts, words = (Path(entry[name]) if entry[name] else None for name in ("facts", "prompts", "words"))
    return ProbeRequest(
        language_model=get_language_model(entry["model"]),
        relations=probe_relations(
            relations,
            read_facts(documents_in(facts), names) if facts else None,
            read_prompts(documents_in(prompts), names) if prompts else None,
        ),
        methods=entry["methods"],
        name=entry.get("name") or study,
        facts=facts.name if facts else BUILT_IN,
        params=params_of(entry, read_words(words.name, read_bytes(words)) if words else [], get_language_model),
    )


SECTION = ProbesSection()
