"""Export of a harvest's tuples as JSON Lines, CSV, N-Triples or Turtle, up to a cut."""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from kgharvest.bulk.pagination import number_in
from kgharvest.entities.tables import EntityIds
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.cuts import Cut, kept_size
from kgharvest.knowledge.rdf import harvest_as_rdf
from kgharvest.models import HarvestedTuple, HarvestJob, Job
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
    Column("original", Kind.LIST, is_optional=True),  # LM output of a tuple that a researcher corrected
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

    `cut` counts all ranks of the harvest, so excluded hidden and sensitive tuples leave gaps.
    """
    if job.status != Job.Status.SUCCEEDED:
        raise DomainError(
            "NothingToExport", f"Cannot export job {job.pk}: it is {job.status}. Only succeeded jobs have tuples."
        )
    columns = ("rank", "knowledge_tuple__entities", "surface", "score", "mtl", "knowledge_tuple__corrected_entities")
    presentable = job.tuples.presentable(include_hidden, include_sensitive)
    tuples = presentable.filter(rank__lte=kept_size(job, cut)).order_by("rank").values_list(*columns)
    table = _table(job, tuples.iterator(chunk_size=ROWS_AT_ONCE))
    if file_format in ("nt", "ttl"):
        return harvest_as_rdf(file_format, job, table.records())
    return FORMATS[file_format].write(table)


def exported(job: HarvestJob, tuples: Iterable[HarvestedTuple]) -> list[dict[str, Any]]:
    """Return tuples of the job as JSON Lines records."""
    values = (
        (row.rank, fact.entities, row.surface, row.score, row.mtl, fact.corrected_entities)
        for row in tuples
        for fact in [row.knowledge_tuple]
    )
    return list(_table(job, values).records())


def _table(job: HarvestJob, tuples: Iterable[tuple[Any, ...]]) -> Table:
    """tuples: rank, entities, surface, score, MTL, corrected entities."""
    ids = EntityIds(job.relation)
    rows = _rows(job, tuples)
    if not ids.has_any:
        return Table("tuples", "Tuples", COLUMNS, map(Row, rows))
    rows_with_ids = (Row([*row, ids_of_row]) for row, ids_of_row in ids.with_ids(rows, itemgetter(4)))
    return Table("tuples", "Tuples", (*COLUMNS, IDS), rows_with_ids)


def _rows(job: HarvestJob, tuples: Iterable[tuple[Any, ...]]) -> Iterator[list[Any]]:
    cell = (job.relation.name, job.language_model.name, job.setting)
    is_scored, fingerprint = job.is_scored, job.fingerprint
    for rank, entities, surface, score, mtl, corrected in tuples:
        original = None
        if corrected is not None:
            entities, surface, original = [entity.casefold() for entity in corrected], corrected, surface
        yield [*cell, rank, entities, surface, score if is_scored else None, mtl, fingerprint, original]
