"""Export the tuples of a harvest as JSONL, CSV, N-Triples or Turtle, down to a cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from kgharvest.bulk.file_writing import csv_lines
from kgharvest.bulk.pagination import number_in
from kgharvest.entities.tables import EntityIds
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.cuts import Cut, kept_size
from kgharvest.knowledge.rdf import harvest_as_rdf
from kgharvest.models import HarvestedTuple, HarvestJob, Job

ROWS_AT_ONCE = 2000
COLUMNS = ("relation", "model", "setting", "rank", "entities", "surface", "score", "mtl", "job", "original")


def find_harvest_job(name: str) -> HarvestJob:
    """Return the finished job with this number, or the latest with this fingerprint. Raises NotFound."""
    jobs = HarvestJob.objects.with_cell()
    job = jobs.filter(fingerprint=name).order_by("-pk").first()
    if job is None:
        job = jobs.filter(pk=number_in(name)).first()
    if job is None:
        raise NotFound(f"There is no harvest job {name}; the page Harvests and the command harvest name them.")
    return job


@dataclass(frozen=True)
class Included:
    """What an export has beyond the presentable tuples."""

    hidden: bool = False
    sensitive: bool = False


def export_tuples(
    job: HarvestJob, cut: Cut | None = None, file_format: str = "jsonl", included: Included = Included()
) -> Iterator[str]:
    """Yield the lines of an export, best first. Raises NothingToExport or BadCut.

    `cut` keeps the best part of what the LM said; curation and sensitive words then leave gaps in its ranks.
    """
    if job.status != Job.Status.SUCCEEDED:
        raise DomainError(
            "NothingToExport", f"Job {job.pk} is {job.status}; only a job that has succeeded has tuples to export."
        )
    columns = ("rank", "knowledge_tuple__entities", "surface", "score", "mtl", "knowledge_tuple__corrected_entities")
    presentable = job.tuples.presentable(included.hidden, included.sensitive)
    tuples = presentable.filter(rank__lte=kept_size(job, cut)).order_by("rank").values_list(*columns)
    rows = (_row(job, *columns_of_tuple) for columns_of_tuple in tuples.iterator(chunk_size=ROWS_AT_ONCE))
    return EXPORT_FORMATS[file_format].write(job, _with_ids(job, rows))


def _with_ids(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows with the ids of their entities, where the relation's set has a table of labels."""
    for row, ids in EntityIds(job.relation).beside(rows, itemgetter("entities")):
        yield {**row, "ids": ids} if ids else row


def exported(job: HarvestJob, found: Iterable[HarvestedTuple]) -> list[dict[str, Any]]:
    """Return tuples of the job as exports have them."""
    rows = (
        _row(job, each.rank, known.entities, each.surface, each.score, each.mtl, known.corrected_entities)
        for each in found
        for known in [each.knowledge_tuple]
    )
    return list(_with_ids(job, rows))


def _row(job: HarvestJob, *columns: Any) -> dict[str, Any]:
    """Return the row of a tuple. "original": what the LM said, if somebody has corrected it."""
    rank, entities, surface, score, mtl, corrected = columns
    cell = {"relation": job.relation.name, "model": job.language_model.name, "setting": job.setting}
    score = score if job.is_scored else None
    row = {**cell, "rank": rank, "entities": entities, "surface": surface, "score": score, "mtl": mtl}
    row["job"] = job.fingerprint
    if corrected is not None:
        row |= {"entities": [entity.casefold() for entity in corrected], "surface": corrected, "original": surface}
    return row


def _as_jsonl(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield as_json(row) + "\n"


def _as_csv(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    columns = (*COLUMNS, "ids") if EntityIds(job.relation).has_any else COLUMNS
    return csv_lines(columns, map(_with_json_lists, rows))


def _with_json_lists(row: dict[str, Any]) -> dict[str, Any]:
    lists = ("entities", "surface", "original", "ids")
    return row | {column: as_json(row[column]) for column in lists if column in row}


as_json = json.JSONEncoder(ensure_ascii=False).encode


class ExportFormat(NamedTuple):
    label: str
    media_type: str
    write: Callable[[HarvestJob, Iterable[dict[str, Any]]], Iterator[str]]


EXPORT_FORMATS = {
    "jsonl": ExportFormat("JSONL", "application/jsonl; charset=utf-8", _as_jsonl),
    "csv": ExportFormat("CSV", "text/csv; charset=utf-8", _as_csv),
    "nt": ExportFormat("N-Triples", "application/n-triples", partial(harvest_as_rdf, "nt")),
    "ttl": ExportFormat("Turtle", "text/turtle; charset=utf-8", partial(harvest_as_rdf, "ttl")),
}
