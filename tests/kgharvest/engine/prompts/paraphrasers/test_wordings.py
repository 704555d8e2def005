"""Relation wordings: data files, and rewrites of prompts that match one of their lines."""

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


def example_clause(line: str) -> str:
    """Return an example clause that matches `line`."""
    return re.sub(r"\{[^}]+\}", lambda part: PARTS[part[0].replace(":bare", "")], line.lstrip("<> "))


def rewrites_of_prompt(text: str) -> set[str]:
    return {prompt.text for prompt in rewritten(PromptTemplate.parse(text))}


def test_every_line_has_each_slot_once() -> None:
    invalid = []
    for group in GROUPS:
        slots = [sorted(re.findall(r"\{([A-C])(?::bare)?\}", line)) for line in group]
        numbers = [sorted(re.findall(r"ENT(\d)", example_clause(line))) for line in group]
        expected = ["A", "B", "C"][: len(slots[0])], ["0", "1", "2"][: len(slots[0])]
        invalid += [line for line, *of_line in zip(group, slots, numbers, strict=True) if tuple(of_line) != expected]

    assert len(GROUPS) > 80
    assert invalid == []


def test_groups_have_no_duplicate_lines() -> None:
    assert [line for group in GROUPS for line, n in Counter(map(example_clause, group)).items() if n > 1] == []


def test_every_line_matches_its_own_example() -> None:
    rules = relation_rewrites()

    assert len(rules) > 400
    assert [rule.name for rule in rules if not rule.match(with_heads(example_clause(rule.name)))] == []


def test_marks_restrict_lines_to_output_or_recognition() -> None:
    group = ["{A} fits {B}", "> {B} suits {A}", "< {A} exactly fits {B}"]

    rules = list(wording_rules(group))

    assert [rule.name for rule in rules] == ["{A} fits {B}", "< {A} exactly fits {B}"]
    assert [rule.wordings for rule in rules] == [("{B} suits {A}",), ("{A} fits {B}", "{B} suits {A}")]


@pytest.mark.parametrize(
    ("prompt", "paraphrase"),
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
def test_relation_is_rephrased(prompt: str, paraphrase: str) -> None:
    assert paraphrase in rewrites_of_prompt(prompt)


@pytest.mark.parametrize(
    ("prompt", "never"),
    [
        ("Without <ENT1>, it is impossible for a <ENT0> to <ENT2> .", "happy"),
        ("A <ENT0> can only <ENT1> if it has <ENT2> .", "possible for"),  # scope of "only"
        ("I am a <ENT0> and need <ENT1> to <ENT2> .", "To <ENT2>, I am"),
        ("A <ENT0> is a common kind of <ENT1> .", "as a common kind"),
        ("Every <ENT0> needs <ENT1> to <ENT2> .", "every <ENT0> cannot"),  # correct: "no <ENT0> can"
        ("<ENT0> contains <ENT1> .", "recipe"),  # not only dishes contain things
        ("<ENT0> was written in <ENT1> .", "language"),  # may be a place
        ("<ENT0> follows <ENT1> .", "religion"),
        ("The <ENT0> has the ability to <ENT1> .", "To <ENT1>, the"),  # not a purpose clause
        ("<ENT0> is a legal term in <ENT1> .", "is what <ENT0> is a"),
        ("What <ENT0> prevents is <ENT1> .", "It is"),  # no double cleft
        ("Fly to <ENT1> to see <ENT0> .", "that fly to"),  # imperatives have no cleft
        ("Whenever you go from <ENT0> to <ENT1>, you cross the sea .", "To <ENT1>, you"),
        ("When people visit <ENT0>, they see <ENT1> .", "They see"),  # "they" without an antecedent
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
def test_unwarranted_rewrites_are_avoided(prompt: str, never: str) -> None:
    assert not [text for text in rewrites_of_prompt(prompt) if never in text]
