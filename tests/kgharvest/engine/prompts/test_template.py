"""Prompts with slots."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.types import BadPrompt


def test_segments_surround_slots_in_text_order() -> None:
    template = PromptTemplate.parse("The <ENT1>s of <ENT0> .")

    assert template.segments == ("The ", "s of ", " .")
    assert template.slots == (1, 0)
    assert template.arity == 2


def test_fill_inserts_entities_without_parsing_slots_in_them() -> None:
    assert PromptTemplate.parse("<ENT1> of <ENT0>").fill([r"a\1", "<ENT0>"]) == r"<ENT0> of a\1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Masks prevent viruses .", "has no slot"),
        ("<ENT0> prevents <ENT0> .", "<ENT0> twice"),
        ("<ENT0> gives <ENT2> .", "lacks the slot <ENT1>"),
        ("<ENT0> gives <ENT99999999999> .", "too large"),
        (f"<ENT0> gives <ENT{'9' * 5000}> .", "too large"),
    ],
)
def test_missing_or_duplicate_slots_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadPrompt, match=message):
        PromptTemplate.parse(text)


def test_arity_mismatch_with_seeds_is_refused() -> None:
    with pytest.raises(BadPrompt, match="has 2 slots but the seed tuples have 3 entities"):
        parse_prompts(["<ENT0> prevents <ENT1> ."], arity=3)
