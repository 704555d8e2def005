"""Novelty: the share of a round's population that is absent from a reference KG.

The reference KG is a file of triples.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from annotation.models import Round, Stratum
from evaluation.evidence.rows import cells_with_strata
from kgharvest.bulk.file_reading import parse_json
from kgharvest.errors import DomainError
from kgharvest.models import HarvestedTuple

ROWS_AT_ONCE = 10_000
FORMATS = ".csv, .tsv, or .jsonl"


def compare_with_reference(round: Round, reference: Path) -> dict[str, Any]:
    """Return the object `novelty` of docs/report-json.md. Raises DomainError BadReference."""
    strata_of = cells_with_strata(round)
    index = ReferenceIndex()
    for entities in _harvested(strata_of.values()):
        index.add_harvested(entities)
    n_triples = index.read_reference(read_triples(reference))
    with reference.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "reference": {"name": reference.name, "sha256": sha256, "n_triples": n_triples},
        "cells": [
            {**key._asdict(), **_entry(index.novelty(_harvested([strata])))} for key, strata in strata_of.items()
        ],
        "totals": [
            {
                **side._asdict(),
                **_entry(index.novelty(_harvested(own for key, own in strata_of.items() if key.side == side))),
            }
            for side in dict.fromkeys(key.side for key in strata_of)
        ],
    }


def _harvested(strata_of_cells: Iterable[Iterable[Stratum]]) -> Iterator[list[str]]:
    """Yield the entities of each tuple in the strata. A stratum without a harvest contains only its judged tuples."""
    for stratum in chain.from_iterable(strata_of_cells):
        if stratum.job_id is None:
            rows = stratum.draws.values_list("task__knowledge_tuple__entities", flat=True)
        else:
            ranked = HarvestedTuple.objects.filter(job=stratum.job_id, rank__gte=stratum.rank_from)
            rows = ranked.filter(rank__lte=stratum.rank_to).values_list("knowledge_tuple__entities", flat=True)
        yield from rows.order_by().iterator(ROWS_AT_ONCE)


def _entry(novelty: Novelty) -> dict[str, Any]:
    return {
        **novelty._asdict(),
        "entity_novelty": novelty.n_new_entities / novelty.n_entities if novelty.n_entities else None,
        "tuple_novelty": novelty.n_new_tuples / novelty.n_tuples if novelty.n_tuples else None,
    }


class Novelty(NamedTuple):
    """Numbers of distinct entities and tuples: all, and those absent from the reference KG."""

    n_entities: int
    n_new_entities: int
    n_tuples: int
    n_new_tuples: int


def comparable(entity: str) -> str:
    """Return the entity in case-folded form, with one space in place of each run of spaces and underscores."""
    return " ".join(entity.casefold().replace("_", " ").split())


@dataclass
class ReferenceIndex:
    """Harvested entities and tuples, and those found in the reference KG.

    Only harvested entities are kept in memory, so the reference KG can have any size.
    """

    entities: set[str] = field(default_factory=set)
    ends: set[tuple[str, str]] = field(default_factory=set)
    reference_entities: set[str] = field(default_factory=set)
    reference_ends: set[tuple[str, str]] = field(default_factory=set)

    def add_harvested(self, entities: Sequence[str]) -> None:
        names = [comparable(entity) for entity in entities]
        self.entities.update(names)
        self.ends.add((names[0], names[-1]))

    def read_reference(self, triples: Iterable[tuple[str, str]]) -> int:
        """Record which harvested entities and tuples occur in the (head, tail) pairs. Return the number of pairs."""
        n_triples = 0
        for head, tail in triples:
            n_triples += 1
            ends = comparable(head), comparable(tail)
            self.reference_entities.update(self.entities.intersection(ends))
            if ends in self.ends:
                self.reference_ends.add(ends)
        return n_triples

    def novelty(self, tuples: Iterable[Sequence[str]]) -> Novelty:
        """Return the novelty of `tuples`. They must have been added to the index before the reference KG was read."""
        distinct_tuples = {tuple(map(comparable, entities)) for entities in tuples}
        entities = {entity for names in distinct_tuples for entity in names}
        n_new_tuples = sum((names[0], names[-1]) not in self.reference_ends for names in distinct_tuples)
        return Novelty(len(entities), len(entities - self.reference_entities), len(distinct_tuples), n_new_tuples)


def read_triples(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (head, tail) of each triple. CSV and TSV lines are head, relation, tail; for JSONL see docs/commands.md."""
    readers = {".csv": _separated(","), ".tsv": _separated("\t"), ".jsonl": _json_lines}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DomainError(
            "BadReference", f"Unknown format of the reference KG: {path.name}. Use a file that ends in {FORMATS}."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from reader(file, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise DomainError("BadReference", f"Cannot read {path.name}: {error}. Use a UTF-8 file.") from None
    except csv.Error as error:
        raise DomainError(
            "BadReference", f"{path.name} is not valid CSV: {error}. Use the columns head, relation, and tail."
        ) from None


def _separated(delimiter: str) -> Callable[[TextIO, str], Iterator[tuple[str, str]]]:
    def read(file: TextIO, name: str) -> Iterator[tuple[str, str]]:
        quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
        for row in (rows := csv.reader(file, delimiter=delimiter, quoting=quoting)):
            if row and len(row) < 3:
                raise DomainError(
                    "BadReference", f"{name}, line {rows.line_num}: missing column. Write head, relation, and tail."
                )
            if row:
                yield row[0], row[2]

    return read


def _json_lines(file: TextIO, name: str) -> Iterator[tuple[str, str]]:
    """Read lines of [head, relation, tail], {"head", "tail"}, or {"entities"} (first and last entity)."""
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            triple = parse_json(line)
            if isinstance(triple, dict):
                triple = triple["entities"] if "entities" in triple else [triple["head"], triple["tail"]]
            head, tail = triple[0], triple[-1]
            yield head + "", tail + ""
        except (ValueError, KeyError, IndexError, TypeError):
            raise DomainError(
                "BadReference",
                f'{name}, line {number}: invalid triple. Write ["head", "relation", "tail"] or {{"head": ..., "tail": '
                "...}.",
            ) from None
