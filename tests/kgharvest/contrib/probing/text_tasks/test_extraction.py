"""Command `extract`: records, input files, and rejected input."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from kgharvest.contrib.probing.probes.facts import split_world
from kgharvest.contrib.probing.text_tasks.evidenced_facts import Evidence, EvidencedFact, evidenced_fact
from kgharvest.contrib.probing.text_tasks.tables import extraction_summary
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.models import RelationSet
from tests.factories import make_relation, make_relation_set

pytestmark = pytest.mark.django_db

CAPITALS = {"initial_prompts": ["<ENT0> is the capital of <ENT1> ."]}
ROME = {"sub": "rome", "obj": "italy", "context": "rome is a city in italy ."}


@pytest.fixture
def capitals():
    return make_relation(name="capital_of", relation_set=make_relation_set("known"), **CAPITALS)


@pytest.fixture
def folder(capitals, tmp_path):
    """Write capitals of the embedded LM, each with two evidence sentences in T-REx format."""
    for part, pairs in split_world()["capital_of"].items():
        lines = [
            {
                "sub_label": city,
                "obj_label": country,
                "evidences": [
                    {"masked_sentence": f"{city} is in [MASK] .", "obj_surface": country},
                    {"masked_sentence": "in [MASK] it is the largest city .", "obj_surface": country},
                ],
            }
            for city, country in pairs
        ]
        write(tmp_path / "facts", part, lines)
    return tmp_path / "facts"


def write(folder, part, lines):
    path = folder / "capital_of" / f"{part}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def run_extract(folder, **options):
    output = folder.parent / "records.jsonl"
    settings = {"model": "embedded-small", "iterations": 5, "candidates": 4, "output": output} | options
    call_command("extract", set_name="known", facts=folder, **settings)
    records = [json.loads(line) for line in output.read_text().splitlines()]
    return {(record["method"], record["is_perturbed"], record["is_control"]): record for record in records}


def test_every_method_is_measured_on_original_and_perturbed_contexts(folder, capsys):
    records = run_extract(folder, perturbed=True)

    methods = [
        ("majority", False),
        *((name, control) for control in (False, True) for name in ("manual", "autoprompt")),
    ]
    assert list(records) == [
        (name, is_perturbed, control) for is_perturbed in (False, True) for name, control in methods
    ]
    assert records["manual", False, False]["p1"] > records["majority", False, False]["p1"] + 0.3
    assert records["manual", False, True]["p1"] < 0.2
    assert records["manual", False, False]["known_p1"] == records["manual", False, False]["p1"]
    assert "manual, perturbed, random weights" in capsys.readouterr().out


def test_lpaqa_takes_the_prompt_with_the_best_training_precision(folder, capitals):
    capitals.prompts = ["<ENT1> likes <ENT0> .", "the capital of <ENT1> is <ENT0> ."]
    capitals.initial_prompts = ["<ENT0> eats <ENT1> ."]
    capitals.save()

    records = run_extract(folder, methods=["manual", "lpaqa-top1"], no_control=True)

    manual, lpaqa = (records[method, False, False] for method in ("manual", "lpaqa-top1"))
    assert list(records) == [("manual", False, False), ("lpaqa-top1", False, False)]
    assert manual["template"] == "{context} {subject} eats [P] ."
    assert lpaqa["template"] == "{context} the capital of [P] is {subject} ."
    assert lpaqa["p1"] > manual["p1"]


def test_known_p1_counts_answers_from_memory(folder):
    """The embedded LM is not trained to read, so it names memorized countries in perturbed contexts."""
    perturbed = run_extract(folder, perturbed=True, no_control=True)["manual", True, False]

    assert perturbed["known_p1"] > perturbed["p1"] + 0.2


def test_record_contains_trigger_ids_without_answers(folder):
    record = run_extract(folder, no_control=True)["autoprompt", False, False]

    lm = load_compact(EMBEDDED_LMS["embedded-small"])
    texts = lm.tokens.texts()
    countries = {country for pairs in split_world()["capital_of"].values() for _, country in pairs}
    assert [texts[token] for token in record["trigger_ids"]] == record["trigger"]
    assert record["prompt"] == f"{{context}} {{subject}} {' '.join(record['trigger'])} [P] ."
    assert not countries & set(record["trigger"])


def test_the_same_seed_gives_the_same_records(folder):
    first, again = (run_extract(folder, perturbed=True, no_control=True, seed=3) for _ in range(2))

    assert all({**record, "seconds": 0} == {**again[key], "seconds": 0} for key, record in first.items())


def test_unusable_facts_are_counted_by_reason(folder):
    lines = [
        ROME,
        ROME | {"obj": "papua new guinea", "context": "papua new guinea is far"},
        {"sub": "oslo", "obj": "norway", "evidences": []},
        ROME | {"context": f"{'well ' * 60} italy"},
        ROME | {"context": "rome [SEP] italy"},
    ]
    write(folder, "test", lines)

    record = run_extract(folder, no_control=True)["manual", False, False]

    assert record["n_test"] == 1
    assert record["left_out"]["test"] == {
        "object of several tokens": 1,
        "no sentence with the object in its first 50 words": 2,
        "special tokens of the LM in the text": 1,
    }


# Input lines


def test_object_and_surfaces_are_masked_in_context():
    line = {"context": "The Italian one, Italian since 1871, not Italianate.", "surfaces": ["Italian"]}

    assert evidenced_fact(line, ("Rome", "Italy")) == EvidencedFact(
        "Rome", "Italy", (Evidence("The [MASK] one, [MASK] since 1871, not Italianate.", "Italian"),), ("Italian",)
    )


def test_masked_context_is_accepted():
    assert evidenced_fact({"context": "It is in [MASK]."}, ("Rome", "Italy")) == EvidencedFact(
        "Rome", "Italy", (Evidence("It is in [MASK].", "Italy"),)
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (ROME | {"context": "it is far away"}, 'line 1: has a "context" without its object'),
        (ROME | {"context": 5}, 'line 1: has a "context" that is not a text'),
        ({"sub": "rome", "obj": "italy"}, 'line 1: has neither a "context" nor "evidences"'),
        ({"sub": "rome", "context": "italy"}, 'line 1: lacks the texts "sub" and "obj"'),
        (ROME | {"surfaces": "italian"}, 'line 1: has "surfaces" that are not a list'),
        ({"sub": "rome", "obj": "italy", "evidences": [{}]}, "line 1: has evidences without"),
    ],
)
def test_error_names_the_bad_line(folder, line, sentence):
    write(folder, "dev", [line])

    with pytest.raises(CommandError, match=f"dev.jsonl, {sentence}"):
        run_extract(folder)


def test_files_must_be_utf_8(folder):
    (folder / "capital_of" / "dev.jsonl").write_bytes(b'{"sub": "s\xe3o paulo"}')

    with pytest.raises(CommandError, match="line 1: is not UTF-8"):
        run_extract(folder)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], r"no dev fact with a usable sentence \(it is empty\)"),
        (
            [ROME | {"obj": "papua new guinea", "context": "in [MASK]"}],
            r"no dev fact .* \(1 object of several tokens\)",
        ),
        ([ROME | {"sub": "[SEP]"}], "all dev sentences contain special tokens"),
    ],
)
def test_part_without_usable_facts_is_rejected(folder, lines, sentence):
    write(folder, "dev", lines)

    with pytest.raises(CommandError, match=f"capital_of: {sentence}"):
        run_extract(folder)


def test_unusable_relation_is_rejected_before_any_search(folder, monkeypatch):
    make_relation(name="of", relation_set=RelationSet.objects.get(name="known"), **CAPITALS)
    (folder / "of").mkdir()
    (folder / "of" / "train.jsonl").write_text(json.dumps(ROME))
    monkeypatch.setattr(autoprompt, "search_trigger", pytest.fail)

    with pytest.raises(CommandError, match="of: no dev fact with a usable sentence"):
        run_extract(folder)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"template": "{context} {subject} [T] ."}, r"\[P\] 0 times"),
        ({"template": "{sentence} {subject} [T] [P] ."}, r"unknown field \{sentence\}"),
        ({"template": "{context} {subject} is [P] ."}, "no trigger"),
        ({"relation": ["borders"]}, "There is no relation 'borders'"),
    ],
)
def test_invalid_template_or_relation_is_rejected_with_a_message(folder, options, sentence):
    with pytest.raises(CommandError, match=sentence):
        run_extract(folder, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"template": "{context} [P]"}, "trigger"), ({"template": "{text} [T] [P]"}, "{text}"), ({"iterations": 4}, "5")],
)
def test_impossible_search_is_rejected_before_loading_the_lm(folder, options, sentence):
    with pytest.raises(CommandError, match=sentence):
        run_extract(folder, model="nowhere/at/all", **options)


def test_one_object_cannot_be_perturbed(folder):
    for part in ("train", "dev", "test"):
        write(folder, part, [ROME])

    with pytest.raises(CommandError, match="capital_of: The relation has no object other than 'italy'"):
        run_extract(folder, perturbed=True)


def test_averages_weight_relations_equally():
    base = {"method": "manual", "is_perturbed": False, "is_control": False, "p10": 1, "mrr": 1, "known_p1": 0}
    records = [base | {"p1": p1, "n_test": n, "forwards": 7, "seconds": 1.5} for p1, n in ((0.2, 10), (0.4, 1000))]

    (row,) = extraction_summary(records)

    assert row["p1"] == pytest.approx(0.3)
    assert row["p1_low"] == 0.0  # Student's t on one degree of freedom: 0.3 -+ 12.7 * 0.1
    assert (row["n_relations"], row["forwards"], row["seconds"]) == (2, 14, 3.0)
