"""LM-KBC challenge: its files, thresholds learned from rounds, predictions, and the command."""

import json

import pytest
from django.core.management import CommandError, call_command

from annotation.rounds.services import open_round
from kgharvest.contrib.knowledge_graphs.lm_kbc.challenge_files import read_questions
from kgharvest.contrib.knowledge_graphs.models import ScoreThreshold
from kgharvest.errors import ImportRefused
from kgharvest.harvests.heads import read_heads
from kgharvest.models import HarvestJob
from tests import factories

pytestmark = pytest.mark.django_db

GOLD = [
    {"SubjectEntity": "Paris", "Relation": "capital_of", "ObjectEntities": ["France"], "ObjectEntitiesID": ["Q142"]},
    {"SubjectEntity": "Rome", "Relation": "capital_of", "ObjectEntities": [["Italy", "Italia"]]},
    {"SubjectEntity": "Oz", "Relation": "capital_of", "ObjectEntities": [""]},
    {"SubjectEntity": "Rome", "Relation": "population", "ObjectEntities": ["2800000"]},
]


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def harvest_of(relation, tuples, heads, **fields):
    lm = fields.pop("language_model", None) or factories.make_language_model("embedded")
    payload = {"spec": {"params": {"heads": heads}}}
    return factories.make_harvest(tuples, relation=relation, language_model=lm, payload=payload, **fields)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "gold.jsonl", GOLD)


def test_subjects_are_written_for_harvests(data, tmp_path):
    call_command("lm_kbc", "subjects", str(data), output=tmp_path / "heads")

    assert read_heads(tmp_path / "heads/capital_of.txt") == ("Paris", "Rome", "Oz")
    assert read_heads(tmp_path / "heads/population.txt") == ("Rome",)


def test_line_breaks_in_subjects_become_spaces(tmp_path):
    rows = [{"SubjectEntity": "New\n York", "Relation": "capital_of"}]

    call_command("lm_kbc", "subjects", str(write(tmp_path / "data.jsonl", rows)), output=tmp_path)

    assert (tmp_path / "capital_of.txt").read_text() == "New York\n"


def test_relations_that_share_a_file_name_are_refused(tmp_path):
    rows = [{"SubjectEntity": "a", "Relation": name} for name in ("x/y", "x_y")]

    with pytest.raises(CommandError, match=r"x/y and x_y share the file name x_y\.txt"):
        call_command("lm_kbc", "subjects", str(write(tmp_path / "data.jsonl", rows)), output=tmp_path / "heads")
    assert not list(tmp_path.glob("heads/*"))


def test_predictions_contain_an_explicit_empty_answer_and_score_as_by_hand(data, tmp_path, capsys):
    capital, population = factories.make_relation("capital_of"), factories.make_relation("population")
    tuples = [("paris", "france"), ("rome", "italy"), ("paris", "texas"), ("oz", "kansas")]  # scores -1, -2, -3, -4
    job = harvest_of(capital, tuples, ["Paris", "Rome", "Oz"])
    harvest_of(population, [("rome", "2 , 800 , 000")], ["Rome"], language_model=job.language_model)

    output = tmp_path / "predictions.jsonl"
    call_command("lm_kbc", "predict", str(data), min_score=-3.5, output=output)
    call_command("lm_kbc", "score", str(output), str(data))

    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert rows == [
        {"SubjectEntity": "Paris", "Relation": "capital_of", "ObjectEntities": ["france", "texas"]},
        {"SubjectEntity": "Rome", "Relation": "capital_of", "ObjectEntities": ["italy"]},
        {"SubjectEntity": "Oz", "Relation": "capital_of", "ObjectEntities": []},
        {"SubjectEntity": "Rome", "Relation": "population", "ObjectEntities": ["2800000"]},
    ]
    out = capsys.readouterr().out
    assert "4 subjects, 1 null answer." in out
    table = {line[:20].strip(): line[20:].split() for line in out.splitlines()[-4:]}
    # capital_of: F1 2/3, 1, and 1; population: 1. The means are (8/9 + 1) / 2 and 11/12.
    assert table["capital_of"] == ["3", "0.833", "1.000", "0.889"]
    assert table["mean over relations"] == ["4", "0.917", "1.000", "0.944"]
    assert table["mean over subjects"] == ["4", "0.875", "1.000", "0.917"]


def test_thresholds_are_learned_from_a_round_and_used(data, tmp_path, capsys):
    relation = factories.make_relation("capital_of")
    job = harvest_of(relation, [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")], ["a"])
    document = {"name": "pilot", "cells": [{"job": job.pk, "n": None}]}
    round = open_round(document, None, job.project)
    tasks = round.tasks.order_by("position")
    factories.judge_all(round, *3 * [["true" if task.entities[0] in "ae" else "false" for task in tasks]])

    call_command("lm_kbc", "learn", round="pilot")
    call_command("lm_kbc", "learn", round="pilot")  # replaces the threshold

    threshold = ScoreThreshold.objects.get()
    assert (threshold.score, threshold.n, threshold.n_true) == (-3.0, 4, 2)
    assert threshold.f1 == pytest.approx(0.8)
    learned = "capital_of × embedded × multi: score >= -3.000 (F1 0.800 on 4 judged tuples, 2 true, of round pilot)"
    assert learned in capsys.readouterr().out

    harvest_of(
        relation,
        [("paris", "france"), ("x", "y"), ("rome", "italy"), ("oz", "kansas")],
        ["Paris", "Rome", "Oz"],
        language_model=job.language_model,
    )
    only_capitals = write(tmp_path / "capitals.jsonl", GOLD[:3])
    call_command("lm_kbc", "predict", str(only_capitals), output=tmp_path / "predictions.jsonl")
    rows = map(json.loads, (tmp_path / "predictions.jsonl").read_text().splitlines())
    assert [row["ObjectEntities"] for row in rows] == [["france"], ["italy"], []]
    assert learned in capsys.readouterr().out


def test_round_without_accepted_tuples_is_refused():
    round = factories.make_round(2, name="pilot")

    with pytest.raises(CommandError, match="Round pilot has no accepted tuple with a score"):
        call_command("lm_kbc", "learn", round=round.name)


def test_subjects_that_were_not_harvested_are_named(data, tmp_path):
    harvest_of(factories.make_relation("capital_of"), [("paris", "france")], ["Paris"])

    with pytest.raises(CommandError, match="2 subjects of capital_of are in no finished harvest"):
        call_command("lm_kbc", "predict", str(data), output=tmp_path / "predictions.jsonl")
    assert HarvestJob.objects.count() == 1


def test_ids_are_compared_on_request(data, tmp_path, capsys):
    predictions = write(tmp_path / "p.jsonl", [GOLD[0] | {"ObjectEntities": ["Gaul"]}])

    call_command("lm_kbc", "score", str(predictions), str(write(tmp_path / "g.jsonl", GOLD[:1])), ids=True)

    assert "1.000" in capsys.readouterr().out.splitlines()[1]


def test_bad_lines_are_listed(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"SubjectEntity": "a", "Relation": "r"}\n[]\n{"Relation": "r"}\nx\n')

    with pytest.raises(ImportRefused, match="line 2"):
        read_questions(tmp_path / "bad.jsonl")


@pytest.mark.parametrize("objects", ["France", {"a": 1}, ""])
@pytest.mark.parametrize("key", ["ObjectEntities", "ObjectEntitiesID"])
def test_objects_must_be_a_list(tmp_path, key, objects):
    path = write(tmp_path / "bad.jsonl", [GOLD[0], GOLD[1] | {key: objects}])

    with pytest.raises(ImportRefused, match=r"line 2: .* lists of objects"):
        read_questions(path)


def test_gold_file_without_lines_is_refused(data, tmp_path):
    with pytest.raises(CommandError, match=r"empty\.jsonl.*has no subject"):
        call_command("lm_kbc", "score", str(data), str(write(tmp_path / "empty.jsonl", [])))


def test_objects_without_ids_are_refused_if_ids_are_compared(tmp_path):
    without = {key: value for key, value in GOLD[0].items() if key != "ObjectEntitiesID"}
    gold, predictions = write(tmp_path / "g.jsonl", GOLD[:1]), write(tmp_path / "p.jsonl", [without])

    with pytest.raises(CommandError, match=rf"p\.jsonl.*1 subjects.*without ids.*{GOLD[0]['SubjectEntity']}"):
        call_command("lm_kbc", "score", str(predictions), str(gold), ids=True)


def test_missing_predictions_are_counted(tmp_path, capsys):
    gold, predictions = write(tmp_path / "g.jsonl", GOLD[:2]), write(tmp_path / "p.jsonl", GOLD[:1])

    call_command("lm_kbc", "score", str(predictions), str(gold))

    assert "1 of 2 predictions are missing" in capsys.readouterr().err
