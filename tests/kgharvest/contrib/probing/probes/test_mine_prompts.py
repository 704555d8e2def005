"""Command `mine_prompts`, from a corpus to the prompts of relations."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from tests import factories


@pytest.fixture
def relation(db):
    return factories.make_relation(
        "capital",
        relation_set=factories.make_relation_set("places"),
        initial_prompts=["The capital of <ENT0> is <ENT1>."],
        seed_tuples=[["France", "Paris"], ["Italy", "Rome"]],
    )


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("Paris is the seat of France.\nRome is the seat of Italy.\nFrance's Paris\nSpain rules Madrid.\n")
    return path


def test_mined_prompts_can_be_imported(relation, corpus, tmp_path, capsys):
    call_command("mine_prompts", corpus, set_name="places", output=tmp_path / "mined")

    assert "capital: 1 prompt from 2 facts." in capsys.readouterr().out
    [line] = map(json.loads, (tmp_path / "mined/capital.jsonl").read_text().splitlines())
    assert line == {"template": "[Y] is the seat of [X] .", "weight": 1.0, "n": 2, "n_facts": 2}
    call_command("import_prompts", tmp_path / "mined", set_name="places")
    relation.refresh_from_db()
    assert relation.prompts == ["The capital of <ENT0> is <ENT1>.", "<ENT1> is the seat of <ENT0> ."]
    assert relation.known_prompts.get(origin="mined").text == "<ENT1> is the seat of <ENT0> ."


def test_only_training_facts_are_mined(relation, corpus, tmp_path):
    facts = tmp_path / "facts/capital"
    facts.mkdir(parents=True)
    for part, pair in {"train": ("Spain", "Madrid"), "dev": ("Italy", "Rome"), "test": ("France", "Paris")}.items():
        (facts / f"{part}.jsonl").write_text(json.dumps({"sub": pair[0], "obj": pair[1]}))

    call_command("mine_prompts", corpus, set_name="places", output=tmp_path / "mined", facts=tmp_path / "facts")

    [line] = map(json.loads, (tmp_path / "mined/capital.jsonl").read_text().splitlines())
    assert line["template"] == "[X] rules [Y] ."


def test_bad_corpus_or_output_folder_is_rejected(relation, corpus, tmp_path):
    bad = tmp_path / "bad.conllu"
    bad.write_text("1\tx\n")
    with pytest.raises(CommandError, match="Line 1 is not a CoNLL-U word"):
        call_command("mine_prompts", bad, set_name="places", output=tmp_path / "mined")
    with pytest.raises(CommandError, match="contains no dependency trees"):
        call_command("mine_prompts", corpus, set_name="places", output=tmp_path / "mined", how="dependency")
    with pytest.raises(CommandError, match="Cannot create"):
        call_command("mine_prompts", corpus, set_name="places", output=corpus)
