"""Offline paraphraser: enough prompts for typical relations, with any LM."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import kgharvest
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.creation import create_prompts
from kgharvest.engine.prompts.paraphrasers.offline import OfflineParaphraser
from kgharvest.engine.prompts.paraphrasers.rules import clause_of, frame_patterns, frames
from kgharvest.engine.prompts.template import PromptTemplate
from tests.kgharvest.engine.prompts.fake_lm import FakeLM
from tests.kgharvest.engine.tiny_models import tiny_bert

RELATION_SETS = Path(kgharvest.__file__).parent / "relation_sets"
ENTITIES = ("mask", "virus", "paper", "queen", "silk")


def test_rewrites_come_first_ranked_by_lm_likelihood() -> None:
    answers = {"Because of mask , there is less _ .": {"virus": 9}, "What mask prevents is _ .": {"virus": 8}}
    lm = FakeLM(["mask", "virus"], answers)

    sentences = OfflineParaphraser(lm).paraphrase("mask prevents virus.", ["mask", "virus"])

    assert sentences[:2] == ["Because of mask, there is less virus.", "What mask prevents is virus."]


def test_every_third_paraphrase_is_an_lm_infilling() -> None:
    lm = FakeLM(["mask", "virus", "stops", "prevents"], {"mask _ virus .": {"stops": 9}})

    sentences = OfflineParaphraser(lm).paraphrase("mask prevents virus.", ["mask", "virus"])

    assert sentences[2] == "mask stops virus."


def test_frames_contain_unchanged_sentence() -> None:
    sentences = OfflineParaphraser(FakeLM(["mask", "virus"])).frame("mask prevents virus.", ["mask", "virus"])

    assert len(sentences) == len(frames())
    assert all("mask prevents virus" in sentence for sentence in sentences)


def test_paraphrases_exceeding_lm_limit_are_dropped() -> None:
    lm = FakeLM(["mask", "virus"], max_tokens=8)

    sentences = OfflineParaphraser(lm).paraphrase("mask prevents virus.", ["mask", "virus"])

    assert sentences
    assert all(len(sentence.replace(".", " .").split()) <= 8 for sentence in sentences)


@pytest.mark.parametrize("sentence", ["Does a mask prevent a virus?", "A mask prevents it.", "mask mask virus."])
def test_questions_and_sentences_without_entities_have_no_paraphrases(sentence: str) -> None:
    assert OfflineParaphraser(FakeLM(["mask", "virus"])).paraphrase(sentence, ["mask", "virus"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "<ENT0> prevents <ENT1> .",
        "<ENT0> can <ENT1> in <ENT2> .",
        "<ENT0> is the capital of <ENT1> .",
        "The capital of <ENT0> is <ENT1> .",
        "<ENT0> is a <ENT1> .",
        "<ENT0> was born in <ENT1> .",
        "<ENT0> gives <ENT1> to <ENT2> because of <ENT3> .",
    ],
)
def test_rules_yield_ten_prompts_without_lm_help(text: str) -> None:
    prompt = PromptTemplate.parse(text)
    lm = FakeLM(ENTITIES)  # all words are equally likely

    prompts = create_prompts([prompt], [ENTITIES[: prompt.arity]], OfflineParaphraser(lm), random.Random(0))

    assert len(prompts) == 10
    assert prompts[0] == prompt


@pytest.mark.parametrize("text", ["<ENT0> <ENT1> .", "Tourists in <ENT1> go and see the <ENT0> ."])
def test_unmatched_prompts_are_not_padded_with_frames(text: str) -> None:
    prompts = create_prompts(
        [PromptTemplate.parse(text)], [ENTITIES[:2]], OfflineParaphraser(FakeLM(ENTITIES)), random.Random(0)
    )

    assert n_framed(prompts) <= len(prompts) / 5


@pytest.mark.parametrize("name", ["human", "commonsense", "lama"])
def test_at_most_20_percent_of_shipped_prompts_are_framed(name: str) -> None:
    relations = json.loads((RELATION_SETS / f"{name}.json").read_text())["relations"]
    not_rewritten = []

    for relation in relations:
        initial = [PromptTemplate.parse(text) for text in relation["initial_prompts"]]
        seeds = [ENTITIES[: initial[0].arity]]
        prompts = create_prompts(initial, seeds, OfflineParaphraser(FakeLM(ENTITIES)), random.Random(0))
        assert n_framed(prompts) <= len(prompts) / 5
        not_rewritten += [relation["name"]] if len(prompts) == len(initial) else []

    assert len(not_rewritten) <= len(relations) / 10


def test_published_initial_prompts_yield_seven_or_more_prompts(public_data: Path) -> None:
    relations = json.loads((public_data / "bertnet" / "relation_info" / "human.json").read_text())

    for relation in relations.values():
        initial = [PromptTemplate.parse(text) for text in relation["init_prompts"]]
        seeds = [ENTITIES[: initial[0].arity]]
        prompts = create_prompts(initial, seeds, OfflineParaphraser(FakeLM(ENTITIES)), random.Random(0))
        assert len(prompts) >= 7
        assert n_framed(prompts) <= len(prompts) / 5


def n_framed(prompts: list[PromptTemplate]) -> int:
    clauses = [clause_of(prompt) for prompt in prompts]
    return sum(any(pattern.fullmatch(clause) for pattern in frame_patterns()) for clause in clauses)


def test_same_lm_and_random_state_give_same_prompts(tmp_path: Path) -> None:
    folder = str(tiny_bert(tmp_path, max_tokens=120))
    initial = [PromptTemplate.parse("<ENT0> is the capital of <ENT1> .")]
    seeds = [("paris", "france"), ("rome", "italy")]

    runs = [create_prompts(initial, seeds, OfflineParaphraser(load(folder)), random.Random(3)) for _ in range(2)]

    assert runs[0] == runs[1]


def test_imperative_is_not_framed() -> None:
    paraphraser = OfflineParaphraser(FakeLM(["mask", "virus"]))

    assert paraphraser.frame("Wear a mask against a virus.", ["mask", "virus"]) == []


@pytest.mark.parametrize(("entity", "is_produced"), [("paris", True), ("1921", False)])
def test_year_is_not_treated_as_place(entity: str, is_produced: bool) -> None:
    sentences = OfflineParaphraser(FakeLM(["queen", entity])).paraphrase(
        f"queen was born in {entity}.", ["queen", entity]
    )

    assert (f"The birthplace of queen is {entity}." in sentences) == is_produced
    assert f"The life of queen began in {entity}." in sentences
