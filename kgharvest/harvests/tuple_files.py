"""Tuple files: export of a harvest as JSON Lines, CSV, N-Triples, or Turtle, and import as a finished harvest."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from kgharvest import code_version
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_chunks, read_lines
from kgharvest.bulk.pagination import number_in
from kgharvest.entities.tables import EntityIds, canonicalizer, with_canonical_entities
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused, NotFound
from kgharvest.harvests.cuts import Cut, kept_size
from kgharvest.knowledge.rdf import harvest_as_rdf
from kgharvest.knowledge.tuple_files import IMPORT_FORMATS, ExternalSort, Format, guess_format, read_tuples
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestedTuple, HarvestJob, Job, LanguageModel, Project, Relation
from kgharvest.names import check_name
from kgharvest.tables.formats import FORMATS, added_formats
from kgharvest.tables.table import Column, Kind, Row, Table

ROWS_AT_ONCE = 2000
COLUMNS = (
    Column("relation"),
    Column("model"),
    Column("setting"),
    Column("rank", Kind.COUNT),
    Column("entities", Kind.LIST),
    Column("surface", Kind.LIST),
    Column("score", Kind.NUMBER),
    Column("mtl", Kind.NUMBER),
    Column("job"),
    Column("original", Kind.LIST, is_optional=True),  # contains the LM's output for a tuple that a researcher corrected
    Column("references", Kind.LIST, is_optional=True),
)
IDS = Column("ids", Kind.LIST, is_optional=True)
FILE_FORMATS = ("jsonl", "csv", "nt", "ttl", *added_formats())


def find_harvest_job(name: str) -> HarvestJob:
    """Return the latest job with this fingerprint, or the job with this number. Raises NotFound."""
    jobs = HarvestJob.objects.with_cell()
    job = jobs.filter(fingerprint=name).order_by("-pk").first() or jobs.filter(pk=number_in(name)).first()
    if job is None:
        raise NotFound(f"Harvest job {name} not found. See the Harvests page or the output of the command harvest.")
    return job


def export_tuples(
    job: HarvestJob,
    cut: Cut | None = None,
    file_format: str = "jsonl",
    include_hidden: bool = False,
    include_sensitive: bool = False,
) -> Iterator[str]:
    """Yield the lines of an export, best first. Raises DomainError NothingToExport, or BadCut.

    `cut` counts all ranks of the harvest, including those of hidden or sensitive tuples, which the export may exclude.
    """
    if job.status != Job.Status.SUCCEEDED:
        raise DomainError(
            "NothingToExport", f"Cannot export job {job.pk}: it is {job.status}. Only succeeded jobs have tuples."
        )
    columns = ("rank", "knowledge_tuple__entities", "surface", "score", "mtl", "knowledge_tuple__corrected_entities")
    columns = (*columns, "references")
    presentable = job.tuples.presentable(include_hidden, include_sensitive)
    tuples = presentable.filter(rank__lte=kept_size(job, cut)).order_by("rank").values_list(*columns)
    table = _table(job, tuples.iterator(chunk_size=ROWS_AT_ONCE))
    if file_format in ("nt", "ttl"):
        return harvest_as_rdf(file_format, job, table.records())
    return FORMATS[file_format].write(table)


def exported(job: HarvestJob, tuples: Iterable[HarvestedTuple]) -> list[dict[str, Any]]:
    """Return tuples of the job as JSON Lines records."""
    values = (
        (row.rank, fact.entities, row.surface, row.score, row.mtl, fact.corrected_entities, row.references)
        for row in tuples
        for fact in [row.knowledge_tuple]
    )
    return list(_table(job, values).records())


def _table(job: HarvestJob, tuples: Iterable[tuple[Any, ...]]) -> Table:
    """Return the table of an export. tuples: rows of the columns in `export_tuples`."""
    ids = EntityIds(job.relation)
    rows = _rows(job, tuples)
    if not ids.has_any:
        return Table("tuples", "Tuples", COLUMNS, map(Row, rows))
    rows_with_ids = (Row([*row, ids_of_row]) for row, ids_of_row in ids.with_ids(rows, itemgetter(4)))
    return Table("tuples", "Tuples", (*COLUMNS, IDS), rows_with_ids)


def _rows(job: HarvestJob, tuples: Iterable[tuple[Any, ...]]) -> Iterator[list[Any]]:
    cell = (job.relation.name, job.language_model.name, job.setting)
    is_scored, fingerprint = job.is_scored, job.fingerprint
    for rank, entities, surface, score, mtl, corrected, references in tuples:
        original = None
        if corrected is not None:
            entities, surface, original = [entity.casefold() for entity in corrected], corrected, surface
        yield [*cell, rank, entities, surface, score if is_scored else None, mtl, fingerprint, original, references]


# Import


@dataclass(frozen=True)
class Cell:
    """Relation, LM, and setting of a harvest. The constructor raises BadName if the setting is invalid."""

    relation: Relation
    language_model: LanguageModel
    setting: str

    def __post_init__(self) -> None:
        check_name(self.setting, HarvestJob._meta.get_field("setting").max_length, "setting")


def import_tuples(path: Path, cell: Cell, file_format: str = "auto", project: Project | None = None) -> HarvestJob:
    """Store the tuples of a file as a finished job, ranked by score. If a tuple is repeated, the best one is stored.

    file_format: key of IMPORT_FORMATS, or "auto". project: required if there are several projects. Raises ImportRefused
    with the invalid rows, or ProjectNotNamed. Stores nothing in these cases.
    """
    with prepared_import(path, cell, file_format, project=project) as store:
        return store()


@contextmanager
def prepared_import(
    path: Path, cell: Cell, file_format: str = "auto", by=None, project: Project | None = None
) -> Iterator[Callable[[], HarvestJob]]:
    """Read and sort a file for `import_tuples`. Yield a function that stores the tuples in one transaction.

    project: required if `by` may work in several projects. Also raises NotAllowed.
    """
    project = project_for(by, project)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    identity = json.dumps([sha256, cell.relation.path, str(cell.language_model), cell.setting])
    tuple_format = IMPORT_FORMATS[guess_format(read_chunks(path)) if file_format == "auto" else file_format]
    with ExternalSort() as rows:
        valid = _valid_rows(path, cell.relation, tuple_format)
        n_rows = rows.add(with_canonical_entities(valid, canonicalizer(cell.relation)))
        if not n_rows:
            raise ImportRefused(path.name, [BadEntry("file", "has no tuples")])
        now = timezone.now()
        job = HarvestJob(
            kind="import",
            project=project,
            status=Job.Status.SUCCEEDED,
            relation=cell.relation,
            language_model=cell.language_model,
            setting=cell.setting,
            origin=HarvestJob.Origin.IMPORTED,
            score_scale=tuple_format.score_scale,
            summary={"source": path.name, "rows": n_rows, "code_version": code_version()},
            n_tuples=rows.size_of(),
            fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:16],
            created_by=by,
            started_at=now,
            finished_at=now,
        )

        @transaction.atomic
        def store() -> HarvestJob:
            job.save()
            store_tuples(job, rows.rows_of())
            return job

        yield store


def _valid_rows(path: Path, relation: Relation, tuple_format: Format) -> Iterator[TupleRow]:
    """Yield the valid rows of a file. Raises ImportRefused at the end of the file if any row is invalid."""
    lines = read_lines(path) if tuple_format.is_by_line else read_chunks(path)
    faults = Faults()
    for row in read_tuples(lines, relation, tuple_format):
        if isinstance(row, BadEntry):
            faults.add(row)
        else:
            yield row
    faults.refuse(path.name)
