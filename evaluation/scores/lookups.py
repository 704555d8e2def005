"""Scores that are looked up instead of asked of the LM: of other systems, of judge runs, by how known entities are."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO, StringIO
from math import isfinite, log1p
from pathlib import PurePath
from typing import Any

import numpy as np
from django.db.models import Count

from annotation.judges.models import JudgeRun
from annotation.judging.models import Label
from evaluation.scores.facts import ScoredRelation
from evaluation.scores.negative_sampling import Entities, folded
from evaluation.scores.scorers import Scorer, Tick
from kgharvest.bulk.file_reading import CONTROL, Line, entities_error, lines_of, parse_json, read_json_lines
from kgharvest.errors import BadEntry, Faults
from kgharvest.models import EntityOccurrence

MOST_SCORES = 200_000
MOST_SYSTEMS = 20
LONGEST_NAME = 100
ENTITIES_AT_ONCE = 500
UNSURE = 0.5  # an answer that names neither True nor False
SHARE_OF_TRUE = {Label.TRUE.value: 1.0, Label.FALSE.value: 0.0}

# By system: by relation, as set/name or name, the scores of its tuples, case-folded.
Table = dict[str, dict[str, list[tuple[Entities, float]]]]


def lookup_scorer(by_relation: Mapping[str, Iterable[tuple[Entities, float]]]) -> Scorer:
    """Return the scores of a table; NaN for a tuple that it lacks."""

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        rows = by_relation.get(relation.path) or by_relation.get(relation.name) or ()
        own = {tuple(entities): value for entities, value in rows}
        return np.array([own.get(folded(entities), np.nan) for entities in tuples])

    return score


# -- other systems -----------------------------------------------------------------------------------------------------


def scores_of_content(content: bytes, source: str) -> Table:
    """Return the scores of a file, of one or more systems; of a tuple that comes twice the last.

    JSONL, or CSV or TSV with a header: "relation", "score", and "entities" (a JSON list) or "head" and "tail"; "system"
    names whose scores they are, else "model" and "setting", as harvests are exported, else the name of the file.
    Raises ImportRefused with every bad line.
    """
    faults = Faults()
    table: dict[str, dict[str, dict[Entities, float]]] = defaultdict(lambda: defaultdict(dict))
    n = 0
    for line in _lines(lines_of(BytesIO(content), source)):
        fault = line if isinstance(line, BadEntry) else _taken(line, PurePath(source).stem, table)
        if fault:
            faults.add(fault)
        n += 1
    if not n:
        faults.add(BadEntry("the file", "holds no score"))
    if n > MOST_SCORES:
        faults.add(BadEntry("the file", f"holds more than {MOST_SCORES:,} scores; give those of the evaluation alone"))
    if len(table) > MOST_SYSTEMS:
        faults.add(BadEntry("the file", f"holds scores of more than {MOST_SYSTEMS} systems; split it"))
    faults.refuse(source)
    return {
        system: {relation: list(scores.items()) for relation, scores in by_relation.items()}
        for system, by_relation in table.items()
    }


def _lines(lines: Iterator[str]) -> Iterator[Line | BadEntry]:
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        yield from read_json_lines([first, *lines])
        return
    if not first:
        return
    reader = csv.DictReader(StringIO(first + "".join(lines)), delimiter="\t" if "\t" in first else ",")
    names = set(reader.fieldnames or ())
    if not {"relation", "score"} <= names or not ({"entities"} <= names or {"head", "tail"} <= names):
        yield BadEntry("line 1", "has no columns relation, score, and entities or head and tail")
        return
    try:
        for fields in reader:
            yield _typed(fields, reader.line_num)
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


def _typed(fields: dict[str, Any], number: int) -> Line | BadEntry:
    typed = dict(fields)
    try:
        typed["score"] = float(fields["score"] or "")
        typed["entities"] = parse_json(fields["entities"]) if "entities" in fields else [fields["head"], fields["tail"]]
    except (ValueError, TypeError):
        return BadEntry(f"line {number}", "has no number as score, or no JSON list as entities")
    return Line(number, typed)


def _taken(line: Line, source: str, table: dict[str, dict[str, dict[Entities, float]]]) -> BadEntry | None:
    """Add a line's score to the table; return what is wrong with it otherwise."""
    where, row = f"line {line.number}", line.value
    if not isinstance(row, dict) or not isinstance(row.get("relation"), str):
        return BadEntry(where, 'is no {"relation": "...", "entities": ["...", "..."], "score": ...}')
    entities, score = row.get("entities"), row.get("score")
    if reason := entities_error(entities, max(2, len(entities)) if isinstance(entities, list) else 2):
        return BadEntry(where, reason)
    if not isinstance(score, int | float) or isinstance(score, bool) or not isfinite(score):
        return BadEntry(where, f"has no number as score ({score!r:.40})")
    parts = [row["system"]] if row.get("system") else [row.get("model"), row.get("setting")]
    system = " × ".join(str(part) for part in parts if part) or source
    if len(system) > LONGEST_NAME or CONTROL.search(system):
        return BadEntry(where, f"names a system in more than {LONGEST_NAME} characters, or with a control character")
    table[system][row["relation"]][folded(tuple(entity.strip() for entity in entities))] = float(score)
    return None


# -- judges ------------------------------------------------------------------------------------------------------------


def judge_scores(run: JudgeRun) -> dict[str, list[tuple[Entities, float]]]:
    """Return what a judge run says of each of its tuples, by set/name of the relation.

    The mean over its repeats of the score, where its kind of judge gives one: the probability of True, or nats. Else
    the share of its answers that say True, where one that names neither True nor False counts as a half.
    """
    columns = ("knowledge_tuple__entities", "knowledge_tuple__relation__name")
    rows = run.answers.order_by("pk").values_list(
        "knowledge_tuple", *columns, "knowledge_tuple__relation__relation_set__name", "label", "score"
    )
    said: dict[int, list[float]] = defaultdict(list)
    tuples: dict[int, tuple[str, Entities]] = {}
    for tuple_id, entities, relation, relation_set, label, score in rows.iterator():
        tuples[tuple_id] = f"{relation_set}/{relation}", folded(tuple(entities))
        said[tuple_id].append(score if score is not None else SHARE_OF_TRUE.get(label, UNSURE))
    by_relation: dict[str, list[tuple[Entities, float]]] = defaultdict(list)
    for tuple_id, (path, entities) in tuples.items():
        by_relation[path].append((entities, float(np.mean(said[tuple_id]))))
    return by_relation


# -- how known entities are --------------------------------------------------------------------------------------------


def frequency_scorer() -> Scorer:
    """Return the sum of ln(1 + n) over a tuple's entities, n the tuples of this installation that have the entity.

    Nothing of the relation is in it: what it reaches says how far false tuples can be told by odd entities alone.
    """

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        names = sorted({entity for entities in tuples for entity in folded(entities)})
        n_tuples: dict[str, int] = {}
        for start in range(0, len(names), ENTITIES_AT_ONCE):
            rows = EntityOccurrence.objects.filter(entity__in=names[start : start + ENTITIES_AT_ONCE])
            counted = rows.order_by().values_list("entity").annotate(n=Count("knowledge_tuple", distinct=True))
            n_tuples.update(counted)
            tick()
        return np.array([sum(log1p(n_tuples.get(entity, 0)) for entity in folded(entities)) for entities in tuples])

    return score
