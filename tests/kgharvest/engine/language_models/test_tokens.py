"""Tokenizers of every type: entity ids, text around slots, leading spaces, and continuation pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from kgharvest.engine.language_models.tokens import Tokens
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, BadSeed
from tests.kgharvest.engine import tiny_models

WORDPIECE = ("bert", "distilbert")
SENTENCEPIECE = ("albert", "xlm_roberta", "llama")
BYTE_LEVEL = ("roberta", "modernbert", "bart", "gpt2")


@pytest.fixture
def tokens_of(tiny):
    return lambda family: tiny(family).tokens


def pieces(tokens: Tokens, ids) -> list[str]:
    return tokens._tokenizer.convert_ids_to_tokens(list(ids))


def may_be_first(tokens: Tokens) -> list[str]:
    return pieces(tokens, np.flatnonzero(tokens.starts_entity).tolist())


def may_be_later_only(tokens: Tokens) -> list[str]:
    return pieces(tokens, np.flatnonzero(tokens.continues_entity & ~tokens.starts_entity).tolist())


@pytest.mark.parametrize("family", WORDPIECE)
def test_wordpiece_continuations_are_exactly_the_later_only_tokens(family, tokens_of):
    tokens = tokens_of(family)

    assert {"##s", "##a"} <= set(may_be_later_only(tokens))
    assert all(piece.startswith("##") for piece in may_be_later_only(tokens))
    assert not any(piece.startswith("##") for piece in may_be_first(tokens))


@pytest.mark.parametrize(("mark", "families"), [("Ġ", BYTE_LEVEL), ("▁", SENTENCEPIECE)])
def test_entity_starts_with_word_start_mark(mark, families, tokens_of):
    for tokens in map(tokens_of, families):
        assert f"{mark}paris" in may_be_first(tokens)
        assert all(piece.startswith(mark) for piece in may_be_first(tokens))
        assert "s" in may_be_later_only(tokens)
        assert not any(piece.startswith(mark) for piece in may_be_later_only(tokens))


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("bert", ["paris", "##s"]),
        ("albert", ["▁paris", "s"]),
        ("xlm_roberta", ["▁paris", "s"]),
        ("llama", ["▁paris", "s"]),
        ("roberta", ["Ġparis", "s"]),
        ("modernbert", ["Ġparis", "s"]),
        ("bart", ["Ġparis", "s"]),
        ("gpt2", ["Ġparis", "s"]),
    ],
)
def test_entity_is_encoded_with_leading_space(family, expected, tokens_of):
    tokens = tokens_of(family)

    assert pieces(tokens, tokens.encode_entity("pariss")) == expected
    assert tokens.encode_entity("  pariss ") == tokens.encode_entity("pariss")


def test_whitespace_in_entity_is_normalized(lm):
    assert lm.encode_entity("dog \n cat") == lm.encode_entity("dog cat")


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("bert", [["[CLS]", "the"], ["s", "can"], [",", "swim", ".", "[SEP]"]]),
        ("distilbert", [["[CLS]", "the"], ["s", "can"], [",", "swim", ".", "[SEP]"]]),
        ("albert", [["[CLS]", "▁the"], ["s", "▁can"], [",", "▁swim", "▁", ".", "[SEP]"]]),
        ("xlm_roberta", [["<s>", "▁the"], ["s", "▁can"], [",", "▁swim", "▁", ".", "</s>"]]),
        ("roberta", [["<s>", "the"], ["s", "Ġcan"], [",", "Ġswim", "Ġ.", "</s>"]]),
        ("modernbert", [["[CLS]", "the"], ["s", "Ġcan"], [",", "Ġswim", "Ġ.", "[SEP]"]]),
        ("bart", [["<s>", "the"], ["s", "Ġcan"], [",", "Ġswim", "Ġ.", "</s>"]]),
    ],
)
def test_text_adjacent_to_slot_is_tokenized_separately(family, expected, tokens_of):
    tokens = tokens_of(family)

    encoded = tokens.encode_prompt(PromptTemplate.parse("the <ENT0>s can <ENT1>, swim ."))

    assert [pieces(tokens, segment) for segment in encoded.segments] == expected


@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "xlm_roberta", "roberta", "modernbert", "bart"])
def test_filled_prompt_ids_match_tokenized_sentence(family, tokens_of):
    tokens = tokens_of(family)
    prompt = PromptTemplate.parse("the capital of <ENT1> is <ENT0> , in a place")
    entities = ["rome", "dog cat"]

    first, second, third = tokens.encode_prompt(prompt).segments
    ids = first + tokens.encode_entity("dog cat") + second + tokens.encode_entity("rome") + third

    assert list(ids) == tokens._tokenizer(prompt.fill(entities)).input_ids


@pytest.mark.parametrize("text", ["<ENT0>is <ENT1>", " <ENT0>  is\n <ENT1> ", "<ENT0>is <ENT1>\n"])
def test_whitespace_in_prompt_is_normalized(text, lm):
    tidy = " ".join(text.split())

    assert lm.encode_prompt(PromptTemplate.parse(text)) == lm.encode_prompt(PromptTemplate.parse(tidy))


def test_unknown_character_adjacent_to_slot_is_kept(tokens_of):
    tokens = tokens_of("xlm_roberta")

    encoded = tokens.encode_prompt(PromptTemplate.parse("<ENT0>☃ is in <ENT1>"))

    assert pieces(tokens, encoded.segments[1]) == ["<unk>", "▁is", "▁in"]


def test_byte_level_tokenizer_with_prefix_space_keeps_adjacent_text(folder_of):
    tokenizer = AutoTokenizer.from_pretrained(folder_of("roberta"), add_prefix_space=True)
    tokens = Tokens(tokenizer, len(tokenizer))

    encoded = tokens.encode_prompt(PromptTemplate.parse("<ENT0>s, is <ENT1>"))

    assert pieces(tokens, tokens.encode_entity("dog cat")) == ["Ġdog", "Ġcat"]
    assert pieces(tokens, encoded.segments[1]) == ["s", ",", "Ġis"]


@pytest.mark.parametrize("family", ["bert", "xlm_roberta", "roberta", "llama"])
def test_special_token_in_prompt_is_refused(family, lm, folder_of):
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))
    special = tokenizer.mask_token or tokenizer.eos_token
    prompt = PromptTemplate.parse(f"<ENT0> is {special} <ENT1>")

    with pytest.raises(BadPrompt, match="special token"):
        lm.encode_prompt(prompt)


def test_is_cased_is_detected_from_tokenizer_behavior(tmp_path: Path, tokens_of):
    words = (*tiny_models.WORDS, "Paris")
    cased = AutoTokenizer.from_pretrained(tiny_models.tiny_bert(tmp_path, words=words, lower_case=False))

    assert not tokens_of("bert").is_cased
    assert not tokens_of("albert").is_cased
    assert tokens_of("roberta").is_cased
    assert Tokens(cased, len(cased)).is_cased


@pytest.mark.parametrize(
    ("family", "spelling"), [("bert", ["dog", "##s"]), ("roberta", ["Ġdog", "s"]), ("xlm_roberta", ["▁dog", "s"])]
)
def test_default_tokenization_is_canonical(family, spelling, tokens_of):
    tokens = tokens_of(family)
    ids = tuple(tokens._tokenizer.convert_tokens_to_ids(spelling))

    assert tokens.canonical_texts([ids]) == ["dogs"]


@pytest.mark.parametrize(
    ("family", "spelling"),
    [
        ("bert", ["d", "##o", "##g"]),
        ("albert", ["▁", "d", "o", "g"]),
        ("xlm_roberta", ["▁", "d", "o", "g"]),
        ("roberta", ["Ġ", "dog"]),
        ("gpt2", ["Ġ", "dog"]),
        ("gpt2", ["Ġdog", "Ċ", "Ġcat"]),
        ("llama", ["▁", "d", "og"]),
        ("llama", ["▁dog", "<0xC3>"]),
        ("roberta", ["Ġdog", "Ġ"]),
    ],
)
def test_alternative_tokenization_is_not_canonical(family, spelling, tokens_of):
    tokens = tokens_of(family)
    ids = tuple(tokens._tokenizer.convert_tokens_to_ids(spelling))

    assert None not in ids
    assert tokens.canonical_texts([ids]) == [None]


def test_byte_fallback_characters_are_canonical(tokens_of):
    tokens = tokens_of("llama")

    ids = tokens.encode_entity("café")

    assert pieces(tokens, ids)[-2:] == ["<0xC3>", "<0xA9>"]
    assert tokens.canonical_texts([ids]) == ["café"]


def test_empty_batch_has_no_canonical_texts(lm):
    assert lm.canonical_texts([]) == []


def test_unknown_character_raises_bad_seed_naming_entity(tokens_of):
    for family in ("bert", "albert", "xlm_roberta"):
        with pytest.raises(BadSeed, match="cannot write the entity '☃'"):
            tokens_of(family).encode_entity("☃")
