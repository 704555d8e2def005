"""Lookup scores, computed without the LM: other systems, judge runs, and entity frequency."""

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
from kgharvest.bulk.file_reading import CONTROL, Line, lines_of, parse_json, read_json_lines
from kgharvest.bulk.file_values import BadValue, read_entities
from kgharvest.errors import BadEntry, Faults
from kgharvest.knowledge.visibility import VisibleTuples
from kgharvest.models import EntityOccurrence

MOST_SCORES = 200_000
MOST_SYSTEMS = 20
LONGEST_NAME = 100
ENTITIES_AT_ONCE = 500
UNSURE = 0.5  # value of an answer that is neither True nor False
SHARE_OF_TRUE = {Label.TRUE.value: 1.0, Label.FALSE.value: 0.0}

# Scores of case-folded tuples by system and by relation (set/name or name).
Table = dict[str, dict[str, list[tuple[Entities, float]]]]


def lookup_scorer(by_relation: Mapping[str, Iterable[tuple[Entities, float]]]) -> Scorer:
    """Return a scorer that looks up scores in a table. Missing tuples score NaN."""

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        rows = by_relation.get(relation.path) or by_relation.get(relation.name) or ()
        scores = {tuple(entities): value for entities, value in rows}
        return np.array([scores.get(folded(entities), np.nan) for entities in tuples])

    return score


def scores_of_content(content: bytes, source: str) -> Table:
    """Return the scores of a file by system. If a tuple is repeated, its last score is used.

    The file is JSONL, or CSV or TSV with a header. Its fields are "relation", "score", and either "entities" (a JSON
    list) or "head" and "tail". The system is named by "system", or by "model" and "setting" as in exported harvests, or
    by the file name. Raises ImportRefused with every invalid line.
    """
    faults = Faults()
    table: dict[str, dict[str, dict[Entities, float]]] = defaultdict(lambda: defaultdict(dict))
    n = 0
    for line in _lines(lines_of(BytesIO(content), source)):
        fault = line if isinstance(line, BadEntry) else _add_score(line, PurePath(source).stem, table)
        if fault:
            faults.add(fault)
        n += 1
    if not n:
        faults.add(BadEntry("the file", "has no scores"))
    if n > MOST_SCORES:
        faults.add(BadEntry("the file", f"has more than {MOST_SCORES:,} scores; include only tuples of the evaluation"))
    if len(table) > MOST_SYSTEMS:
        faults.add(BadEntry("the file", f"has scores of more than {MOST_SYSTEMS} systems; split it"))
    faults.refuse(source)
    return {
        system: {relation: list(scores.items()) for relation, scores in by_relation.items()}
        for system, by_relation in table.items()
    }


def merged_scores(files: Iterable[tuple[bytes, str]]) -> Table:
    """Return the scores of all files, merged by system. files: (content, name). Raises as scores_of_content."""
    table: Table = {}
    for content, name in files:
        for system, by_relation in scores_of_content(content, name).items():
            system_scores = table.setdefault(system, {})
            for relation, scores in by_relation.items():
                system_scores.setdefault(relation, []).extend(scores)
    return table


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
        yield BadEntry("line 1", "must have the columns relation, score, and either entities or head and tail")
        return
    try:
        for fields in reader:
            try:
                score = float(fields["score"] or "")
                has_list = "entities" in fields
                entities = parse_json(fields["entities"]) if has_list else [fields["head"], fields["tail"]]
            except (ValueError, TypeError):
                reason = "must have a number as score and a JSON list as entities"
                yield BadEntry(f"line {reader.line_num}", reason)
            else:
                yield Line(reader.line_num, {**fields, "score": score, "entities": entities})
    except csv.Error as error:
        yield BadEntry(f"line {reader.line_num}", f"is not CSV ({error})")


def _add_score(line: Line, source: str, table: dict[str, dict[str, dict[Entities, float]]]) -> BadEntry | None:
    """Add a line's score to the table, or return its fault."""
    where, row = f"line {line.number}", line.value
    if not isinstance(row, dict) or not isinstance(row.get("relation"), str):
        return BadEntry(where, 'is not {"relation": "...", "entities": ["...", "..."], "score": ...}')
    score = row.get("score")
    try:
        entities = read_entities(row.get("entities"))
    except BadValue as fault:
        return BadEntry(where, str(fault))
    if not is_score(score):
        return BadEntry(where, f"has score {score!r:.40}; give a number")
    parts = [row["system"]] if row.get("system") else [row.get("model"), row.get("setting")]
    system = " × ".join(str(part) for part in parts if part) or source
    if len(system) > LONGEST_NAME or CONTROL.search(system):
        return BadEntry(where, f"has a system name over {LONGEST_NAME} characters or with a control character")
    table[system][row["relation"]][folded(entities)] = float(score)
    return None


def is_score(value: Any) -> bool:
    """Return True for a finite number that fits in a float."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False


def judge_scores(run: JudgeRun) -> dict[str, list[tuple[Entities, float]]]:
    """Return a judge run's mean score per tuple, by set/name of the relation.

    This is the mean over repeats of the judge's score (probability of True, or nats) if judges of its kind have scores.
    Otherwise, it is the share of True answers. An answer that is neither True nor False counts as 0.5.
    """
    columns = ("knowledge_tuple__entities", "knowledge_tuple__relation__name")
    rows = run.answers.order_by("pk").values_list(
        "knowledge_tuple", *columns, "knowledge_tuple__relation__relation_set__name", "label", "score"
    )
    scores: dict[int, list[float]] = defaultdict(list)
    tuples: dict[int, tuple[str, Entities]] = {}
    for tuple_id, entities, relation, relation_set, label, score in rows.iterator():
        tuples[tuple_id] = f"{relation_set}/{relation}", folded(tuple(entities))
        scores[tuple_id].append(score if score is not None else SHARE_OF_TRUE.get(label, UNSURE))
    by_relation: dict[str, list[tuple[Entities, float]]] = defaultdict(list)
    for tuple_id, (path, entities) in tuples.items():
        by_relation[path].append((entities, float(np.mean(scores[tuple_id]))))
    return by_relation


def frequency_scorer(user) -> Scorer:
    """Return a scorer that sums ln(1 + n) over a tuple's entities. n: tuples with the entity that `user` can see.

    The scorer ignores the relation, so it shows how well the rarity of entities alone identifies false tuples.
    """

    visible = VisibleTuples(user)

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        names = sorted({entity for entities in tuples for entity in folded(entities)})
        n_tuples: dict[str, int] = {}
        for start in range(0, len(names), ENTITIES_AT_ONCE):
            rows = EntityOccurrence.objects.filter(entity__in=names[start : start + ENTITIES_AT_ONCE])
            counted = (
                visible.occurrences(rows)
                .order_by()
                .values_list("entity")
                .annotate(n=Count("knowledge_tuple", distinct=True))
            )
            n_tuples.update(counted)
            tick()
        return np.array([sum(log1p(n_tuples.get(entity, 0)) for entity in folded(entities)) for entities in tuples])

    return score
