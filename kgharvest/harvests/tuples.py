"""Tuples from files and to files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from kgharvest.bulk.external_sort import ExternalSort
from kgharvest.bulk.file_reading import read_chunks, read_lines
from kgharvest.bulk.file_writing import csv_lines
from kgharvest.errors import BadEntry, DomainError, ImportRefused, NotFound
from kgharvest.harvests.cuts import Cut, StoredScores, by_score
from kgharvest.knowledge.tuple_files import FORMATS, Format, guess_format, read_tuples
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestJob, Job, LanguageModel, Relation
from kgharvest.version import code_version

ROWS_AT_ONCE = 2000
COLUMNS = ("relation", "model", "setting", "rank", "entities", "surface", "score", "mtl", "job", "original")


@dataclass(frozen=True)
class Cell:
    """What a job is a harvest of."""

    relation: Relation
    language_model: LanguageModel
    setting: str


# -- reading -----------------------------------------------------------------------------------------------------------


def import_tuples(path: Path, cell: Cell, file_format: str = "auto", by=None) -> HarvestJob:
    """Store the tuples of a file as a finished job of `cell`, ranked by score; of equal tuples the better stays.

    file_format: a key of FORMATS, or "auto". Raises ImportRefused with the bad rows; then nothing is stored.
    """
    form = FORMATS[guess_format(read_chunks(path)) if file_format == "auto" else file_format]
    with ExternalSort() as rows:
        n_rows = rows.add(_good_rows(path, cell.relation, form))
        if not n_rows:
            raise ImportRefused(path.name, [BadEntry("file", "has no tuples")])
        now = timezone.now()
        job = HarvestJob(
            kind="import",
            status=Job.Status.SUCCEEDED,
            relation=cell.relation,
            language_model=cell.language_model,
            setting=cell.setting,
            origin=HarvestJob.Origin.IMPORTED,
            score_scale=form.score_scale,
            summary={"source": path.name, "rows": n_rows, "code_version": code_version()},
            n_tuples=len(rows),
            fingerprint=_fingerprint(path, cell),
            created_by=by,
            started_at=now,
            finished_at=now,
        )
        return _store_import(job, rows)


def _good_rows(path: Path, relation: Relation, form: Format) -> Iterator[TupleRow]:
    """Yield the rows of a file. Raises ImportRefused at its end if one of them is bad."""
    lines = read_lines(path) if form.is_by_line else read_chunks(path)
    faults: list[BadEntry] = []
    n_faults = 0
    for row in read_tuples(lines, relation, form):
        if not isinstance(row, BadEntry):
            yield row
            continue
        n_faults += 1
        if n_faults <= ImportRefused.SHOWN:
            faults.append(row)
    if faults:
        raise ImportRefused(path.name, faults, n_faults)


def _fingerprint(path: Path, cell: Cell) -> str:
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    imported = json.dumps([content, cell.relation.path, str(cell.language_model), cell.setting])
    return hashlib.sha256(imported.encode()).hexdigest()[:16]


@transaction.atomic
def _store_import(job: HarvestJob, rows: Iterable[TupleRow]) -> HarvestJob:
    job.save()
    store_tuples(job, rows)
    return job


# -- writing -----------------------------------------------------------------------------------------------------------


def find_harvest_job(name: str) -> HarvestJob:
    """Return the finished job with this number, or the latest with this fingerprint. Raises NotFound."""
    jobs = HarvestJob.objects.with_cell()
    job = jobs.filter(fingerprint=name).order_by("-pk").first()
    if job is None and name.isdecimal():
        job = jobs.filter(pk=int(name)).first()
    if job is None:
        raise NotFound(f"There is no harvest job {name}; the page Harvests and the command harvest name them.")
    return job


EXPORT_FORMATS = {  # and their media types
    "jsonl": "application/jsonl; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "nt": "application/n-triples",
    "ttl": "text/turtle; charset=utf-8",
}


class NothingToExport(DomainError):
    """A job that has not succeeded."""


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
        raise NothingToExport(f"Job {job.pk} is {job.status}; only a job that has succeeded has tuples to export.")
    rows = _export_rows(job, kept_size(job, cut), included)
    return WRITERS[file_format](job, rows)


def kept_size(job: HarvestJob, cut: Cut | None) -> int:
    """Return how many of the job's tuples `cut` keeps; None keeps all."""
    if cut is None:
        return job.n_tuples
    return by_score(job, cut).cut.size(StoredScores(job))


def _export_rows(job: HarvestJob, size: int, included: Included) -> Iterator[dict[str, Any]]:
    columns = ("rank", "knowledge_tuple__entities", "surface", "score", "mtl", "knowledge_tuple__corrected_entities")
    presentable = job.tuples.presentable(included.hidden, included.sensitive)
    tuples = presentable.filter(rank__lte=size).order_by("rank").values_list(*columns)
    cell = {"relation": job.relation.name, "model": job.language_model.name, "setting": job.setting}
    for rank, entities, surface, score, mtl, corrected in tuples.iterator(chunk_size=ROWS_AT_ONCE):
        found = {"rank": rank, "entities": entities, "surface": surface, "score": score, "mtl": mtl}
        yield {**cell, **found, "job": job.fingerprint, **_correction(surface, corrected)}


def _correction(surface: list[str], corrected: list[str] | None) -> dict[str, list[str]]:
    """Return the fields of a tuple that a correction changes, none without one. "original" is what the LM said."""
    if corrected is None:
        return {}
    return {"entities": [entity.casefold() for entity in corrected], "surface": corrected, "original": surface}


def _as_jsonl(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield as_json(row) + "\n"


def _as_csv(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return csv_lines(COLUMNS, map(_with_json_lists, rows))


def _with_json_lists(row: dict[str, Any]) -> dict[str, Any]:
    lists = ("entities", "surface", "original") if "original" in row else ("entities", "surface")
    return row | {column: as_json(row[column]) for column in lists}


def _as_ntriples(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    from kgharvest.knowledge.rdf import as_ntriples  # rdflib takes half a second to load

    return as_ntriples(job, rows)


def _as_turtle(job: HarvestJob, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    from kgharvest.knowledge.rdf import as_turtle

    return as_turtle(job, rows)


as_json = json.JSONEncoder(ensure_ascii=False).encode
WRITERS = {"jsonl": _as_jsonl, "csv": _as_csv, "nt": _as_ntriples, "ttl": _as_turtle}
