"""Infilling: replacement of words between the slots by suggestions of the LM."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.paraphrasers.offline import Blank, blanks, is_apt, meaning_overlaps, refill
from kgharvest.engine.prompts.template import PromptTemplate
from tests.kgharvest.engine.prompts.fake_lm import FakeLM
from tests.kgharvest.engine.tiny_models import tiny_bart, tiny_bert, tiny_gpt2, tiny_roberta

PROMPT = PromptTemplate.parse("<ENT0> prevents <ENT1> .")
WORDS = ["mask", "virus", "rain", "prevents", "stops", "beats", "never", "in", "."]


def test_blanks_are_content_words_and_pairs_around_them() -> None:
    prompt = PromptTemplate.parse("The capital of <ENT0>s, by law, is <ENT1> .")

    assert [blank.words for blank in blanks(prompt)] == [
        ("capital",),
        ("law",),
        ("The", "capital"),
        ("capital", "of"),
        ("by", "law"),
    ]


def test_text_adjacent_to_slot_is_not_a_blank() -> None:
    assert blanks(PromptTemplate.parse("<ENT0>s are <ENT1>ing .")) == []


def test_blank_is_a_span_of_prompt_text() -> None:
    (blank,) = blanks(PROMPT)

    assert blank == Blank(7, 15, ("prevents",))
    assert blank.fill(PROMPT.text, "stops") == "<ENT0> stops <ENT1> ."


def test_likely_fillers_that_keep_meaning_are_accepted() -> None:
    lm = FakeLM(WORDS, {"mask _ virus .": {"stops": 9, "beats": 8, "never": 7, "in": 6}})

    assert [prompt.text for prompt in refill(lm, PROMPT, ["mask", "virus"])] == [
        "<ENT0> stops <ENT1> .",
        "<ENT0> beats <ENT1> .",
    ]


@pytest.mark.parametrize("text", ["mask beats _ .", "_ beats virus ."])
def test_fillers_that_change_meaning_are_dropped(text: str) -> None:
    answers = {"mask _ virus .": {"stops": 9, "beats": 8}, text: {"rain": 20}}

    assert [prompt.text for prompt in refill(FakeLM(WORDS, answers), PROMPT, ["mask", "virus"])] == [
        "<ENT0> stops <ENT1> ."
    ]


def test_two_word_blanks_are_filled_sequentially() -> None:
    prompt = PromptTemplate.parse("<ENT0> is used for <ENT1> .")
    words = ["mask", "virus", "is", "used", "for", "made", "against", "."]
    answers = {"mask is _ ? virus .": {"made": 9}, "mask is made _ virus .": {"against": 9}}

    assert "<ENT0> is made against <ENT1> ." not in texts(refill(FakeLM(words), prompt, ["mask", "virus"]))
    assert "<ENT0> is made against <ENT1> ." in texts(refill(FakeLM(words, answers), prompt, ["mask", "virus"]))


def texts(prompts: list[PromptTemplate]) -> list[str]:
    return [prompt.text for prompt in prompts]


@pytest.mark.parametrize(
    ("filler", "words", "apt"),
    [
        ("stops", ["prevents"], True),
        ("stop", ["prevents"], False),
        ("prevents", ["prevents"], False),
        ("never", ["capital"], False),
        ("the", ["capital"], False),
        ("x", ["capital"], False),
        ("city of", ["capital", "of"], True),
        ("city in", ["capital", "of"], True),
        ("of city", ["capital", "of"], False),
        ("city", ["capital", "of"], False),
        ("1990", ["capital"], False),
    ],
)
def test_filler_matches_word_classes_of_blank(filler: str, words: list[str], apt: bool) -> None:
    assert is_apt(filler, words) is apt


def test_meaning_overlap_is_bhattacharyya_coefficient() -> None:
    # Second entity: P = (1/2, 1/2, 0 ..) and Q = (1/2, 0, 1/2, 0 ..), so sqrt(1/2 * 1/2) = 1/2. First entity: both are
    # flat, so 1. The minimum counts.
    answers = {"mask prevents _ .": {"virus": 50, "rain": 50}, "mask stops _ .": {"virus": 50, "snow": 50}}
    lm = FakeLM(["mask", "virus", "rain", "snow"], answers)
    variants = [PROMPT, PromptTemplate.parse("<ENT0> stops <ENT1> .")]

    overlaps = meaning_overlaps(lm, PROMPT, variants, ["mask", "virus"])

    assert overlaps == pytest.approx([1.0, 0.5], abs=1e-6)


def test_filler_never_repeats_a_word() -> None:
    prompt = PromptTemplate.parse("The usual colour of <ENT0> is <ENT1> .")
    lm = FakeLM(["milk", "white", "colour", "common"], {"The _ colour of milk is white .": {"colour": 9, "common": 8}})

    assert texts(refill(lm, prompt, ["milk", "white"])) == ["The common colour of <ENT0> is <ENT1> ."]


def test_article_agrees_with_filler() -> None:
    blank = Blank(12, 18, ("symbol",))

    assert blank.fill("<ENT0> is a symbol of <ENT1> .", "emblem") == "<ENT0> is an emblem of <ENT1> ."
    assert blank.fill("<ENT0> is a symbol of <ENT1> .", "sign") == "<ENT0> is a sign of <ENT1> ."


@pytest.mark.parametrize("build", [tiny_bert, tiny_roberta, tiny_bart, tiny_gpt2])
def test_every_lm_family_can_refill(build, tmp_path: Path) -> None:
    lm = load(str(build(tmp_path)))
    prompt = PromptTemplate.parse("<ENT0> is the capital of <ENT1> .")

    refilled = refill(lm, prompt, ["paris", "france"])

    assert all(variant.arity == 2 and variant.text != prompt.text for variant in refilled)
