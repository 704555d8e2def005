"""All importers read labels and entities by one rule (kgharvest.bulk.file_values)."""

from __future__ import annotations

import json

import pytest

from annotation.exchange.judgment_import import import_judgments
from annotation.judges.files.answer_import import import_answers
from annotation.judges.labels import judge_labels
from annotation.models import Judgment
from evaluation.reports.label_report import document_of_labels
from evaluation.scores.facts import facts_of_content
from evaluation.scores.lookups import scores_of_content
from kgharvest.errors import ImportRefused
from kgharvest.harvests.tuple_files import Cell, import_tuples
from kgharvest.relations.services import import_relations
from tests.evaluation.label_tables import write_csv
from tests.factories import make_language_model, make_relation, make_round

pytestmark = pytest.mark.django_db

LABELS = [("True", "true"), (" true ", "true"), ("TRUE", "true"), ("f", "false"), (" Unjudgeable", "unjudgeable")]
BAD_LABELS = ["yes", "1"]
ENTITIES = [["Dog", "swim"], [" Dog ", "swim "]]
BAD_ENTITIES = [["dog"], ["dog", " "], ["dog", 1], ["dog", "x" * 201]]


def judgment(label: str = "True", entities: list = ENTITIES[0]) -> dict[str, str]:
    return {"relation": "can", "entities": json.dumps(entities), "annotator": "a", "label": label}


def imported_label(folder, label):
    import_judgments(write_csv(folder / "judgments.csv", [judgment(label)]), "study", create=True)
    return Judgment.objects.get().label


def judge_label(folder, label):
    round = make_round([("Dog", "swim")])
    relation = round.tasks.get().knowledge_tuple.relation.path
    line = json.dumps({"relation": relation, "entities": ENTITIES[0], "label": label})
    return next(
        iter(judge_labels(import_answers(round, {"name": "j", "kind": "file"}, line.encode(), "j.jsonl")).values())
    )


def reported_label(folder, label):
    [annotator] = document_of_labels(write_csv(folder / "labels.csv", [judgment(label)]))["annotators"]
    return next(name for name in ("true", "false", "unjudgeable") if annotator[name])


LABEL_READERS = [imported_label, judge_label, reported_label]


@pytest.mark.parametrize("read", LABEL_READERS)
@pytest.mark.parametrize(("text", "label"), LABELS)
def test_labels_in_all_importers(read, text, label, tmp_path):
    assert read(tmp_path, text) == label


@pytest.mark.parametrize("read", LABEL_READERS)
@pytest.mark.parametrize("text", BAD_LABELS)
def test_bad_labels_are_refused_by_all_importers(read, text, tmp_path):
    with pytest.raises(ImportRefused, match="True, False"):
        read(tmp_path, text)


def imported_entities(folder, entities):
    import_judgments(write_csv(folder / "judgments.csv", [judgment(entities=entities)]), "study", create=True)
    return Judgment.objects.get().task.entities


def judge_entities(folder, entities):
    round = make_round([("Dog", "swim")])
    knowledge_tuple = round.tasks.get().knowledge_tuple
    line = json.dumps({"relation": knowledge_tuple.relation.path, "entities": entities, "label": "true"})
    run = import_answers(round, {"name": "j", "kind": "file"}, line.encode(), "j.jsonl")
    assert run.answers.get().knowledge_tuple == knowledge_tuple
    return ENTITIES[0]


def reported_entities(folder, entities):
    records = [judgment(), {**judgment(entities=entities), "annotator": "b"}]
    assert document_of_labels(write_csv(folder / "labels.csv", records))["n_tasks"] == 1
    return ENTITIES[0]


def harvested_entities(folder, entities, row, name):
    path = folder / name
    path.write_text(row(entities))
    job = import_tuples(path, Cell(make_relation("can"), make_language_model("lm"), "multi"))
    return job.tuples.get().surface


def jsonl_entities(folder, entities):
    return harvested_entities(folder, entities, lambda value: json.dumps({"entities": value, "score": -1}), "t.jsonl")


def csv_entities(folder, entities):
    text = json.dumps(entities).replace('"', '""')
    return harvested_entities(folder, entities, lambda _: f'entities,score\n"{text}",-1\n', "t.csv")


def reference_entities(folder, entities):
    return harvested_entities(folder, entities, lambda value: json.dumps([[value, 0.5]]), "t.json")


def fact_entities(folder, entities):
    make_relation("can")
    [facts] = facts_of_content(json.dumps({"relation": "can", "entities": entities}).encode(), "facts.jsonl")
    return facts.facts[0]


def score_entities(folder, entities):
    line = json.dumps({"relation": "can", "entities": entities, "score": 1, "system": "s"})
    [(looked_up, _)] = scores_of_content(line.encode(), "scores.jsonl")["s"]["can"]
    return ["Dog", "swim"] if list(looked_up) == ["dog", "swim"] else looked_up


def seed_entities(folder, entities):
    relation = {"name": "can", "initial_prompts": ["<ENT0> can <ENT1> ."], "seed_tuples": [entities, ["a", "b"]]}
    path = folder / "relations.json"
    path.write_text(json.dumps({"name": "imported", "relations": [relation]}))
    return import_relations(path).relations.get().seed_tuples[0]


ENTITY_READERS = [
    imported_entities, judge_entities, reported_entities, jsonl_entities, csv_entities, reference_entities,
    fact_entities, score_entities, seed_entities,
]  # fmt: skip


@pytest.mark.parametrize("read", ENTITY_READERS)
@pytest.mark.parametrize("entities", ENTITIES)
def test_entities_in_all_importers(read, entities, tmp_path):
    assert list(read(tmp_path, entities)) == ENTITIES[0]


@pytest.mark.parametrize("read", ENTITY_READERS)
@pytest.mark.parametrize("entities", BAD_ENTITIES)
def test_bad_entities_are_refused_by_all_importers(read, entities, tmp_path):
    with pytest.raises(ImportRefused):
        read(tmp_path, entities)
