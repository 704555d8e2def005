"""Prompts mined from sentences, on LPAQA's own examples and on counts by hand."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.mining import (
    EntityIndex,
    MinedPrompt,
    Sentence,
    mine_prompts,
    sentences_of_conllu,
    sentences_of_text,
)
from kgharvest.engine.types import EngineError

CAPITALS = {"capital": [("France", "Paris"), ("Italy", "Rome"), ("New Zealand", "Wellington")]}


def mined(text, facts, **options):
    return {
        relation: {prompt.template: (prompt.n, prompt.n_facts) for prompt in prompts}
        for relation, prompts in mine_prompts(sentences_of_text(text.splitlines()), facts, **options).items()
    }


def parsed(*rows: tuple[str, int]) -> list[str]:
    return [f"{n}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for n, (word, head) in enumerate(rows, start=1)] + ["\n"]


PARIS = parsed(("The", 2), ("capital", 6), ("of", 4), ("France", 2), ("is", 6), ("Paris", 0))


def test_the_papers_example_of_middle_words():
    assert mined("Barack Obama was born in Hawaii.", {"born": [("Barack Obama", "Hawaii")]}) == {
        "born": {"[X] was born in [Y] .": (1, 1)}
    }


def test_the_papers_example_of_a_dependency_path():
    prompts = mine_prompts(sentences_of_conllu(PARIS), CAPITALS, "dependency")

    assert prompts == {"capital": [MinedPrompt("capital of [X] is [Y] .", 1, 1)]}


def test_prompts_are_counted_in_both_directions_whatever_the_case():
    text = """
    FRANCE has the capital Paris.
    New Zealand has the capital Wellington, and Italy has the capital Rome.
    Rome, capital of Italy, and Paris, capital of France.
    Paris, capital of France, again.
    """

    found = mined(text, CAPITALS)["capital"]

    assert found["[X] has the capital [Y] ."] == (3, 3)
    assert found["[Y], capital of [X] ."] == (3, 2)
    assert list(found) == ["[X] has the capital [Y] .", "[Y], capital of [X] ."]


def test_a_possessive_is_a_word_of_its_own():
    assert list(mined("France's old capital, Paris", CAPITALS)["capital"]) == ["[X]'s old capital, [Y] ."]


def test_what_tells_nothing_and_what_is_long_is_left_out():
    text = "\n".join([
        "France of the Paris", "France , Paris", "France Paris",
        "France one two three four five six seven eight nine ten Paris",
        "France one two three four five six seven eight nine ten eleven Paris",
    ])  # fmt: skip

    assert list(mined(text, CAPITALS)["capital"]) == ["[X] one two three four five six seven eight nine ten [Y] ."]


def test_a_pair_of_two_relations_counts_for_both_and_most_cuts_each():
    facts = {"a": [("x", "y")], "b": [("x", "y"), ("y", "x")]}
    text = "x likes y\nx likes y\nx hates y"

    assert mined(text, facts) == {
        "a": {"[X] likes [Y] .": (2, 1), "[X] hates [Y] .": (1, 1)},
        "b": {
            "[X] likes [Y] .": (2, 1), "[Y] likes [X] .": (2, 1),
            "[X] hates [Y] .": (1, 1), "[Y] hates [X] .": (1, 1),
        },
    }  # fmt: skip
    assert mined(text, facts, most=1) == {"a": {"[X] likes [Y] .": (2, 1)}, "b": {"[X] likes [Y] .": (2, 1)}}


def test_the_longest_entity_is_found_and_none_within_another():
    index = EntityIndex(["new", "new york", "new york city", "york"])

    found = [(row.entity, row.start) for row in index.find(["New", "York", "City", "and", "New", "York", ",", "York"])]

    assert found == [("new york city", 0), ("new york", 4), ("york", 7)]


def test_a_path_may_leave_the_words_between_and_a_tree_that_is_none_ends():
    # "x and y met": the path from x to y leads through "met", which stands after both.
    sentence = Sentence(("x", "and", "y", "met"), (3, 2, 3, -1))
    assert mine_prompts([sentence], {"r": [("x", "y")]}, "dependency")["r"][0].template == "[X] and [Y] met ."

    circle = Sentence(("x", "saw", "y"), (1, 2, 1))
    assert mine_prompts([circle], {"r": [("x", "y")]}, "dependency")["r"][0].template == "[X] saw [Y] ."
    assert mine_prompts([Sentence(("x", "saw", "y"))], {"r": [("x", "y")]}, "dependency") == {"r": []}


def test_words_that_were_joined_or_elided_are_no_words():
    lines = ["# text = du x", "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_", *(line for line in parsed(("de", 2), ("x", 0)))]
    lines.insert(3, "1.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_")

    assert list(sentences_of_conllu(lines)) == [Sentence(("de", "x"), (1, -1))]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1\tx\n"], "Line 1 is not a CoNLL-U word"),
        ([*parsed(("x", 0)), "2\ty\t_\t_\t_\t_\t0\t_\t_\t_"], "Line 3 is not a CoNLL-U word"),
        (parsed(("x", 7)), "line 1 has 1 words, but a word depends on number 7"),
    ],
)
def test_a_file_that_is_no_conllu_is_refused(lines, said):
    with pytest.raises(EngineError, match=said):
        list(sentences_of_conllu(lines))
