"""Prompt mining from sentences, checked with the examples of the LPAQA paper and hand counts."""

from __future__ import annotations

import pytest

from kgharvest.contrib.probing.prompt_learning.mining import (
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


def test_middle_words_match_example_of_paper():
    assert mined("Barack Obama was born in Hawaii.", {"born": [("Barack Obama", "Hawaii")]}) == {
        "born": {"[X] was born in [Y] .": (1, 1)}
    }


def test_dependency_path_matches_example_of_paper():
    prompts = mine_prompts(sentences_of_conllu(PARIS), CAPITALS, "dependency")

    assert prompts == {"capital": [MinedPrompt("capital of [X] is [Y] .", 1, 1)]}


def test_prompts_are_counted_in_both_directions_ignoring_case():
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


def test_possessive_is_a_separate_word():
    assert list(mined("France's old capital, Paris", CAPITALS)["capital"]) == ["[X]'s old capital, [Y] ."]


def test_uninformative_and_long_prompts_are_excluded():
    text = "\n".join([
        "France of the Paris", "France , Paris", "France Paris",
        "France one two three four five six seven eight nine ten Paris",
        "France one two three four five six seven eight nine ten eleven Paris",
    ])  # fmt: skip

    assert list(mined(text, CAPITALS)["capital"]) == ["[X] one two three four five six seven eight nine ten [Y] ."]


def test_pair_of_two_relations_counts_for_both_and_limit_applies_per_relation():
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


def test_longest_entity_is_found_without_nested_entities():
    index = EntityIndex(["new", "new york", "new york city", "york"])

    found = [(row.entity, row.start) for row in index.find(["New", "York", "City", "and", "New", "York", ",", "York"])]

    assert found == [("new york city", 0), ("new york", 4), ("york", 7)]


def test_dependency_path_may_leave_the_span_and_cycles_terminate():
    # "x and y met": the path from x to y contains "met", which follows both.
    sentence = Sentence(("x", "and", "y", "met"), (3, 2, 3, -1))
    assert mine_prompts([sentence], {"r": [("x", "y")]}, "dependency")["r"][0].template == "[X] and [Y] met ."

    cycle = Sentence(("x", "saw", "y"), (1, 2, 1))
    assert mine_prompts([cycle], {"r": [("x", "y")]}, "dependency")["r"][0].template == "[X] saw [Y] ."
    assert mine_prompts([Sentence(("x", "saw", "y"))], {"r": [("x", "y")]}, "dependency") == {"r": []}


def test_conllu_multiword_tokens_and_empty_nodes_are_skipped():
    lines = ["# text = du x", "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_", *(line for line in parsed(("de", 2), ("x", 0)))]
    lines.insert(3, "1.1\tgone\t_\t_\t_\t_\t_\t_\t_\t_")

    assert list(sentences_of_conllu(lines)) == [Sentence(("de", "x"), (1, -1))]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1\tx\n"], "Line 1 is not a CoNLL-U word"),
        ([*parsed(("x", 0)), "2\ty\t_\t_\t_\t_\t0\t_\t_\t_"], "Line 3 is not a CoNLL-U word"),
        (parsed(("x", 7)), "line 1 has 1 words, but a word depends on word 7"),
    ],
)
def test_invalid_conllu_is_refused(lines, message):
    with pytest.raises(EngineError, match=message):
        list(sentences_of_conllu(lines))
