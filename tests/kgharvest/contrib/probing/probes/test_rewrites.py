"""Parts of speech of replaced tokens, and examples of rewrites that corrected an answer."""

from __future__ import annotations

import pytest

from kgharvest.contrib.probing.probes.rewrites import (
    ComparedRewrite,
    examples,
    replaced_parts_of_speech,
    token_tags,
)
from kgharvest.contrib.probing.prompt_learning.bertese import Rewrite


@pytest.mark.parametrize(  # words that BERTese replaced (Haviv et al. 2021, Table 2), and other tags of its Table 4
    ("question", "tags"),
    [
        ("will & grace was originally aired on [MASK] .", "MD & NN VBD RB VBN IN [MASK] ."),
        ("yahoo ! tech is owned by [MASK] .", "NN ! NNP VBZ VBN IN [MASK] ."),
        ("working dog is a subclass of [MASK] .", "NN NN VBZ DT NN IN [MASK] ."),
        ("hez ##ar ##fen airfield is named after [MASK] .", "NNP NNP NNP NN VBZ VBN IN [MASK] ."),
        ("lubka plays [MASK] in 1942 .", "NNP VBZ [MASK] IN CD ."),
        ("the film is happy about France", "DT NN VBZ JJ IN NNP"),
    ],
)
def test_words_of_published_rewrites_are_tagged(question, tags):
    assert token_tags(question.split()) == tags.split()


def compared(part, before, after, was_right, is_right):
    return ComparedRewrite(part, Rewrite(tuple(before.split()), tuple(after.split()), is_right), was_right)


def test_only_replaced_tokens_of_the_test_part_are_counted():
    rewrites = [
        compared("test", "the film was aired on [MASK] .", "a film is aired on [MASK] .", False, True),
        compared("test", "the film was aired on [MASK] .", "the film was aired on [MASK] .", True, True),
        compared("dev", "the dog", "a dog", False, True),
    ]

    assert replaced_parts_of_speech(rewrites) == {"DT": 1, "VBD": 1}


def test_examples_are_the_first_five_corrections_of_each_part():
    rewrites = [
        compared(part, f"{number} [MASK]", "so [MASK]", number % 2 == 1, number != 4)
        for part in ("dev", "test")
        for number in range(16)
    ]

    columns = list(examples(rewrites))

    assert [(row["part"], row["rewritten_from"].split()[0]) for row in columns] == [
        (part, number) for part in ("dev", "test") for number in ("0", "2", "6", "8", "10")
    ]
    assert {(row["text"], row["weight"]) for row in columns} == {("so [MASK]", 1.0)}
