"""Answers of judges in and out of files."""

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


def imported(round, *lines: str, **spec) -> JudgeRun:
    return import_answers(round, SPEC | spec, "\n".join(lines).encode(), "answers.jsonl")


def labels_by_entities(run) -> dict[tuple, str]:
    found = {answer.knowledge_tuple_id: answer.knowledge_tuple for answer in run.answers.all()}
    return {tuple(found[pk].entities): label for pk, label in judge_labels(run).items()}


def test_labels_and_raw_answers_become_a_finished_run(round):
    run = imported(
        round,
        line(round, ["dog", "bark"], label="true", model="llama-3"),
        line(round, ["CAT", "meow"], raw="**False**", model="llama-3"),
        line(round, ["Fish", "sing"], raw="I cannot say.", model="llama-3"),
    )

    assert (run.status, run.model, run.done) == ("succeeded", "llama-3", 3)
    assert labels_by_entities(run) == {("dog", "bark"): "true", ("cat", "meow"): "false", ("fish", "sing"): ""}


def test_however_many_tuples_are_judged_a_statement_names_few_of_them():
    round = make_round([(f"Dog {number}", "bark") for number in range(100)])

    with parameters_counted() as counts:
        run = imported(round, line(round, ["dog 7", "bark"], label="true"))

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
def test_a_line_that_cannot_be_used_is_named_and_nothing_is_stored(round, fields, says):
    with pytest.raises(ImportRefused, match=f"line 2: .*{says}"):
        imported(round, line(round, ["Cat", "meow"], label="true"), line(round, **{"entities": None, **fields}))

    assert not JudgeRun.objects.exists()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"epoch": 0}, "has epoch 0"),
        ({"epoch": None}, "has epoch None"),
        ({"output": {"usage": [1], "model": "m", "choices": [{"message": {"content": "True"}}]}}, "has no output"),
        ({"output": {"model": "m", "choices": [{"message": {"content": [{"text": 1}]}}]}}, "has text 1"),
    ],
)
def test_a_sample_of_inspect_that_cannot_be_used_is_named(round, fields, says):
    output = {"model": "m", "choices": [{"message": {"content": "True"}}]}
    about = {"relation": relation_of(round).path, "entities": ["Dog", "bark"]}

    with pytest.raises(ImportRefused, match=f"sample 1: .*{says}"):
        imported(round, json.dumps({"samples": [{"metadata": about, "output": output, **fields}]}))


@pytest.mark.parametrize("resps", [["True"], [[[10**400, False]]], [3]])
def test_a_line_of_lm_eval_without_answers_is_named(round, resps):
    about = {"relation": relation_of(round).path, "entities": ["Dog", "bark"]}

    with pytest.raises(ImportRefused, match="line 1: has no resps"):
        imported(round, json.dumps({"doc": about, "resps": resps}))


def test_what_a_database_cannot_hold_of_a_file_is_stored_as_far_as_it_can(round):
    run = imported(round, line(round, ["Dog", "bark"], raw="Tr\ud800ue\x00", model="m\x00" * 900))

    assert run.answers.get().raw == "Tr?ue\N{REPLACEMENT CHARACTER}"
    assert len(JudgeRun.objects.get().model) == 500


def test_a_judge_of_another_kind_reads_no_file(round):
    with refused("BadJudgeSpec", match="kind is chat"):
        import_answers(round, {"name": "a", "kind": "chat", "model": "m", "base_url": "http://x.org"}, b"", "a.jsonl")


@pytest.fixture
def asked(round) -> JudgeRun:
    """A run with two repeats of odd answers."""
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


# lm-eval's samples have neither tokens nor time.
KEPT = {
    "jsonl": ("raw", "label", "model_reported", "n_prompt_tokens", "n_completion_tokens", "seconds", "prompt_sha256"),
    "inspect": ("raw", "label", "model_reported", "n_prompt_tokens", "n_completion_tokens", "seconds"),
    "lm-eval": ("raw", "label"),
}


@pytest.mark.parametrize("file_format", FORMATS)
def test_what_is_written_is_read_again_as_it_was(asked, file_format):
    content = "".join(export_answers(asked, file_format)).encode()
    again = import_answers(asked.round, SPEC, content, f"answers.{FORMATS[file_format].extension}")

    columns = ("knowledge_tuple", "repeat", *KEPT[file_format])
    rows, copied = (list(run.answers.order_by("knowledge_tuple", "repeat").values(*columns)) for run in (asked, again))
    assert copied == rows
    assert again.repeats == 2


def test_answers_about_what_a_draft_has_no_more_are_written_all_the_same():
    job = make_harvest([("a", "b"), ("c", "d")])
    run = make_judge_run(create_draft({"name": "draft", "cells": [{"job": job.pk, "n": 2}]}))
    for harvested in job.tuples.all():
        make_judge_answer(run, harvested.knowledge_tuple, "true")
    KnowledgeTuple.objects.update(curation=KnowledgeTuple.Curation.HIDDEN)

    assert len(list(export_answers(run, "jsonl"))) == 2


def test_an_inspect_log_has_the_fields_of_its_documentation(asked):
    """EvalLog, EvalSpec and EvalSample of inspect_ai.log, version 2."""
    log = json.loads("".join(export_answers(asked, "inspect")))

    assert (log["version"], log["status"]) == (2, "success")
    assert {"run_id", "created", "task", "task_id", "dataset", "model", "config"} <= log["eval"].keys()
    sample = log["samples"][0]
    assert {"id", "epoch", "input", "target", "messages", "output", "scores", "metadata"} <= sample.keys()
    assert sample["epoch"] == 1
    assert sample["scores"]["judge_label"]["value"] in {"true", "false", "unjudgeable", "N"}
    assert sample["metadata"]["statement"] in sample["input"]


def test_a_sample_of_lm_eval_holds_all_repeats_of_a_tuple(asked):
    samples = [json.loads(text) for text in export_answers(asked, "lm-eval")]

    assert len(samples) == 3
    assert all(len(sample["resps"][0]) == 2 for sample in samples)
    assert {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "doc_hash"} <= samples[0].keys()


def test_of_the_lines_that_lm_eval_writes_for_each_filter_one_counts(round):
    doc = {"relation": relation_of(round).path, "entities": ["dog", "bark"]}
    lines = [json.dumps({"doc": doc, "resps": [["True"]], "filter": name}) for name in ("strict-match", "flexible")]

    assert labels_by_entities(imported(round, *lines)) == {("dog", "bark"): "true"}


def test_of_answers_that_an_lm_weighed_the_likeliest_counts(round):
    """lm-eval's multiple choice: a loglikelihood request for each answer, with (logprob, is greedy)."""
    arguments = {f"gen_args_{number}": {"arg_0": "?", "arg_1": word} for number, word in enumerate([" True", " False"])}
    sample = {
        "doc": {"relation": relation_of(round).name, "entities": ["Dog", "bark"]},
        "arguments": arguments,
        "resps": [[["-3.5", "False"]], [["-0.1", "True"]]],
    }

    run = imported(round, json.dumps(sample), model="llama-3")

    assert labels_by_entities(run) == {("dog", "bark"): "false"}


def test_parts_of_an_inspect_message_are_joined(round):
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
