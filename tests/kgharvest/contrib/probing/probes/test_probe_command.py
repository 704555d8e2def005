"""Command `probe`: records and rejected input."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.facts import PARTS, split_world
from kgharvest.contrib.probing.prompt_learning.registry import METHODS
from tests.factories import make_relation, make_relation_set
from tests.kgharvest.engine.tiny_models import tiny_bart

pytestmark = pytest.mark.django_db

CAPITALS = {"initial_prompts": ["<ENT0> is the capital of <ENT1> ."], "prompts": ["the capital of <ENT1> is <ENT0> ."]}


@pytest.fixture
def capitals():
    return make_relation(name="capital_of", relation_set=make_relation_set("known"), **CAPITALS)


def run_probe(tmp_path, *methods, **options):
    output = tmp_path / "probe.jsonl"
    settings = {"model": "embedded-small", "epochs": 2, "iterations": 6} | options
    call_command("probe", set_name="known", method=list(methods), output=output, **settings)
    return {record["method"]: record for record in map(json.loads, output.read_text().splitlines())}


@pytest.fixture
def prompts(tmp_path):
    """Return a folder with one mined prompt and two paraphrased prompts."""
    texts = {"mined": ["[X] , capital of [Y] ."], "paraphrased": ["[X] is the main city of [Y] .", "[X] in [Y] ."]}
    for origin, templates in texts.items():
        (tmp_path / "prompts" / origin).mkdir(parents=True)
        lines = [json.dumps({"template": template, "weight": 0.5}) for template in templates]
        (tmp_path / "prompts" / origin / "capital_of.jsonl").write_text("\n".join(lines))
    return tmp_path / "prompts"


@pytest.fixture
def few_facts(tmp_path):
    """Return a file with six facts of each part."""
    parts = split_world()["capital_of"].items()
    lines = [{"part": part, "sub": x, "obj": y} for part, pairs in parts for x, y in pairs[:6]]
    (tmp_path / "facts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "facts.jsonl"


def test_every_method_writes_a_record_with_its_prompts(capitals, prompts, few_facts, tmp_path):
    records = run_probe(tmp_path, *METHODS, prompts=prompts, facts=few_facts, no_control=True)

    assert list(records) == list(METHODS)
    assert all(0 <= record["p1"] <= record["mrr"] <= 1 for record in records.values())
    assert {record["n_test"] for record in records.values()} == {records["manual"]["n_test"]}
    assert [(prompt["text"], prompt["weight"]) for prompt in records["manual"]["prompts"]] == [
        ("<ENT0> is the capital of <ENT1> .", 1.0)
    ]
    assert records["lpaqa"]["n_prompts"] == 5
    assert 1 <= records["lpaqa"]["effective_prompts"] <= 5
    assert "‹" in records["soft"]["prompts"][0]["text"]
    n_prompts = {"": 5, "-manual": 1, "-mined": 1, "-paraphrased": 2, "-random": 1}
    assert {name: records[f"soft{name}"]["n_prompts"] for name in n_prompts} == n_prompts
    assert {name: records[f"soft-deep{name}"]["n_prompts"] for name in n_prompts} == n_prompts
    assert records["mixture-paraphrased"]["effective_prompts"] == 2
    assert len(records["manual"]["ranks"]) == records["manual"]["n_test"]
    comparisons = {row["method"]: row["baseline"] for row in Probe.objects.get().document["comparisons"]}
    assert [comparisons[f"{name}-random"] for name in ("soft-deep", "soft", "mixture")] == [
        "soft-random",
        "mixture-random",
        "manual",
    ]
    assert records["soft-data-dependent"]["n_parameters"] == records["soft"]["n_parameters"] + 1  # the temperature
    assert all("[MASK]" in prompt["before"] for prompt in records["bertese"]["prompts"])
    assert sum(records["bertese"]["parts_of_speech"].values()) >= 0
    assert all(records[method]["forwards"] > records["manual"]["forwards"] for method in ("autoprompt", "bertese"))


def test_candidates_and_patience_bound_the_trigger_search(capitals, tmp_path):
    def forwards(**options):
        return run_probe(tmp_path, "autoprompt", no_control=True, **options)["autoprompt"]["forwards"]

    many = forwards(iterations=9)

    assert forwards(iterations=9, candidates=2) < many
    assert forwards(iterations=9, patience=1) < many


def test_trained_lm_beats_random_weights_and_majority(capitals, tmp_path):
    records = run_probe(tmp_path, "majority", "manual")

    assert records["manual"]["p1"] > records["majority"]["p1"] + 0.5
    assert records["manual"]["control_p1"] < 0.1


def test_facts_and_prompts_are_read_from_folders(capitals, tmp_path):
    facts, prompts = tmp_path / "facts" / "capital_of", tmp_path / "prompts"
    facts.mkdir(parents=True)
    prompts.mkdir()
    for part, pairs in split_world()["capital_of"].items():
        lines = [json.dumps({"sub": subject, "obj": obj}) for subject, obj in pairs]
        (facts / f"{part}.jsonl").write_text("\n".join(lines))
    (prompts / "capital_of.jsonl").write_text('{"template": "[Y] has the capital [X] ."}\n')
    (prompts / "of_others.jsonl").write_text('{"template": "[X] is no capital of [Y] ."}\n')

    records = run_probe(tmp_path, "manual", "lpaqa", facts=facts.parent, prompts=prompts)

    assert records["lpaqa"]["n_prompts"] == 3
    assert records["manual"]["p1"] == run_probe(tmp_path, "manual")["manual"]["p1"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "train.jsonl, line 1"),
        ('{"sub": "a"}', "train.jsonl, line 1"),
        ('{"sub": "☃", "obj": "☃"}', "no usable train fact"),
    ],
)
def test_unusable_facts_are_rejected_with_a_message(capitals, tmp_path, line, sentence):
    folder = tmp_path / "capital_of"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"{part}.jsonl").write_text(line)

    with pytest.raises(CommandError, match=sentence):
        run_probe(tmp_path, "manual", facts=tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"set_name": "nowhere"}, "set .*nowhere"), ({"relation": ["nothing"]}, "relation .*nothing")],
)
def test_unknown_set_or_relation_is_rejected_with_a_message(capitals, options, sentence):
    with pytest.raises(CommandError, match=sentence):
        call_command("probe", **{"set_name": "known", "method": ["manual"]} | options)


def test_relations_without_facts_are_rejected_with_a_message(tmp_path):
    make_relation(name="unheard_of", relation_set=make_relation_set("known"), **CAPITALS)

    with pytest.raises(CommandError, match="world has no facts"):
        run_probe(tmp_path, "manual")


def test_common_vocabulary_file_restricts_ranked_words(capitals, tmp_path):
    words = sorted({obj for part in ("train", "dev", "test") for _, obj in split_world()["capital_of"][part]})[:20]
    (tmp_path / "words.txt").write_text("\n".join([*words, "no such word at all", ""]))

    records = run_probe(tmp_path, "manual", common_vocabulary=[str(tmp_path / "words.txt"), "embedded"])

    record = records["manual"]
    left_out = sum(n for part in record["left_out"].values() for n in part.values())
    n_facts = record["n_train"] + record["n_dev"] + record["n_test"]
    assert record["vocab"] == f"{n_facts} words of a file common with embedded"
    assert n_facts + left_out == sum(map(len, split_world()["capital_of"].values()))
    assert record["left_out"]["test"]["object outside the common vocabulary"] > 0
    assert record["control"]["p10"] > 0.1  # the first ten of a small vocabulary


def test_prompts_of_reruns_methods_with_stored_prompts(capitals, tmp_path):
    run_probe(tmp_path, "majority", "manual", "lpaqa-top1")

    again = run_probe(tmp_path, prompts_of=Probe.objects.get().pk)

    assert list(again) == ["manual", "lpaqa-top1"]


def test_prompts_of_probe_without_prompts_is_rejected(capitals, tmp_path):
    run_probe(tmp_path, "majority")

    with pytest.raises(CommandError, match="has no stored prompts"):
        run_probe(tmp_path, prompts_of=Probe.objects.get().pk)


def test_too_few_autoprompt_iterations_are_rejected_before_measuring(capitals, tmp_path):
    with pytest.raises(CommandError, match="AutoPrompt needs at least 5 iterations"):
        run_probe(tmp_path, "manual", "autoprompt", iterations=4)

    assert not Probe.objects.exists()


def test_options_override_the_preset(capitals, tmp_path):
    run_probe(tmp_path, "soft", preset="paper", learning_rate=0.5, batch_size=16)

    document = Probe.objects.get().document
    assert (document["preset"], document["learning_rate"], document["batch_size"]) == ("paper", 0.5, 16)
    with pytest.raises(CommandError, match="AutoPrompt needs at least 7 iterations"):
        run_probe(tmp_path, "autoprompt", triggers=7)
    with pytest.raises(CommandError, match=r"'-1' is not a number from 0\.0 to 10\.0"):
        call_command("probe", "--set", "known", "--learning-rate", "-1")
    with pytest.raises(CommandError, match="'99999' is not a whole number from 1 to 50"):
        call_command("probe", "--set", "known", "--triggers", "99999", "--iterations", "1")


def test_prompts_of_unknown_probe_is_rejected_with_a_message(capitals, tmp_path):
    with pytest.raises(CommandError, match="Probe 404 not found"):
        run_probe(tmp_path, "manual", prompts_of=404)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("xylophonists", "No word is a single token"),
        (" \n", "contains no words"),
        ("the", "outside the common vocabulary"),
    ],
)
def test_vocabulary_without_answers_is_rejected_with_a_message(capitals, tmp_path, words, sentence):
    (tmp_path / "words.txt").write_text(words)

    with pytest.raises(CommandError, match=sentence):
        run_probe(tmp_path, "manual", common_vocabulary=[str(tmp_path / "words.txt")])


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"dev": 2, "test": 2}, "capital_of has no train facts"),
        ({"test": 1}, "capital_of has no train and no dev facts"),
        ({"train": 0, "dev": 2, "test": 2}, "capital_of has no train facts"),
    ],
)
def test_missing_parts_of_facts_are_rejected_with_a_message(capitals, tmp_path, parts, sentence):
    folder = tmp_path / "facts" / "capital_of"
    folder.mkdir(parents=True)
    for part, n in parts.items():
        lines = [json.dumps({"sub": subject, "obj": obj}) for subject, obj in split_world()["capital_of"][part][:n]]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))

    with pytest.raises(CommandError, match=sentence):
        run_probe(tmp_path, "manual", facts=folder.parent)


def test_objects_of_several_tokens_are_skipped_and_counted(capitals, tmp_path):
    multi_token = json.dumps({"sub": "berlin", "obj": "a tree in the garden"})
    folder = tmp_path / "facts" / "capital_of"
    folder.mkdir(parents=True)
    for part, pairs in split_world()["capital_of"].items():
        lines = [json.dumps({"sub": subject, "obj": obj}) for subject, obj in pairs[:3]]
        (folder / f"{part}.jsonl").write_text("\n".join([*lines, multi_token]))

    record = run_probe(tmp_path, "manual", facts=folder.parent)["manual"]

    assert (record["n_test"], record["left_out"]["test"]) == (3, {"object of several tokens": 1})


def test_dev_and_test_facts_are_removed_from_training(capitals, tmp_path):
    pairs = [("paris", "france"), ("berlin", "germany"), ("rome", "italy"), ("madrid", "spain"), ("tokyo", "japan")]
    parts = {"train": pairs, "dev": pairs[1:4], "test": pairs[3:]}
    (tmp_path / "facts.jsonl").write_text(
        "\n".join(json.dumps({"part": part, "sub": x, "obj": y}) for part, facts in parts.items() for x, y in facts)
    )

    record = run_probe(tmp_path, "manual", facts=tmp_path / "facts.jsonl")["manual"]

    assert [record[f"n_{part}"] for part in PARTS] == [1, 2, 2]
    assert record["left_out"]["train"] == {"also a fact of dev": 3, "also a fact of test": 1}


def test_only_objects_of_several_tokens_are_rejected_with_a_message(capitals, tmp_path):
    (tmp_path / "facts.jsonl").write_text(
        "\n".join(json.dumps({"part": part, "sub": "berlin", "obj": "a tree in the garden"}) for part in PARTS)
    )

    with pytest.raises(CommandError, match=r"no usable train fact \(1 object of several tokens\)"):
        run_probe(tmp_path, "manual", facts=tmp_path / "facts.jsonl")


@pytest.mark.parametrize("template", ["[X] is the capital .", "[Y] [Y] [X]"])
def test_template_without_each_slot_once_is_rejected_with_a_message(capitals, tmp_path, template):
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"template": template}))

    with pytest.raises(CommandError, match=r"prompts.jsonl: .*line 1: .*\[Y\]"):
        run_probe(tmp_path, "manual", prompts=tmp_path / "prompts.jsonl")


def test_methods_of_missing_prompts_are_rejected_before_measuring(capitals, tmp_path):
    with pytest.raises(CommandError, match="soft-mined needs mined prompts"):
        run_probe(tmp_path, "manual", "soft-mined")

    assert not Probe.objects.exists()


def test_imported_prompts_have_their_origin(capitals, prompts, tmp_path):
    call_command("import_prompts", str(prompts), set_name="known")

    records = run_probe(tmp_path, "mixture-mined", "mixture-paraphrased", no_control=True)

    assert [record["n_prompts"] for record in records.values()] == [1, 2]


def test_split_and_tables_of_the_command(capitals, prompts, few_facts, tmp_path, capsys):
    files = {"prompts": prompts, "facts": few_facts, "tables": tmp_path / "tables"}
    run_probe(tmp_path, "soft", "soft-mined", split="distinct-objects", no_control=True, **files)

    probe = Probe.objects.get()
    objects = [{obj for _, obj in pairs} for pairs in probe.relations.get().facts.values()]
    assert len(set.union(*objects)) == sum(map(len, objects))
    assert probe.document["split"] == "distinct-objects"
    files = {file.name for file in (tmp_path / "tables").iterdir()}
    assert files >= {"comparisons.csv", "statistics.csv", "methods.svg", "words-1.svg", "words-2.svg"}
    picture = (tmp_path / "tables" / "words-2.svg").read_text()
    assert "capital" in picture
    rows = {row["name"]: row for row in probe.document["statistics"]}
    assert rows["mined prompts"]["mean"] == 1
    assert rows["norm ratio, soft-mined, capital_of"]["n"] == 4  # , capital of .
    printed = capsys.readouterr().out
    assert "words of mined prompts" in printed
    assert "norm ratio, soft-mined" not in printed


def test_bart_learns_soft_prompts_and_refuses_deep_ones(capitals, tmp_path):
    facts = [("paris", "france"), ("rome", "italy"), ("Paris", "France"), ("Rome", "Italy")]
    lines = [
        {"part": part, "sub": x, "obj": y}
        for part, (x, y) in zip(("train", "train", "dev", "test"), facts, strict=True)
    ]
    (tmp_path / "facts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    bart = str(tiny_bart(tmp_path / "bart"))

    records = run_probe(tmp_path, "mixture", "soft", "soft-deep", model=bart, facts=tmp_path / "facts.jsonl")

    assert list(records) == ["mixture", "soft"]
    assert records["soft"]["n_parameters"] > records["mixture"]["n_parameters"] == 0
    fault = Probe.objects.get().document["faults"]["capital_of"]
    assert fault.startswith("capital_of, soft-deep: Soft prompts in all layers require bert")
    for method in ("fine-tuned", "bertese"):
        with pytest.raises(CommandError, match=f"{method} requires a masked LM"):
            run_probe(tmp_path, method, model=bart, facts=tmp_path / "facts.jsonl")
