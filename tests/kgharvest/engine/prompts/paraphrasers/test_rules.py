"""Rewrite rules: results for typical prompts, and preservation of slots by every rule."""

from __future__ import annotations

import json
from pathlib import Path
from string import Formatter

import pytest

from kgharvest.engine.prompts.paraphrasers.rules import (
    bare_clause,
    compiled,
    framed,
    frames,
    read_rewrites,
    read_toml,
    restated,
    rewritten,
)
from kgharvest.engine.prompts.template import SLOT, PromptTemplate

REWRITES, GENERAL_REWRITES = read_rewrites("rewrites.txt"), read_rewrites("general_rewrites.txt")
RESTATEMENTS = read_rewrites("restatements.txt")
PARTS = read_toml("grammar.toml")["parts"]
# Parts that can contain a slot. A wording must contain each of them exactly once.
HOLDS_SLOTS = {"A", "B", "C", "agent", "rest", "first", "event", "effect", "whole", "main", "after", "what", "where"}
HOLDS_SLOTS |= {"subject"}
HOLDS_NONE = {"be", "prep", "how", "who", "class", "how_many", "second"}


def rewrites_of(text: str) -> set[str]:
    return {prompt.text for prompt in rewritten(PromptTemplate.parse(text))}


@pytest.mark.parametrize(
    ("prompt", "paraphrase"),
    [
        ("<ENT0> prevents <ENT1> .", "<ENT1> is prevented by <ENT0> ."),
        ("<ENT0> guides <ENT1> .", "Guiding <ENT1> is what <ENT0> does ."),
        ("<ENT0>s carry a <ENT1> .", "A <ENT1> is carried by <ENT0>s ."),
        ("<ENT0> is produced by <ENT1> .", "<ENT1> produces <ENT0> ."),
        ("<ENT0> was written by <ENT1> .", "<ENT1> wrote <ENT0> ."),
        ("<ENT1>s can be carved by <ENT0> .", "<ENT0> can carve <ENT1>s ."),
        ("The <ENT0> has the ability to <ENT1> .", "The <ENT0> can <ENT1> ."),
        ("To <ENT1> is a great moment for the <ENT0> .", "For the <ENT0> to <ENT1> is a great moment ."),
        ("<ENT0> is known as a <ENT1> <ENT2> .", "People know <ENT0> as a <ENT1> <ENT2> ."),
        ("<ENT0> is a company that sells <ENT1> .", "A company that sells <ENT1> is <ENT0> ."),
        ("<ENT0> can help <ENT1> .", "<ENT1> can be helped by <ENT0> ."),
        ("<ENT0> can <ENT1> in <ENT2> .", "<ENT0> is able to <ENT1> in <ENT2> ."),
        ("<ENT0> can <ENT1> in <ENT2> .", "In <ENT2>, <ENT0> can <ENT1> ."),
        ("<ENT0> is the capital of <ENT1> .", "The capital of <ENT1> is <ENT0> ."),
        ("<ENT0> is the capital of <ENT1> .", "<ENT0> is <ENT1>'s capital ."),
        ("The capital of <ENT0> is <ENT1> .", "<ENT1> is the capital of <ENT0> ."),
        ("A potential risk of <ENT0> is <ENT1> .", "<ENT1> is a potential risk of <ENT0> ."),
        ("<ENT0> works for <ENT1> .", "What <ENT0> works for is <ENT1> ."),
        ("<ENT0> is part of <ENT1> .", "<ENT1> includes <ENT0> ."),
        ("<ENT0> needs <ENT1> to <ENT2> .", "Without <ENT1>, <ENT0> cannot <ENT2> ."),
        ("<ENT0> is a very <ENT1> <ENT2> .", "As a <ENT2>, <ENT0> is very <ENT1> ."),
        ("<ENT0> happens because of <ENT1> .", "Because of <ENT1>, <ENT0> happens ."),
        ("If you <ENT0>, you will <ENT1> .", "You will <ENT1> if you <ENT0> ."),
        ("It is good when a <ENT0> <ENT1>s .", "When a <ENT0> <ENT1>s, it is good ."),
        ("<ENT1> and <ENT0> are separated by the ocean .", "The ocean separates <ENT1> from <ENT0> ."),
        ("It’s worth celebrating for a <ENT0> to <ENT1> .", "For a <ENT0> to <ENT1> is worth celebrating ."),
        ("A <ENT0> is taught by a <ENT1> .", "A <ENT1> teaches a <ENT0> ."),
        ("People buy <ENT1> from <ENT0> .", "<ENT1> is bought from <ENT0> ."),
        ("You can find a <ENT0> in the <ENT1> .", "A <ENT0> can be found in the <ENT1> ."),
        ("People in <ENT1> speak <ENT0> .", "In <ENT1>, <ENT0> is spoken ."),
        ("From <ENT2>, the <ENT0> produces <ENT1> .", "The <ENT0> produces <ENT1> from <ENT2> ."),
        ("The <ENT0> produces <ENT1> from <ENT2> .", "<ENT1> is produced from <ENT2> by the <ENT0> ."),
        ("You need <ENT0> to make <ENT1> .", "To make <ENT1>, you need <ENT0> ."),
        ("You cross the sea to get from <ENT0> to <ENT1> .", "To get from <ENT0> to <ENT1>, you cross the sea ."),
        ("Without <ENT1>, a <ENT0> cannot <ENT2> .", "A <ENT0> needs <ENT1> to <ENT2> ."),
        ("There is an ocean between <ENT0> and <ENT1> .", "An ocean lies between <ENT0> and <ENT1> ."),
        ("Every <ENT1> has a <ENT0> .", "There is no <ENT1> without a <ENT0> ."),
        ("It is the job of a <ENT0> to help the <ENT1> .", "To help the <ENT1> is the job of a <ENT0> ."),
        ("The money used in <ENT1> is called the <ENT0> .", "The <ENT0> is the money used in <ENT1> ."),
        ("<ENT0> is the main language in <ENT1> .", "The main language in <ENT1> is <ENT0> ."),
        ("The government of <ENT1> sits in <ENT0> .", "What the government of <ENT1> sits in is <ENT0> ."),
        ("<ENT0> is the raw material of <ENT1>s .", "<ENT1>s have <ENT0> as their raw material ."),
        ("<ENT0> is a firm with its seat in <ENT1> .", "<ENT0> is a firm that has its seat in <ENT1> ."),
        ("<ENT0> wrote the novel <ENT1> .", "The novel <ENT1> was written by <ENT0> ."),
        ("<ENT0> invented the <ENT1> .", "The <ENT1> was invented by <ENT0> ."),
        ("if you go to <ENT0>, change your money into <ENT1> .", "Change your money into <ENT1> if you go to <ENT0> ."),
        ("if you go to <ENT0>, take a <ENT1> .", "You should take a <ENT1> if you go to <ENT0> ."),
    ],
)
def test_rule_rewrites_prompt(prompt: str, paraphrase: str) -> None:
    assert paraphrase in rewrites_of(prompt)


@pytest.mark.parametrize(
    ("prompt", "never"),
    [
        ("You visit the <ENT0> when you are in <ENT1> .", "In <ENT1>, you visit"),  # not from a subordinate clause
        ("A <ENT0> will soon be able to <ENT1> .", "It is <ENT1> that"),  # a verb instead of an entity
        ("A <ENT0> is able to <ENT1> .", "To <ENT1>, a"),  # complement of "able", not a purpose
        ("A <ENT0> is a <ENT1> .", "is a is"),
        ("<ENT0> looks <ENT1> .", "is looked by"),  # no object
        ("You often see a <ENT0> <ENT1> in a <ENT2> .", "A <ENT0> is seen"),
        ("A <ENT0> without <ENT1> is useless .", "to without"),
        ("<ENT0> hardly ever needs <ENT1> .", "do is hardly"),
        ("A <ENT0> must not <ENT1> .", "not to not"),
        ("<ENT0> includes <ENT1> .", "is among <ENT0>"),
        ("<ENT0> grows in <ENT1> and dies in <ENT2> .", "known to"),
        ("People believe <ENT0> prevents <ENT1> .", "is believed prevents"),
        ("<ENT0> is an organisation with its seat in <ENT1> .", "In <ENT1>"),  # only the seat is there
        ("<ENT0> is in <ENT1> .", "In <ENT1>"),
        ("<ENT0> got married to <ENT1> in <ENT2> .", "in ."),
        ("<ENT0> comes from <ENT1> .", "from ."),
        ("<ENT0> is a citizen of <ENT1> .", "of ."),
        ("<ENT0> married <ENT1> .", "was married by"),
        ("<ENT0> became <ENT1> .", "was become"),
        ("The <ENT0> sends the <ENT1> to the <ENT2> .", "to the ."),
        ("<ENT0> looks <ENT1> .", "is what"),
        ("<ENT0> believe in <ENT1> .", "In <ENT1>"),
        ("<ENT0> is known for <ENT1> .", "known to be known"),
    ],
)
def test_ungrammatical_rewrites_are_avoided(prompt: str, never: str) -> None:
    assert not [text for text in rewrites_of(prompt) if never in text]


@pytest.mark.parametrize(
    ("prompt", "never"),
    [
        ("<ENT0> gave <ENT1> to <ENT2> .", "To <ENT2>"),  # recipient, not purpose
        ("<ENT0> prefers <ENT1> to <ENT2> .", "o <ENT2>, "),
        ("<ENT0> is too <ENT1> to <ENT2> .", "o <ENT2>, "),
        ("A <ENT0> was the first to <ENT1> .", "n order to"),
        ("<ENT0> is good for <ENT1> but bad for <ENT2> .", "For <ENT2>"),
        ("<ENT0> grows in <ENT1> and dies in <ENT2> .", "n <ENT2>, "),
        ("<ENT0> only lives in <ENT1> .", "In <ENT1>"),
        ("A <ENT0> has a <ENT1> .", "in a <ENT0>"),  # "A dog has an owner"
        ("Every <ENT0> has a <ENT1> .", "in every"),
        ("<ENT0> belongs to <ENT1> .", "part of"),  # "The book belongs to Mary"
        ("<ENT0> is used for <ENT1> .", "done with"),  # "Wood is used for furniture"
    ],
)
def test_meaning_changing_rewrites_are_avoided(prompt: str, never: str) -> None:
    assert not [text for text in rewrites_of(prompt) if never in text]


def restated_texts(text: str) -> list[str]:
    return [prompt.text for prompt in restated(PromptTemplate.parse(text))]


@pytest.mark.parametrize(
    ("prompt", "restatement"),
    [
        ("The <ENT0> sends <ENT1> to <ENT2> .", "Does the <ENT0> send <ENT1> to <ENT2>? Yes, that is true ."),
        ("<ENT0> relies on <ENT1> .", "If you ask what <ENT0> relies on, the answer is <ENT1> ."),
        ("<ENT0>'s sister is <ENT1> .", "The sister of <ENT0> is <ENT1> ."),
        ("<ENT0> was the teacher of <ENT1> .", "<ENT1>'s teacher was <ENT0> ."),
        ("<ENT0> is older than <ENT1> .", "Compared with <ENT1>, <ENT0> is older ."),
        ("<ENT0> translated <ENT1> into <ENT2> .", "<ENT1> was translated into <ENT2> by <ENT0> ."),
        ("Students borrow <ENT0> from the <ENT1> .", "What students borrow from the <ENT1> is <ENT0> ."),
        ("<ENT0> tastes <ENT1> .", "If you ask how <ENT0> tastes, the answer is <ENT1> ."),
        ("For <ENT1>, you need a <ENT0> .", "What you need for <ENT1> is a <ENT0> ."),
        ("The headquarters of <ENT0> are in <ENT1> .", "In <ENT1> are the headquarters of <ENT0> ."),
        ("Some people are allergic to <ENT0> .", "There are some people who are allergic to <ENT0> ."),
        ("A <ENT0> can lift a <ENT1> .", "Can a <ENT0> lift a <ENT1>? Yes, that is true ."),
    ],
)
def test_clause_is_restated(prompt: str, restatement: str) -> None:
    assert restatement in restated_texts(prompt)


@pytest.mark.parametrize(
    ("prompt", "never"),
    [
        ("Tell me how the <ENT0> survives in the <ENT1> .", ""),  # an imperative
        ("How likely is <ENT1> as a result of <ENT0> .", ""),  # a question without its mark
        ("You can see the <ENT0> in the <ENT1> .", "the answer is you"),
        ("<ENT0> moved from <ENT1> to <ENT2> .", "moved from to"),
        ("Many people buy <ENT0> from <ENT1> .", "are many people ."),
        ("The job of a <ENT0> is to assist the <ENT1> .", "who or what is to"),
        ("<ENT0>s include <ENT1> .", "included by"),
        ("What <ENT0> sells is <ENT1> .", ""),  # already a cleft
    ],
)
def test_broken_restatements_are_avoided(prompt: str, never: str) -> None:
    assert not [text for text in restated_texts(prompt) if never in text]


def test_final_preposition_of_prompt_is_kept() -> None:
    assert [text for text in rewrites_of("The <ENT0> is what a <ENT1> lives in .") if text.endswith(" in .")]


@pytest.mark.parametrize(
    "frame",
    ["everybody knows that", "it is known that", "It is well known that", "people say that", "As everyone knows,"],
)
def test_knowledge_frame_is_removed(frame: str) -> None:
    paraphrases = rewrites_of(f"{frame} the colour of <ENT0> is <ENT1> .")

    assert {"The colour of <ENT0> is <ENT1> .", "<ENT1> is the colour of <ENT0> ."} <= paraphrases


@pytest.mark.parametrize("frame", ["it is not known that", "nobody says that", "few people know that"])
def test_denying_frame_is_kept(frame: str) -> None:
    assert "<ENT1> is the colour of <ENT0> ." not in rewrites_of(f"{frame} the colour of <ENT0> is <ENT1> .")


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("France exports <ENT0> to <ENT1> .", "France exports"),
        ("The European Union buys <ENT0> from <ENT1> .", "the European Union buys"),
        ("People in <ENT1> speak <ENT0> .", "people in"),
        ("Tourists in <ENT1> see the <ENT0> .", "tourists in"),
        ("May follows <ENT0>, and before May is <ENT1> .", "May follows"),
    ],
)
def test_only_common_words_lose_initial_capital(text: str, inside: str) -> None:
    assert any(frame.text.startswith(f"In general, {inside}") for frame in framed(PromptTemplate.parse(text)))


def test_multiword_name_keeps_its_case() -> None:
    assert "In <ENT1>, Marie Curie studied <ENT0> ." in rewrites_of("Marie Curie studied <ENT0> in <ENT1> .")


@pytest.mark.parametrize(
    "text", ["Mix <ENT0> with <ENT1> .", "Don’t use <ENT0> for <ENT1> .", "Never <ENT0> a <ENT1> ."]
)
def test_imperatives_are_not_framed(text: str) -> None:
    assert framed(PromptTemplate.parse(text)) == []


def test_every_wording_has_each_slot_of_its_pattern_once() -> None:
    invalid = []
    for rule in (*REWRITES, *GENERAL_REWRITES, *RESTATEMENTS):
        parts = set(rule.regex.groupindex)
        for wording in rule.wordings:
            names = [name for _, name, _, _ in Formatter().parse(wording) if name]
            slot_names = sorted(name for name in names if name in HOLDS_SLOTS)
            if not set(names) <= parts or slot_names != sorted(parts & HOLDS_SLOTS):
                invalid.append((rule.name, wording))

    assert len(REWRITES) > 60
    assert len(GENERAL_REWRITES) > 20
    assert invalid == []


def test_slot_containing_parts_are_declared() -> None:
    rule_parts = (
        {name for rule in (*REWRITES, *GENERAL_REWRITES, *RESTATEMENTS) for name in rule.regex.groupindex}
        - set(PARTS)
        - HOLDS_NONE
    )
    slot_parts = {name for name in PARTS if compiled(f"{{{name}}}").fullmatch("<ENT0>")}

    assert rule_parts | slot_parts == HOLDS_SLOTS


def test_rule_names_and_frames_are_unique() -> None:
    for rules in (REWRITES, RESTATEMENTS):
        assert len({rule.name for rule in rules}) == len(rules)
    assert len(set(frames())) == len(frames())


def test_frame_can_be_added_and_removed() -> None:
    prompt = PromptTemplate.parse("The capital of <ENT0> is <ENT1> .")

    variants = framed(prompt)

    assert "It is well known that the capital of <ENT0> is <ENT1> ." in {frame.text for frame in variants}
    assert {bare_clause(frame) for frame in variants} == {"the capital of <ENT0> is <ENT1>"}


@pytest.mark.parametrize("text", ["USB ports connect <ENT0> and <ENT1> .", "I give <ENT0> to <ENT1> ."])
def test_acronyms_keep_case_inside_frame(text: str) -> None:
    assert f"In general, {text}" in {frame.text for frame in framed(PromptTemplate.parse(text))}


def test_all_public_initial_prompts_keep_their_slots(public_data: Path) -> None:
    for name in ("human", "lama", "ekar_aggr"):
        relations = json.loads((public_data / "bertnet" / "relation_info" / f"{name}.json").read_text())
        for text in {text for relation in relations.values() for text in relation["init_prompts"]}:
            slots = sorted(SLOT.findall(text))
            if slots != ["0", "1", "2"][: len(slots)]:
                continue  # a few published prompts contain duplicate slots
            prompt = PromptTemplate.parse(text)
            for variant in rewritten(prompt) + framed(prompt):
                assert sorted(SLOT.findall(variant.text)) == slots
