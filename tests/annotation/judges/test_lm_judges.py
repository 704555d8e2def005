"""Local LM judges: the embedded LM by score and a tiny causal LM by the most likely answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from annotation.judges.prompts import DEFAULT_PROMPT, fill
from annotation.judges.runs import create_run
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import compatibilities
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.factories import make_relation, make_round_on
from tests.kgharvest.engine.tiny_models import CASED_WORDS, tiny_gpt2

pytestmark = pytest.mark.django_db

PAIRS = [("paris", "france"), ("rome", "italy"), ("rome", "france"), ("dog", "france")]
PROMPT = "<ENT0> is the capital of <ENT1> ."


@pytest.fixture
def round():
    seeds = [["berlin", "germany"], ["madrid", "spain"]]
    relation = make_relation("capital", statement=PROMPT, initial_prompts=[PROMPT], seed_tuples=seeds)
    return make_round_on(relation, PAIRS)


def finished_run(round, **spec):
    run = create_run(round, {"name": "judge", **spec})
    ledger.run_job(run.pk)
    run.refresh_from_db()
    return run


def by_entities(run, column: str) -> dict[tuple, object]:
    answers = run.answers.select_related("knowledge_tuple")
    return {tuple(answer.knowledge_tuple.entities): getattr(answer, column) for answer in answers}


def test_score_judge_labels_tuples_by_threshold(round):
    lm: LanguageModel = language_models.load(language_models.get_language_model("embedded"), "cpu", "float32")
    tuples = [tuple(lm.encode_entity(entity) for entity in pair) for pair in PAIRS]
    prompt = lm.encode_prompt(PromptTemplate.parse(PROMPT))
    scores = compatibilities(lm, [prompt], tuples, 2 / 3, 8, lambda: None)[:, 0]  # Eq. 1 with a single prompt

    run = finished_run(round, kind="score", model="embedded", threshold=float(np.median(scores)))

    assert run.status == Job.Status.SUCCEEDED, run.error
    assert by_entities(run, "score") == pytest.approx(dict(zip(PAIRS, scores.tolist(), strict=True)), abs=1e-4)
    expected = {
        pair: "true" if score >= np.median(scores) else "false" for pair, score in zip(PAIRS, scores, strict=True)
    }
    assert by_entities(run, "label") == expected
    assert run.answers.first().model_reported.startswith("embedded ")


def test_lm_judge_uses_requested_dtype(round):
    exact = finished_run(round, kind="score", model="embedded", threshold=-5)

    run = finished_run(round, kind="score", model="embedded", threshold=-5, dtype="bfloat16", name="coarse")

    assert run.lm == "embedded on cpu, bfloat16"
    assert by_entities(run, "score") != by_entities(exact, "score")
    assert by_entities(run, "score") == pytest.approx(by_entities(exact, "score"), abs=0.3)


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory):
    words = (*CASED_WORDS, "True", "False", "Unjudgeable", "Answer", "Statement", "capital", "france")
    return tiny_gpt2(tmp_path_factory.mktemp("gpt2"), words=words)


def test_causal_judge_chooses_most_likely_label(round, gpt2_folder):
    prompt = "{statement}\nAnswer:"

    run = finished_run(round, kind="causal", model=str(gpt2_folder), prompt=prompt)

    assert run.status == Job.Status.SUCCEEDED, run.error
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    model = AutoModelForCausalLM.from_pretrained(gpt2_folder).eval()
    for pair, score in by_entities(run, "score").items():
        text = f"{pair[0]} is the capital of {pair[1]}.\nAnswer:"
        logprobs = torch.tensor([logprob_of(model, tokenizer, text, f" {word}\n") for word in WORDS])
        assert score == pytest.approx(float(logprobs.softmax(0)[0]), abs=1e-4)
        assert by_entities(run, "raw")[pair] == WORDS[int(logprobs.argmax())]


WORDS = ("True", "False", "Unjudgeable")


@torch.inference_mode()
def logprob_of(model, tokenizer, text: str, answer: str) -> float:
    """Return log P(answer | text), summed over tokens, computed with transformers only."""
    before, ids = tokenizer(text).input_ids, tokenizer(text + answer).input_ids
    logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return float(sum(logprobs[place - 1, ids[place]] for place in range(len(before), len(ids))))


def test_masked_lm_is_rejected_as_causal_judge(round):
    run = finished_run(round, kind="causal", model="embedded")

    assert run.status == Job.Status.FAILED
    assert "embedded is not a causal LM" in run.error


def test_placeholders_in_prompt_values_are_not_expanded():
    texts = {"instructions": "{statement}", "relation": "r", "examples": ""}

    assert fill(DEFAULT_PROMPT, "a {relation} b", texts).count("{relation}") == 1
