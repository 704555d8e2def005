"""Files of the LM-KBC challenge: subjects with a relation and, if known, the true objects, as JSON Lines."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import read_lines
from kgharvest.contrib.knowledge_graphs.lm_kbc.set_scores import SetScore, set_score
from kgharvest.errors import BadEntry, Faults, ImportRefused

NO_OBJECT = {"", "none", "null"}  # spellings of an empty answer


class Question(NamedTuple):
    """A line of a file. objects, ids: names of every object, and its Wikidata ids; empty if the file has none."""

    subject: str
    relation: str
    objects: list[set[str]]
    ids: list[set[str]]
    line: Mapping[str, Any]


def read_questions(path: Path) -> dict[tuple[str, str], Question]:
    """Return the lines of a data or prediction file by subject and relation. Raises NoSuchFile or ImportRefused."""
    faults, questions = Faults(), {}
    for number, text in enumerate(read_lines(path), start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            lists = [_names(line.get(name)) for name in ("ObjectEntities", "ObjectEntitiesID")]
            question = Question(str(line["SubjectEntity"]), str(line["Relation"]), *lists, line)
        except (ValueError, TypeError, KeyError, AttributeError):
            faults.add(
                BadEntry(f"line {number}", "is not an object with SubjectEntity, Relation, and lists of objects")
            )
            continue
        if question[:2] in questions:
            faults.add(BadEntry(f"line {number}", f"repeats {question.subject} with {question.relation}"))
        questions[question[:2]] = question
    faults.refuse(path.name)
    return questions


def _names(objects: Any) -> list[set[str]]:
    """Return the case-folded names of every object. The challenge of 2022 lists several names per object.

    None is an empty list. Raises TypeError for other values that are not lists.
    """
    objects = [] if objects is None else objects
    if not isinstance(objects, list):
        raise TypeError
    names = [{" ".join(str(name).casefold().split()) for name in (o if isinstance(o, list) else [o])} for o in objects]
    return [of_object for of_object in names if not of_object <= NO_OBJECT]


def subjects_by_relation(questions: Iterable[Question]) -> dict[str, list[str]]:
    subjects = defaultdict(list)
    for question in questions:
        subjects[question.relation].append(question.subject)
    return dict(subjects)


def scores_by_relation(predictions: Path, gold: Path, by_id: bool) -> tuple[dict[str, list[SetScore]], int]:
    """Return the score of every subject of the gold file, and the number of missing predictions, which count as empty.

    by_id: compare ids. Raises NoSuchFile, or ImportRefused for invalid files, for objects without ids, and for a gold
    file without subjects.
    """
    column = Question._fields.index("ids" if by_id else "objects")
    predicted, questions, scores = read_questions(predictions), read_questions(gold), defaultdict(list)
    if not questions:
        raise ImportRefused(gold.name, [BadEntry("file", "has no subject; write one JSON object per line")])
    if by_id:
        for path, lines in ((predictions, predicted), (gold, questions)):
            without = [line.subject for line in lines.values() if len(line.ids) != len(line.objects)]
            if without:
                fault = f"has {len(without):,} subjects with objects without ids, for example {without[0]}"
                raise ImportRefused(path.name, [BadEntry("file", f"{fault}; add ids, or compare names")])
    for key, question in questions.items():
        objects: list[set[str]] = predicted[key][column] if key in predicted else []
        scores[question.relation].append(set_score(set().union(*objects), question[column]))
    return dict(scores), len(questions.keys() - predicted.keys())
