"""Templates with fields, triggers, and a mask."""

from __future__ import annotations

import pytest

from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate, cut_to_fit, encode_texts
from kgharvest.engine.prompt_learning.autoprompt import TRIGGER
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt


def test_encoding_keeps_positions_of_triggers_and_mask(tiny_lm):
    encoded = TextTemplate.parse("{premise} [P] [T] [T] the {hypothesis}").encode(tiny_lm)

    the = tiny_lm.tokens.continuing(" the")
    assert encoded.slots == (0, 2, 1)
    assert encoded.segments == (tiny_lm.tokens.prefix, (), (TRIGGER, TRIGGER, *the), tiny_lm.tokens.suffix)
    assert encoded.n_triggers == 2


def test_template_without_triggers_equals_the_plain_prompt(tiny_lm):
    encoded = TextTemplate.parse("the {sentence} is [P].").encode(tiny_lm)

    words = tiny_lm.encode_prompt(PromptTemplate.parse("the <ENT0> is <ENT1>."))
    assert encoded.fill(()) == words


def test_leading_trigger_and_unspaced_fields_are_encoded(tiny_lm):
    spaced = TextTemplate.parse("[T] {sentence} [T] [P].").encode(tiny_lm)

    assert spaced == TextTemplate.parse("[T]{sentence}[T][P].").encode(tiny_lm)
    assert spaced.segments[0] == (*tiny_lm.tokens.prefix, TRIGGER)


def test_triggers_can_be_removed():
    template = TextTemplate.parse("{sentence}[T] [T] it is [T][P] .")

    assert template.without_triggers() == TextTemplate.parse("{sentence} it is[P] .")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("it is [P] .", "no field for a text"),
        ("{sentence} [T] .", r"contains \[P\] 0 times"),
        ("{sentence} [P] or [P]", r"contains \[P\] 2 times"),
        ("{sentence} {sentence} [P]", r"contains \{sentence\} twice"),
        ("{sentence} <ENT9> [P]", "<ENT9>"),
    ],
)
def test_invalid_templates_are_rejected(text, reason, tiny_lm):
    with pytest.raises(BadPrompt, match=reason):
        TextTemplate.parse(text).encode(tiny_lm)


def test_longest_texts_are_truncated_first():
    assert cut_to_fit([(1, 2, 3, 4, 5), (6, 7)], 4) == ((1, 2), (6, 7))
    assert cut_to_fit([(1, 2, 3), (4, 5, 6)], 4) == ((1, 2), (4, 5))
    assert cut_to_fit([(1, 2), (3,)], 9) == ((1, 2), (3,))


def test_template_that_exceeds_the_limit_is_rejected(tiny_lm):
    template = TextTemplate.parse("{premise}" + " [T]" * tiny_lm.max_tokens + "[P] {hypothesis}")

    with pytest.raises(BadPrompt, match="leaves no room"):
        encode_texts(tiny_lm, template, [], tuple)
