"""Tuples from files and to files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone

from kgharvest.errors import BadEntry, DomainError, ImportRefused, NotFound
from kgharvest.models import HarvestJob, Job, LanguageModel, Relation
from kgharvest.services.cuts import Cut, by_score
from kgharvest.services.knowledge import ROWS_AT_ONCE, TupleRow, store_tuples
from kgharvest.services.reading import Line, fault_of_entities, read_json_array, read_json_lines, read_text
from kgharvest.services.scores import StoredScores
from kgharvest.services.writing import csv_lines
from kgharvest.version import code_version

COLUMNS = ("relation", "model", "setting", "rank", "entities", "surface", "score", "mtl", "job", "original")


@dataclass(frozen=True)
class Cell:
    """What a job is a harvest of."""

    relation: Relation
    language_model: LanguageModel
    setting: str


# -- reading -----------------------------------------------------------------------------------------------------------


class ReadTuples(NamedTuple):
    """What a file holds: rows in its order, and what their scores are."""

    rows: list[TupleRow]
    score_scale: HarvestJob.ScoreScale


def import_tuples(path: Path, cell: Cell, file_format: str = "auto", by=None) -> HarvestJob:
    """Store the tuples of a file as a finished job of `cell`, ranked by score; of equal tuples the better stays.

    file_format: a key of FORMATS, or "auto". Raises ImportRefused with all bad rows; then nothing is stored.
    """
    text = read_text(path)
    read = FORMATS[guess_format(text) if file_format == "auto" else file_format]
    try:
        found = read(text, cell.relation)
    except ImportRefused as refusal:
        raise ImportRefused(path.name, refusal.entries) from None
    if not found.rows:
        raise ImportRefused(path.name, [BadEntry("file", "has no tuples")])
    rows = best_first(found.rows)
    now = timezone.now()
    job = HarvestJob(
        kind="import",
        status=Job.Status.SUCCEEDED,
        relation=cell.relation,
        language_model=cell.language_model,
        setting=cell.setting,
        origin=HarvestJob.Origin.IMPORTED,
        score_scale=found.score_scale,
        summary={"source": path.name, "rows": len(found.rows), "code_version": code_version()},
        n_tuples=len(rows),
        fingerprint=_fingerprint(text, cell),
        created_by=by,
        started_at=now,
        finished_at=now,
    )
    return _store_import(job, rows)


def _fingerprint(text: str, cell: Cell) -> str:
    imported = json.dumps([text, cell.relation.path, str(cell.language_model), cell.setting])
    return hashlib.sha256(imported.encode()).hexdigest()[:16]


@transaction.atomic
def _store_import(job: HarvestJob, rows: Sequence[TupleRow]) -> HarvestJob:
    job.save()
    store_tuples(job, rows)
    return job


def best_first(rows: Iterable[TupleRow]) -> list[TupleRow]:
    """Return the rows by score, each tuple once; equal scores keep their order."""
    best: dict[tuple[str, ...], TupleRow] = {}
    for row in sorted(rows, key=lambda row: -row.score):
        best.setdefault(row.entities, row)
    return list(best.values())


def guess_format(text: str) -> str:
    """Return the key of FORMATS that `text` looks like."""
    return {"[": "reference", "{": "jsonl"}.get(text.lstrip()[:1], "csv")


def read_own_lines(text: str, relation: Relation) -> ReadTuples:
    """Read this project's JSONL; the fields "entities" and "score" are needed."""
    return ReadTuples(_rows_or_refusal(read_json_lines(text), relation, _own_row), HarvestJob.ScoreScale.NATS)


def read_csv(text: str, relation: Relation) -> ReadTuples:
    """Read CSV with the columns of the export; "entities" (a JSON list) and "score" are needed."""
    return ReadTuples(_rows_or_refusal(_csv_lines(text), relation, _own_row), HarvestJob.ScoreScale.NATS)


def read_reference(text: str, relation: Relation) -> ReadTuples:
    """Read the reference code's ent_tuples.json: [[entities, share of the list], ...]."""
    scale = HarvestJob.ScoreScale.LOG_SHARE
    return ReadTuples(_rows_or_refusal(read_json_array(text), relation, _reference_row), scale)


FORMATS: dict[str, Callable[[str, Relation], ReadTuples]] = {
    "jsonl": read_own_lines,
    "csv": read_csv,
    "reference": read_reference,
}


class BadRow(Exception):
    """What is wrong with one row."""


def _rows_or_refusal(
    lines: Iterable[Line | BadEntry], relation: Relation, read_row: Callable[[Any, Relation], TupleRow]
) -> list[TupleRow]:
    rows, faults = [], []
    for line in lines:
        if isinstance(line, BadEntry):
            faults.append(line)
            continue
        try:
            rows.append(read_row(line.value, relation))
        except BadRow as fault:
            faults.append(BadEntry(f"line {line.number}", str(fault)))
    if faults:
        raise ImportRefused("file", faults)
    return rows


def _own_row(fields: Any, relation: Relation) -> TupleRow:
    if not isinstance(fields, dict):
        raise BadRow("is no JSON object")
    named = fields.get("relation") or relation.name
    if named != relation.name:
        raise BadRow(f"belongs to the relation {named!r}, not {relation.name!r}; import one relation at a time")
    surface = fields.get("surface") or fields.get("entities")
    mtl = fields.get("mtl")
    row = _row(surface, _number(fields.get("score"), "score"), relation)
    if mtl is None:
        return row
    return row._replace(mtl=_number(mtl, "mtl"))


def _reference_row(pair: Any, relation: Relation) -> TupleRow:
    if not isinstance(pair, list) or len(pair) != 2:
        raise BadRow("is no pair of entities and weight")
    share = _number(pair[1], "weight")
    if not 0 < share <= 1:
        raise BadRow(f"has the weight {share:g}, which is no share of a list (above 0, at most 1)")
    return _row(pair[0], log(share), relation)


def _row(surface: Any, score: float, relation: Relation) -> TupleRow:
    if fault := fault_of_entities(surface, relation.arity):
        raise BadRow(fault)
    written = tuple(entity.strip() for entity in surface)
    return TupleRow(tuple(entity.casefold() for entity in written), written, score, None)


def _number(value: Any, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    raise BadRow(f"has no number as {name} ({value!r})")


def _csv_lines(text: str) -> Iterator[Line | BadEntry]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if missing := {"entities", "score"} - set(reader.fieldnames or ()):
            yield BadEntry("line 1", f"has no column {' or '.join(sorted(missing))}")
            return
        for fields in reader:
            yield _csv_line(reader.line_num, fields)
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


def _csv_line(number: int, fields: dict[str, str]) -> Line | BadEntry:
    try:
        return Line(number, _typed(fields))
    except ValueError as error:
        return BadEntry(f"line {number}", str(error))


def _typed(fields: dict[str, str]) -> dict[str, Any]:
    """Return the cells of a CSV row as the values that JSONL would have. Raises ValueError with the column."""
    typed: dict[str, Any] = {"relation": (fields.get("relation") or "").removeprefix("'") or None}
    for column in ("entities", "surface", "score", "mtl"):
        cell = fields.get(column)
        try:
            typed[column] = json.loads(cell) if cell else None
        except json.JSONDecodeError:
            raise ValueError(f"column {column}: {cell!r} is no {_meant(column)}") from None
    return typed


def _meant(column: str) -> str:
    return "number" if column in ("score", "mtl") else 'JSON list such as ["dog", "swim"]'


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


EXPORT_FORMATS = {"jsonl": "application/jsonl; charset=utf-8", "csv": "text/csv; charset=utf-8"}  # media types


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
    return _as_csv(rows) if file_format == "csv" else _as_jsonl(rows)


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


def _as_jsonl(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False) + "\n"


def _as_csv(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    return csv_lines(COLUMNS, map(_with_json_lists, rows))


def _with_json_lists(row: dict[str, Any]) -> dict[str, Any]:
    lists = ("entities", "surface", "original") if "original" in row else ("entities", "surface")
    return row | {column: json.dumps(row[column], ensure_ascii=False) for column in lists}
