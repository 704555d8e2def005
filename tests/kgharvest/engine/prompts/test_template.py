"""Prompts with slots."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.types import BadPrompt


def test_segments_stand_around_the_slots_in_textual_order() -> None:
    template = PromptTemplate.parse("The <ENT1>s of <ENT0> .")

    assert template.segments == ("The ", "s of ", " .")
    assert template.slots == (1, 0)
    assert template.arity == 2


def test_filling_puts_each_entity_into_its_slot_and_reads_no_slot_from_entities() -> None:
    assert PromptTemplate.parse("<ENT1> of <ENT0>").fill([r"a\1", "<ENT0>"]) == r"<ENT0> of a\1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Masks prevent viruses .", "has no slot"),
        ("<ENT0> prevents <ENT0> .", "<ENT0> twice"),
        ("<ENT0> gives <ENT2> .", "lacks the slot <ENT1>"),
        ("<ENT0> gives <ENT99999999999> .", "too large"),
        (f"<ENT0> gives <ENT{'9' * 5000}> .", "too large"),
    ],
)
def test_slots_that_are_missing_or_double_are_refused(text: str, says: str) -> None:
    with pytest.raises(BadPrompt, match=says):
        PromptTemplate.parse(text)


def test_prompts_of_another_arity_than_the_seeds_are_refused() -> None:
    with pytest.raises(BadPrompt, match="has 2 slots but the seed tuples have 3 entities"):
        parse_prompts(["<ENT0> prevents <ENT1> ."], arity=3)
