"""Import and export of judge answers."""

from __future__ import annotations

import json
from itertools import product

import pytest

from annotation.judges.files.answer_export import FORMATS, export_answers
from annotation.judges.files.answer_import import import_answers
from annotation.judges.labels import judge_labels
from annotation.judges.models import JudgeRun
from annotation.judges.prompts import DEFAULT_PROMPT
from annotation.rounds.services import create_draft
from kgharvest.errors import ImportRefused
from kgharvest.models import KnowledgeTuple
from tests.factories import make_harvest, make_judge_answer, make_judge_run, make_round
from tests.postgres import parameters_counted
from tests.refusals import refused

pytestmark = pytest.mark.django_db

SPEC = {"name": "imported", "kind": "file"}


@pytest.fixture
def round():
    return make_round([("Dog", "bark"), ("Cat", "meow"), ("Fish", "sing")])


def relation_of(round):
    return round.tasks.first().knowledge_tuple.relation


def line(round, entities, **fields) -> str:
    return json.dumps({"relation": relation_of(round).path, "entities": entities, **fields})


def import_lines(round, *lines: str, **spec) -> JudgeRun:
    return import_answers(round, SPEC | spec, "\n".join(lines).encode(), "answers.jsonl")


def labels_by_entities(run) -> dict[tuple, str]:
    found = {answer.knowledge_tuple_id: answer.knowledge_tuple for answer in run.answers.all()}
    return {tuple(found[pk].entities): label for pk, label in judge_labels(run).items()}


def test_imported_labels_and_raw_answers_create_finished_run(round):
    run = import_lines(
        round,
        line(round, ["dog", "bark"], label="true", model="llama-3"),
        line(round, ["CAT", "meow"], raw="**False**", model="llama-3"),
        line(round, ["Fish", "sing"], raw="I cannot say.", model="llama-3"),
    )

    assert (run.status, run.model, run.done) == ("succeeded", "llama-3", 3)
    assert labels_by_entities(run) == {("dog", "bark"): "true", ("cat", "meow"): "false", ("fish", "sing"): ""}


def test_import_uses_few_sql_parameters_for_many_tuples():
    round = make_round([(f"Dog {number}", "bark") for number in range(100)])

    with parameters_counted() as counts:
        run = import_lines(round, line(round, ["dog 7", "bark"], label="true"))

    assert run.done == 1
    assert max(counts) < 100


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"entities": ["Dog", "fly"], "label": "true"}, "which is not in the round"),
        ({"relation": "other/relation", "entities": ["Dog", "bark"], "label": "true"}, "which is not in the round"),
        ({"entities": ["Dog"], "label": "true"}, "has no list of 2 entities"),
        ({"entities": ["Dog", "bark"], "label": "yes"}, "has the label 'yes'"),
        ({"entities": ["Dog", "bark"]}, "neither label nor raw"),
        ({"entities": ["Dog", "bark"], "raw": 3}, "has raw 3"),
        ({"entities": ["Dog", "bark"], "label": "true", "repeat": -1}, "has repeat -1"),
        ({"entities": ["Cat", "meow"], "label": "true"}, "repeats an earlier question"),
        ({"entities": ["Dog", "bark"], "label": "true", "score": float("nan")}, "has score nan"),
        ({"relation": "\ud800", "entities": ["Dog", "bark"], "label": "true"}, "has no relation"),
    ],
)
def test_invalid_line_error_names_line_and_nothing_is_stored(round, fields, says):
    with pytest.raises(ImportRefused, match=f"line 2: .*{says}"):
        import_lines(round, line(round, ["Cat", "meow"], label="true"), line(round, **{"entities": None, **fields}))

    assert not JudgeRun.objects.exists()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"epoch": 0}, "has epoch 0"),
        ({"epoch": None}, "has epoch None"),
        (
            {"output": {"usage": [1], "model": "m", "choices": [{"message": {"content": "True"}}]}},
            "has no model output",
        ),
        ({"output": {"model": "m", "choices": [{"message": {"content": [{"text": 1}]}}]}}, "has text 1"),
    ],
)
def test_invalid_inspect_sample_error_names_sample(round, fields, says):
    output = {"model": "m", "choices": [{"message": {"content": "True"}}]}
    about = {"relation": relation_of(round).path, "entities": ["Dog", "bark"]}

    with pytest.raises(ImportRefused, match=f"sample 1: .*{says}"):
        import_lines(round, json.dumps({"samples": [{"metadata": about, "output": output, **fields}]}))


@pytest.mark.parametrize("resps", [["True"], [[[10**400, False]]], [3]])
def test_lm_eval_line_without_answers_error_names_line(round, resps):
    about = {"relation": relation_of(round).path, "entities": ["Dog", "bark"]}

    with pytest.raises(ImportRefused, match="line 1: has no resps"):
        import_lines(round, json.dumps({"doc": about, "resps": resps}))


def test_unstorable_characters_are_replaced_and_long_names_truncated(round):
    run = import_lines(round, line(round, ["Dog", "bark"], raw="Tr\ud800ue\x00", model="m\x00" * 900))

    assert run.answers.get().raw == "Tr?ue\N{REPLACEMENT CHARACTER}"
    assert len(JudgeRun.objects.get().model) == 500


def test_import_requires_a_spec_of_kind_file(round):
    with refused("BadJudgeSpec", match="kind is chat"):
        import_answers(round, {"name": "a", "kind": "chat", "model": "m", "base_url": "http://x.org"}, b"", "a.jsonl")


@pytest.fixture
def exported_run(round) -> JudgeRun:
    """Return a run with two repeats of unusual answers."""
    relation = relation_of(round)
    texts = {str(relation.pk): {"instructions": "Judge.", "relation": relation.name, "examples": ""}}
    run = make_judge_run(round, "asked", prompt=DEFAULT_PROMPT, repeats=2, model="llama-3", relation_texts=texts)
    raws = ["True", 'False, as "fish" do not sing.\nFalse', "", "Tür\u2028\x85鳥", "Unjudgeable", "true or false"]
    tuples = [task.knowledge_tuple for task in round.tasks.all()]
    for (repeat, found), raw in zip(product(range(2), tuples), raws, strict=True):
        fields = {"raw": raw, "n_prompt_tokens": 50, "n_completion_tokens": 3, "seconds": 0.25, "score": None}
        label = {"True": "true", raws[1]: "false", "Unjudgeable": "unjudgeable"}.get(raw, "")
        make_judge_answer(run, found, label, repeat=repeat, **fields)
    return run


# lm-eval samples contain neither token counts nor time.
KEPT = {
    "jsonl": ("raw", "label", "model_reported", "n_prompt_tokens", "n_completion_tokens", "seconds", "prompt_sha256"),
    "inspect": ("raw", "label", "model_reported", "n_prompt_tokens", "n_completion_tokens", "seconds"),
    "lm-eval": ("raw", "label"),
}


@pytest.mark.parametrize("file_format", FORMATS)
def test_exported_answers_round_trip(exported_run, file_format):
    content = "".join(export_answers(exported_run, file_format)).encode()
    again = import_answers(exported_run.round, SPEC, content, f"answers.{FORMATS[file_format].extension}")

    columns = ("knowledge_tuple", "repeat", *KEPT[file_format])
    rows, copied = (
        list(run.answers.order_by("knowledge_tuple", "repeat").values(*columns)) for run in (exported_run, again)
    )
    assert copied == rows
    assert again.repeats == 2


def test_answers_on_hidden_tuples_of_a_draft_are_exported():
    job = make_harvest([("a", "b"), ("c", "d")])
    run = make_judge_run(create_draft({"name": "draft", "cells": [{"job": job.pk, "n": 2}]}))
    for harvested in job.tuples.all():
        make_judge_answer(run, harvested.knowledge_tuple, "true")
    KnowledgeTuple.objects.update(curation=KnowledgeTuple.Curation.HIDDEN)

    assert len(list(export_answers(run, "jsonl"))) == 2


def test_inspect_export_has_documented_fields(exported_run):
    """Check the fields of EvalLog, EvalSpec, and EvalSample of inspect_ai.log, version 2."""
    log = json.loads("".join(export_answers(exported_run, "inspect")))

    assert (log["version"], log["status"]) == (2, "success")
    assert {"run_id", "created", "task", "task_id", "dataset", "model", "config"} <= log["eval"].keys()
    sample = log["samples"][0]
    assert {"id", "epoch", "input", "target", "messages", "output", "scores", "metadata"} <= sample.keys()
    assert sample["epoch"] == 1
    assert sample["scores"]["judge_label"]["value"] in {"true", "false", "unjudgeable", "N"}
    assert sample["metadata"]["statement"] in sample["input"]


def test_lm_eval_sample_contains_all_repeats_of_a_tuple(exported_run):
    samples = [json.loads(text) for text in export_answers(exported_run, "lm-eval")]

    assert len(samples) == 3
    assert all(len(sample["resps"][0]) == 2 for sample in samples)
    assert {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "doc_hash"} <= samples[0].keys()


def test_lm_eval_lines_of_several_filters_count_once(round):
    doc = {"relation": relation_of(round).path, "entities": ["dog", "bark"]}
    lines = [json.dumps({"doc": doc, "resps": [["True"]], "filter": name}) for name in ("strict-match", "flexible")]

    assert labels_by_entities(import_lines(round, *lines)) == {("dog", "bark"): "true"}


def test_lm_eval_multiple_choice_uses_most_likely_answer(round):
    """Import an lm-eval multiple-choice sample: one log-likelihood request per answer, (logprob, is greedy)."""
    arguments = {f"gen_args_{number}": {"arg_0": "?", "arg_1": word} for number, word in enumerate([" True", " False"])}
    sample = {
        "doc": {"relation": relation_of(round).name, "entities": ["Dog", "bark"]},
        "arguments": arguments,
        "resps": [[["-3.5", "False"]], [["-0.1", "True"]]],
    }

    run = import_lines(round, json.dumps(sample), model="llama-3")

    assert labels_by_entities(run) == {("dog", "bark"): "false"}


def test_text_parts_of_inspect_message_are_joined(round):
    content = [
        {"type": "reasoning", "reasoning": "Hm."},
        {"type": "text", "text": "Tr"},
        {"type": "text", "text": "ue"},
    ]
    about = {"relation": relation_of(round).path, "entities": ["Dog", "bark"]}
    output = {"model": "openai/gpt", "choices": [{"message": {"role": "assistant", "content": content}}]}
    log = {"eval": {"model": "openai/gpt"}, "samples": [{"metadata": about, "epoch": 1, "output": output}]}

    run = import_answers(round, SPEC, json.dumps(log).encode(), "log.json")

    assert labels_by_entities(run) == {("dog", "bark"): "true"}
    assert run.model == "openai/gpt"
