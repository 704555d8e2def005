"""Synonyms: where they are put, in which form, and where they are not."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.paraphrasers.rewriting import expanded
from kgharvest.engine.prompts.paraphrasers.synonyms import with_heads, with_synonyms


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("<ENT0> needs <ENT1>", ["<ENT0> requires <ENT1>"]),
        ("<ENT0> began <ENT1>", ["<ENT0> started <ENT1>"]),  # past and participle apart
        ("<ENT1> was begun by <ENT0>", ["<ENT1> was started by <ENT0>"]),
        ("<ENT0> is a result of <ENT1>", ["<ENT0> is an outcome of <ENT1>", "<ENT0> is a consequence of <ENT1>"]),
        ("the workplaces of <ENT0> are <ENT1>", ["the places of work of <ENT0> are <ENT1>"]),
        ("<ENT0> causes <ENT1>", ["<ENT0> brings about <ENT1>", "<ENT0> gives rise to <ENT1>"]),
    ],
)
def test_a_word_is_exchanged_in_its_form(clause: str, said: list[str]) -> None:
    assert list(with_synonyms(clause)) == said


@pytest.mark.parametrize(
    "clause",
    [
        "<ENT0> makes people <ENT1>",  # "creates people"
        "the need for <ENT0> is <ENT1>",  # a noun
        "<ENT0> used to <ENT1>",
        "<ENT0> takes place in <ENT1>",
        "<ENT0> is a means of <ENT1>",
        "by profession, <ENT0> is <ENT1>",
        "<ENT0>-made <ENT1>",
    ],
)
def test_a_word_stays_where_another_would_mean_something_else(clause: str) -> None:
    words = {"create", "creates", "require", "make use of", "made use of", "spot", "way", "occupation", "produced"}

    assert not [text for text in with_synonyms(clause) if words & set(text.replace(",", "").split())]


def test_all_words_are_led_back_to_the_heads_of_their_groups() -> None:
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
def test_contractions_are_written_out(clause: str, full: str) -> None:
    assert expanded(clause) == full
