"""Files of the LM-KBC challenge: subjects with a relation and, if known, the true objects, as JSON Lines."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import read_lines
from kgharvest.errors import BadEntry, Faults
from kgharvest.statistics.set_scores import SetScore, set_score

NO_OBJECT = {"", "none", "null"}  # spellings of an empty answer


class Question(NamedTuple):
    """A line of a file. objects, ids: names of each object, and its Wikidata ids; empty if the file has none."""

    subject: str
    relation: str
    objects: list[list[str]]
    ids: list[list[str]]
    line: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        return self.subject, self.relation


def read_questions(path: Path) -> list[Question]:
    """Return the lines of a data file or a prediction file. Raises NoSuchFile, or ImportRefused with the bad lines."""
    faults = Faults()
    questions: dict[tuple[str, str], Question] = {}
    for number, text in enumerate(read_lines(path), start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            lists = [_names(line.get(name) or []) for name in ("ObjectEntities", "ObjectEntitiesID")]
            question = Question(str(line["SubjectEntity"]), str(line["Relation"]), *lists, line)
        except (ValueError, TypeError, KeyError, AttributeError):
            reason = "is not an object with SubjectEntity, Relation, and lists of objects"
            faults.add(BadEntry(f"line {number}", reason))
            continue
        if question.key in questions:
            faults.add(BadEntry(f"line {number}", f"repeats {question.subject} with {question.relation}"))
        questions[question.key] = question
    faults.refuse(path.name)
    return list(questions.values())


def _names(objects: Sequence[Any]) -> list[list[str]]:
    """Return the names of each object. The challenge of 2022 lists several names per object."""
    with_names = [[str(name) for name in (entry if isinstance(entry, list) else [entry])] for entry in objects]
    return [names for names in with_names if not NO_OBJECT.issuperset(name.strip().casefold() for name in names)]


def subjects_by_relation(questions: Iterable[Question]) -> dict[str, list[str]]:
    subjects = defaultdict(list)
    for question in questions:
        subjects[question.relation].append(question.subject)
    return dict(subjects)


def scores_by_relation(
    predictions: Iterable[Question], gold: Iterable[Question], by_id: bool
) -> dict[str, list[SetScore]]:
    """Return the score of each subject of the gold file, by relation. A missing prediction counts as empty.

    by_id: compare ids instead of case-folded names.
    """

    def objects(question: Question) -> list[set[str]]:
        named = question.ids if by_id else question.objects
        return [{name if by_id else " ".join(name.casefold().split()) for name in names} for names in named]

    predicted = {question.key: set().union(*objects(question)) for question in predictions}
    scores = defaultdict(list)
    for question in gold:
        scores[question.relation].append(set_score(predicted.get(question.key, set()), objects(question)))
    return dict(scores)


def prediction_line(question: Question, objects: Sequence[str], ids: Sequence[str] | None) -> str:
    """Return a line of a prediction file. ids: of the objects, if there is a table of ids."""
    names = ("SubjectEntity", "SubjectEntityID", "Relation")
    document = {name: question.line[name] for name in names if name in question.line}
    with_ids = {} if ids is None else {"ObjectEntitiesID": list(ids)}
    return json.dumps({**document, "ObjectEntities": list(objects), **with_ids}, ensure_ascii=False)


def score_lines(scores: Mapping[str, Sequence[SetScore]], mean: Mapping[str, SetScore]) -> Iterator[str]:
    """Yield a table as text: one line per relation, then the means."""
    width = max(map(len, [*scores, *mean]))
    yield f"{'relation':<{width}}  subjects  precision  recall     F1"
    n_subjects = sum(map(len, scores.values()))
    for name, score in mean.items():
        n = len(scores.get(name, ())) or n_subjects
        yield f"{name:<{width}}  {n:>8,}  {score.precision:>9.3f}  {score.recall:>6.3f}  {score.f1:>5.3f}"
