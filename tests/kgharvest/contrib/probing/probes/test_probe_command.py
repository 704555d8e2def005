"""The command `probe`: records, and what is refused."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.facts import PARTS, split_world
from kgharvest.engine.prompt_learning.registry import METHODS
from tests.factories import make_relation, make_relation_set

pytestmark = pytest.mark.django_db

CAPITALS = {"initial_prompts": ["<ENT0> is the capital of <ENT1> ."], "prompts": ["the capital of <ENT1> is <ENT0> ."]}


@pytest.fixture
def capitals():
    return make_relation(name="capital_of", relation_set=make_relation_set("known"), **CAPITALS)


def probed(tmp_path, *methods, **options):
    output = tmp_path / "probe.jsonl"
    settings = {"model": "embedded-small", "epochs": 2, "iterations": 6} | options
    call_command("probe", set_name="known", method=list(methods), output=output, **settings)
    return {record["method"]: record for record in map(json.loads, output.read_text().splitlines())}


def test_every_method_writes_a_record_of_what_it_learned(capitals, tmp_path):
    records = probed(tmp_path, *METHODS)

    assert list(records) == list(METHODS)
    assert all(0 <= record["p1"] <= record["mrr"] <= 1 for record in records.values())
    assert {record["n_test"] for record in records.values()} == {records["manual"]["n_test"]}
    assert [(prompt["text"], prompt["weight"]) for prompt in records["manual"]["prompts"]] == [
        ("<ENT0> is the capital of <ENT1> .", 1.0)
    ]
    assert records["lpaqa"]["n_prompts"] == 2
    assert 1 <= records["lpaqa"]["effective_prompts"] <= 2
    assert "‹" in records["soft"]["prompts"][0]["text"]
    assert [records[method]["n_prompts"] for method in ("soft", "soft-random", "soft-manual")] == [2, 2, 1]
    assert records["soft-data-dependent"]["n_parameters"] == records["soft"]["n_parameters"] + 1  # the temperature
    assert "[MASK]" in records["bertese"]["prompts"][0]["before"]
    assert all(records[method]["forwards"] > records["manual"]["forwards"] for method in ("autoprompt", "bertese"))


def test_trained_lm_beats_random_weights_and_majority(capitals, tmp_path):
    records = probed(tmp_path, "majority", "manual")

    assert records["manual"]["p1"] > records["majority"]["p1"] + 0.5
    assert records["manual"]["control_p1"] < 0.1


def test_facts_and_prompts_come_from_folders_of_ones_own(capitals, tmp_path):
    facts, prompts = tmp_path / "facts" / "capital_of", tmp_path / "prompts"
    facts.mkdir(parents=True)
    prompts.mkdir()
    for part, pairs in split_world()["capital_of"].items():
        lines = [json.dumps({"sub": subject, "obj": obj}) for subject, obj in pairs]
        (facts / f"{part}.jsonl").write_text("\n".join(lines))
    (prompts / "capital_of.jsonl").write_text('{"template": "[Y] has the capital [X] ."}\n')
    (prompts / "of_others.jsonl").write_text('{"template": "[X] is no capital of [Y] ."}\n')

    records = probed(tmp_path, "manual", "lpaqa", facts=facts.parent, prompts=prompts)

    assert records["lpaqa"]["n_prompts"] == 3
    assert records["manual"]["p1"] == probed(tmp_path, "manual")["manual"]["p1"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "train.jsonl, line 1"),
        ('{"sub": "a"}', "train.jsonl, line 1"),
        ('{"sub": "☃", "obj": "☃"}', "no usable train fact"),
    ],
)
def test_facts_that_cannot_be_asked_are_refused_in_a_sentence(capitals, tmp_path, line, sentence):
    folder = tmp_path / "capital_of"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"{part}.jsonl").write_text(line)

    with pytest.raises(CommandError, match=sentence):
        probed(tmp_path, "manual", facts=tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"set_name": "nowhere"}, "set .*nowhere"), ({"relation": ["nothing"]}, "relation .*nothing")],
)
def test_what_is_not_there_is_refused_in_a_sentence(capitals, options, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("probe", **{"set_name": "known", "method": ["manual"]} | options)


def test_relations_without_facts_are_refused_in_a_sentence(tmp_path):
    make_relation(name="unheard_of", relation_set=make_relation_set("known"), **CAPITALS)

    with pytest.raises(CommandError, match="world has no facts"):
        probed(tmp_path, "manual")


def test_ranks_are_counted_among_the_words_of_a_file(capitals, tmp_path):
    words = sorted({obj for part in ("train", "dev", "test") for _, obj in split_world()["capital_of"][part]})[:20]
    (tmp_path / "words.txt").write_text("\n".join([*words, "no such word at all", ""]))

    records = probed(tmp_path, "manual", common_vocabulary=[str(tmp_path / "words.txt"), "embedded"])

    record = records["manual"]
    left_out = sum(n for part in record["left_out"].values() for n in part.values())
    n_asked = record["n_train"] + record["n_dev"] + record["n_test"]
    assert record["vocab"] == f"{n_asked} words of a file common with embedded"
    assert n_asked + left_out == sum(map(len, split_world()["capital_of"].values()))
    assert record["left_out"]["test"]["object outside the common vocabulary"] > 0
    assert record["control"]["p10"] > 0.1  # ten of few words


def test_the_methods_whose_prompts_were_kept_are_asked_again(capitals, tmp_path):
    probed(tmp_path, "majority", "manual", "lpaqa-top1")

    again = probed(tmp_path, prompts_of=Probe.objects.get().pk)

    assert list(again) == ["manual", "lpaqa-top1"]


def test_a_probe_without_prompts_cannot_be_asked_again(capitals, tmp_path):
    probed(tmp_path, "majority")

    with pytest.raises(CommandError, match="has no stored prompts"):
        probed(tmp_path, prompts_of=Probe.objects.get().pk)


def test_a_search_that_cannot_fill_its_triggers_is_refused_before_others_are_measured(capitals, tmp_path):
    with pytest.raises(CommandError, match="AutoPrompt needs at least 5 iterations"):
        probed(tmp_path, "manual", "autoprompt", iterations=4)

    assert not Probe.objects.exists()


def test_options_take_the_place_of_those_of_a_preset(capitals, tmp_path):
    probed(tmp_path, "soft", preset="paper", learning_rate=0.5, batch_size=16)

    document = Probe.objects.get().document
    assert (document["preset"], document["learning_rate"], document["batch_size"]) == ("paper", 0.5, 16)
    with pytest.raises(CommandError, match="AutoPrompt needs at least 7 iterations"):
        probed(tmp_path, "autoprompt", triggers=7)
    with pytest.raises(CommandError, match=r"'-1' is not a number from 0\.0 to 10\.0"):
        call_command("probe", "--set", "known", "--learning-rate", "-1")
    with pytest.raises(CommandError, match="'99999' is not a whole number from 1 to 50"):
        call_command("probe", "--set", "known", "--triggers", "99999", "--iterations", "1")


def test_a_probe_that_is_not_there_is_refused_in_a_sentence(capitals, tmp_path):
    with pytest.raises(CommandError, match="Probe 404 not found"):
        probed(tmp_path, "manual", prompts_of=404)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("xylophonists", "No word is a single token"),
        (" \n", "contains no words"),
        ("the", "outside the common vocabulary"),
    ],
)
def test_a_vocabulary_without_answers_is_refused_in_a_sentence(capitals, tmp_path, words, sentence):
    (tmp_path / "words.txt").write_text(words)

    with pytest.raises(CommandError, match=sentence):
        probed(tmp_path, "manual", common_vocabulary=[str(tmp_path / "words.txt")])


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"dev": 2, "test": 2}, "capital_of has no train facts"),
        ({"test": 1}, "capital_of has no train and no dev facts"),
        ({"train": 0, "dev": 2, "test": 2}, "capital_of has no train facts"),
    ],
)
def test_too_few_facts_are_refused_in_a_sentence(capitals, tmp_path, parts, sentence):
    folder = tmp_path / "facts" / "capital_of"
    folder.mkdir(parents=True)
    for part, n in parts.items():
        lines = [json.dumps({"sub": subject, "obj": obj}) for subject, obj in split_world()["capital_of"][part][:n]]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))

    with pytest.raises(CommandError, match=sentence):
        probed(tmp_path, "manual", facts=folder.parent)


def test_objects_of_several_tokens_are_left_out_and_counted(capitals, tmp_path):
    several = json.dumps({"sub": "berlin", "obj": "a tree in the garden"})
    folder = tmp_path / "facts" / "capital_of"
    folder.mkdir(parents=True)
    for part, pairs in split_world()["capital_of"].items():
        lines = [json.dumps({"sub": subject, "obj": obj}) for subject, obj in pairs[:3]]
        (folder / f"{part}.jsonl").write_text("\n".join([*lines, several]))

    record = probed(tmp_path, "manual", facts=folder.parent)["manual"]

    assert (record["n_test"], record["left_out"]["test"]) == (3, {"object of several tokens": 1})


def test_nothing_is_learned_from_facts_that_are_asked(capitals, tmp_path):
    pairs = [("paris", "france"), ("berlin", "germany"), ("rome", "italy"), ("madrid", "spain"), ("tokyo", "japan")]
    parts = {"train": pairs, "dev": pairs[1:4], "test": pairs[3:]}
    (tmp_path / "facts.jsonl").write_text(
        "\n".join(json.dumps({"part": part, "sub": x, "obj": y}) for part, own in parts.items() for x, y in own)
    )

    record = probed(tmp_path, "manual", facts=tmp_path / "facts.jsonl")["manual"]

    assert [record[f"n_{part}"] for part in PARTS] == [1, 2, 2]
    assert record["left_out"]["train"] == {"also a fact of dev": 3, "also a fact of test": 1}


def test_nothing_but_objects_of_several_tokens_is_refused_in_a_sentence(capitals, tmp_path):
    (tmp_path / "facts.jsonl").write_text(
        "\n".join(json.dumps({"part": part, "sub": "berlin", "obj": "a tree in the garden"}) for part in PARTS)
    )

    with pytest.raises(CommandError, match=r"no usable train fact \(1 object of several tokens\)"):
        probed(tmp_path, "manual", facts=tmp_path / "facts.jsonl")


@pytest.mark.parametrize("template", ["[X] is the capital .", "[Y] [Y] [X]"])
def test_a_template_without_each_slot_once_is_refused_in_a_sentence(capitals, tmp_path, template):
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"template": template}))

    with pytest.raises(CommandError, match=r"prompts.jsonl: .*line 1: .*\[Y\]"):
        probed(tmp_path, "manual", prompts=tmp_path / "prompts.jsonl")
