"""Synonym replacement: forms and exceptions."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.paraphrasers.rules import expanded, with_article, with_heads, with_synonyms


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("<ENT0> needs <ENT1>", ["<ENT0> requires <ENT1>"]),
        ("<ENT0> began <ENT1>", ["<ENT0> started <ENT1>"]),  # past tense and participle differ
        ("<ENT1> was begun by <ENT0>", ["<ENT1> was started by <ENT0>"]),
        ("<ENT0> is a result of <ENT1>", ["<ENT0> is an outcome of <ENT1>", "<ENT0> is a consequence of <ENT1>"]),
        ("the workplaces of <ENT0> are <ENT1>", ["the places of work of <ENT0> are <ENT1>"]),
        ("<ENT0> causes <ENT1>", ["<ENT0> brings about <ENT1>", "<ENT0> gives rise to <ENT1>"]),
    ],
)
def test_synonym_has_form_of_replaced_word(clause: str, expected: list[str]) -> None:
    assert list(with_synonyms(clause)) == expected


@pytest.mark.parametrize(
    "clause",
    [
        "<ENT0> makes people <ENT1>",  # "creates people"
        "the need for <ENT0> is <ENT1>",  # a noun
        "<ENT0> used to <ENT1>",
        "<ENT0> is a means of <ENT1>",
        "by profession, <ENT0> is <ENT1>",
        "<ENT0>-made <ENT1>",
        "<ENT0> makes a <ENT1> sad",
        "<ENT0> made a decision about <ENT1>",
        "<ENT0> borders <ENT1>",  # verbs that look like nouns
        "<ENT0> means <ENT1>",
        "<ENT0> will result in <ENT1>",
        "the root cause of <ENT0> is <ENT1>",  # and the reverse
        "<ENT0> is kind to <ENT1>",
        "<ENT0> is opposite the <ENT1>",
        "<ENT0> has a capacity of <ENT1>",
        "<ENT0> scored a goal for <ENT1>",
        "the occupation of <ENT0> by <ENT1>",  # by an army
        "<ENT0> and <ENT1> are separate <ENT2>",
        "<ENT0> may not contain <ENT1>",  # "may not" is not "could not"
        "it is important for <ENT0> to <ENT1>",
    ],
)
def test_ambiguous_word_is_not_replaced(clause: str) -> None:
    assert list(with_synonyms(clause)) == []


def test_takes_place_is_replaced_as_a_phrase() -> None:
    assert list(with_synonyms("<ENT0> takes place in <ENT1>")) == [
        "<ENT0> happens in <ENT1>",
        "<ENT0> occurs in <ENT1>",
    ]


def test_sign_is_not_replaced_by_symptom() -> None:
    assert "symptom" not in with_heads("<ENT0> is a sign of <ENT1>")  # dark clouds are a sign of rain


def test_words_are_mapped_to_heads_of_synonym_groups() -> None:
    assert with_heads("a variety of <ENT0> requires <ENT1>") == "a kind of <ENT0> needs <ENT1>"


@pytest.mark.parametrize(
    ("clause", "full"),
    [
        ("if something isn't <ENT0>", "if something is not <ENT0>"),
        ("a <ENT0> can’t <ENT1>", "a <ENT0> cannot <ENT1>"),
        ("you'd see <ENT0>", "you would see <ENT0>"),
        ("<ENT1>'s capital is <ENT0>", "<ENT1>'s capital is <ENT0>"),
    ],
)
def test_contractions_are_expanded(clause: str, full: str) -> None:
    assert expanded(clause) == full


@pytest.mark.parametrize(
    ("before", "word", "text"),
    [
        ("A ", "outcome", "An outcome"),
        ("<ENT0> is an ", "result", "<ENT0> is a result"),
        ("it is a ", "hour", "it is an hour"),
        ("it is a ", "university", "it is a university"),
        ("the ", "outcome", "the outcome"),
    ],
)
def test_article_agrees_with_next_word(before: str, word: str, text: str) -> None:
    assert with_article(before, word) == text
