"""How much of what a round was drawn from is not in a reference KG, which is a file of triples."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from django.db.models import F

from annotation.models import Round
from evaluation.evidence.arrays import CellKey
from evaluation.evidence.queries import cells_with_strata
from evaluation.statistics.overlap import Novelty, Wanted
from kgharvest.bulk.file_reading import parse_json
from kgharvest.errors import DomainError
from kgharvest.models import HarvestedTuple

ROWS_AT_ONCE = 10_000
FORMATS = ".csv, .tsv or .jsonl"


class BadReference(DomainError):
    """A file of triples that cannot be read."""


def compare_with_reference(round: Round, reference: Path) -> dict[str, Any]:
    """Return the block `novelty` of docs/report-json.md. Raises BadReference."""
    tuples_of = {key: [_tuples(stratum) for stratum in strata] for key, strata in cells_with_strata(round).items()}
    wanted = Wanted()
    for sources in tuples_of.values():
        for entities in _all(sources):
            wanted.want(entities)
    n_triples = wanted.look_through(read_triples(reference))
    cells = [{**key._asdict(), **_entry(wanted.novelty(_all(sources)))} for key, sources in tuples_of.items()]
    return {
        "reference": {"name": reference.name, "sha256": _digest(reference), "n_triples": n_triples},
        "cells": cells,
        "totals": [
            {"model": model, "setting": setting, **_entry(wanted.novelty(_of_side(tuples_of, model, setting)))}
            for model, setting in dict.fromkeys((key.model, key.setting) for key in tuples_of)
        ],
    }


def _tuples(stratum) -> Callable[[], Iterator[list[str]]]:
    """Return what gives the entities of all that a stratum was drawn from: what the cut kept, or what was judged."""
    if stratum.job_id is None:
        rows = stratum.draws.values_list("task__knowledge_tuple__entities", flat=True)
    else:
        ranked = HarvestedTuple.objects.filter(job=stratum.job_id, rank__gte=stratum.rank_from)
        rows = ranked.filter(rank__lte=stratum.rank_to).values_list(F("knowledge_tuple__entities"), flat=True)
    return lambda: rows.order_by().iterator(ROWS_AT_ONCE)


def _all(sources: Iterable[Callable[[], Iterator[list[str]]]]) -> Iterator[list[str]]:
    for source in sources:
        yield from source()


def _of_side(tuples_of: dict[CellKey, list], model: str | None, setting: str | None) -> Iterator[list[str]]:
    for key, sources in tuples_of.items():
        if (key.model, key.setting) == (model, setting):
            yield from _all(sources)


def _entry(novelty: Novelty) -> dict[str, Any]:
    return {
        **novelty._asdict(),
        "entity_novelty": novelty.n_new_entities / novelty.n_entities if novelty.n_entities else None,
        "tuple_novelty": novelty.n_new_tuples / novelty.n_tuples if novelty.n_tuples else None,
    }


# -- the reference -----------------------------------------------------------------------------------------------------


def read_triples(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (head, tail) of each triple, one a line: head, relation, tail in CSV or TSV; JSONL see docs/commands.md."""
    readers = {".csv": _separated(","), ".tsv": _separated("\t"), ".jsonl": _json_lines}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadReference(f"{path.name} is no file of triples that can be read; give one that ends in {FORMATS}.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from reader(file, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadReference(f"{path.name} cannot be read ({error}); give a file in UTF-8.") from None


def _separated(delimiter: str) -> Callable[[TextIO, str], Iterator[tuple[str, str]]]:
    def read(file: TextIO, name: str) -> Iterator[tuple[str, str]]:
        quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
        for row in (rows := csv.reader(file, delimiter=delimiter, quoting=quoting)):
            if row and len(row) < 3:
                raise BadReference(f"{name}, line {rows.line_num}: write head, relation and tail.")
            if row:
                yield row[0], row[2]

    return read


def _json_lines(file: TextIO, name: str) -> Iterator[tuple[str, str]]:
    """Each line is [head, relation, tail], {"head", "tail"}, or {"entities"}: the first and the last count."""
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            found = parse_json(line)
            if isinstance(found, dict):
                found = found["entities"] if "entities" in found else [found["head"], found["tail"]]
            head, tail = found[0], found[-1]
            yield head + "", tail + ""
        except (ValueError, KeyError, IndexError, TypeError):
            raise BadReference(
                f'{name}, line {number}: write ["head", "relation", "tail"] or {{"head": ..., "tail": ...}}.'
            ) from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
