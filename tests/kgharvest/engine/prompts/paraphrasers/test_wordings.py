"""Wordings of relations: the data files, and the rewrites of prompts that match one of their lines."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kgharvest.engine.prompts.paraphrasers.rules import (
    WORDING_FILES,
    read_blocks,
    relation_rewrites,
    rewritten,
    with_heads,
    wording_rules,
)
from kgharvest.engine.prompts.template import PromptTemplate

GROUPS = [group for name in WORDING_FILES for group in read_blocks(name)]
PARTS = {"{A}": "<ENT0>", "{B}": "<ENT1>", "{C}": "<ENT2>", "{s}": "s", "{place}": "in", "{sea}": "the ocean"}


def written(line: str) -> str:
    """Return a clause that `line` matches."""
    return re.sub(r"\{[^}]+\}", lambda part: PARTS[part[0].replace(":bare", "")], line.lstrip("<> "))


def rewrites_of_prompt(text: str) -> set[str]:
    return {prompt.text for prompt in rewritten(PromptTemplate.parse(text))}


def test_every_line_of_a_group_has_each_slot_once() -> None:
    wrong = []
    for group in GROUPS:
        slots = [sorted(re.findall(r"\{([A-C])(?::bare)?\}", line)) for line in group]
        numbers = [sorted(re.findall(r"ENT(\d)", written(line))) for line in group]
        expected = ["A", "B", "C"][: len(slots[0])], ["0", "1", "2"][: len(slots[0])]
        wrong += [line for line, *of_line in zip(group, slots, numbers, strict=True) if tuple(of_line) != expected]

    assert len(GROUPS) > 80
    assert wrong == []


def test_no_group_has_a_line_twice() -> None:
    assert [line for group in GROUPS for line, n in Counter(map(written, group)).items() if n > 1] == []


def test_every_line_is_recognized_as_it_is_written() -> None:
    rules = relation_rewrites()

    assert len(rules) > 400
    assert [rule.name for rule in rules if not rule.regex.fullmatch(with_heads(written(rule.name)))] == []


def test_marks_limit_a_line_to_output_or_to_recognition() -> None:
    group = ["{A} fits {B}", "> {B} suits {A}", "< {A} exactly fits {B}"]

    rules = list(wording_rules(group))

    assert [rule.name for rule in rules] == ["{A} fits {B}", "< {A} exactly fits {B}"]
    assert [rule.wordings for rule in rules] == [("{B} suits {A}",), ("{A} fits {B}", "{B} suits {A}")]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("<ENT1> is a book by <ENT0> .", "<ENT0> wrote <ENT1> ."),
        ("A <ENT0> requires <ENT1> in order to <ENT2> .", "Without <ENT1>, a <ENT0> cannot <ENT2> ."),
        ("A <ENT0> can't <ENT2> without <ENT1> .", "A <ENT0> needs <ENT1> to <ENT2> ."),
        ("If something isn't <ENT1>, it must be <ENT0> .", "What is not <ENT1> must be <ENT0> ."),
        ("There are many types of <ENT1>, such as <ENT0> .", "<ENT0> is a kind of <ENT1> ."),
        ("A <ENT0> is usually built from <ENT1> .", "Usually, <ENT1> is the material of a <ENT0> ."),
        ("In spring, a <ENT0> feeds on <ENT1> .", "In spring, <ENT1> is eaten by a <ENT0> ."),
        ("<ENT0> feed on <ENT1> .", "<ENT0> eat <ENT1> ."),
        ("Tourists in <ENT1> go and see the <ENT0> .", "The <ENT0> is a sight in <ENT1> ."),
        ("A <ENT0> eats <ENT1> every day .", "Every day, <ENT1> is eaten by a <ENT0> ."),
        ("<ENT0>s eat <ENT1>s .", "<ENT1>s serve as food for <ENT0>s ."),
        ("A typical <ENT0> is made of <ENT1> .", "People use <ENT1> to make a typical <ENT0> ."),
    ],
)
def test_a_relation_is_said_otherwise(prompt: str, said: str) -> None:
    assert said in rewrites_of_prompt(prompt)


@pytest.mark.parametrize(
    ("prompt", "never"),
    [
        ("Without <ENT1>, it is impossible for a <ENT0> to <ENT2> .", "happy"),
        ("A <ENT0> can only <ENT1> if it has <ENT2> .", "possible for"),  # what "only" bears on
        ("I am a <ENT0> and need <ENT1> to <ENT2> .", "To <ENT2>, I am"),
        ("A <ENT0> is a common kind of <ENT1> .", "as a common kind"),
        ("Every <ENT0> needs <ENT1> to <ENT2> .", "every <ENT0> cannot"),  # but "no <ENT0> can"
        ("<ENT0> contains <ENT1> .", "recipe"),  # what contains something need not be a dish
        ("<ENT0> was written in <ENT1> .", "language"),  # nor is where it was written a language
        ("<ENT0> follows <ENT1> .", "religion"),
        ("The <ENT0> has the ability to <ENT1> .", "To <ENT1>, the"),  # not what the ability is for
        ("<ENT0> is a legal term in <ENT1> .", "is what <ENT0> is a"),
        ("What <ENT0> prevents is <ENT1> .", "It is"),  # brought out once, not twice
        ("Fly to <ENT1> to see <ENT0> .", "that fly to"),  # an imperative has no cleft
        ("Whenever you go from <ENT0> to <ENT1>, you cross the sea .", "To <ENT1>, you"),
        ("When people visit <ENT0>, they see <ENT1> .", "They see"),  # "they" before it is said who
        ("<ENT0> looks <ENT1> .", "colour"),  # tired
        ("<ENT0> is an example of <ENT1> .", "kind of"),  # Paris, of a city
        ("<ENT0> contrasts with <ENT1> .", "opposite"),
        ("The government of <ENT1> sits in <ENT0> .", "capital"),  # not in the Netherlands
        ("People use <ENT1> to make <ENT0> .", "made of"),  # a hammer
        ("<ENT0> uses <ENT2> to make <ENT1> .", "from <ENT2>"),
        ("<ENT1> is made with <ENT0> .", "ingredient"),
        ("<ENT0> consists of <ENT1> .", "material"),  # a team, of players
        ("Every <ENT1> has a <ENT0> .", "part of"),  # every dog an owner
        ("<ENT0> is located in <ENT1> .", "see"),  # the heart, in the chest
        ("<ENT1> comes from <ENT0> .", "source"),  # Mary, from Ireland
        ("People with <ENT1> often have <ENT0> .", "symptom"),
        ("<ENT0> works on <ENT1> .", "workplace"),
        ("<ENT0> plays <ENT1> .", "player"),  # a part in a film
    ],
)
def test_what_does_not_follow_is_not_said(prompt: str, never: str) -> None:
    assert not [text for text in rewrites_of_prompt(prompt) if never in text]
