"""Prompts with slots: `<ENT0> is the place for <ENT1> .`"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kgharvest.engine.types import BadPrompt

SLOT = re.compile(r"<ENT(\d+)>", re.ASCII)
MAX_SLOT_DIGITS = 3
# Prompts have a space before the final punctuation mark: "<ENT0> prevents <ENT1> .". Displayed text does not.
SPACE_BEFORE_END = re.compile(r"\s+(?=[.?!]$)")


@dataclass(frozen=True)
class PromptTemplate:
    """A text that contains each slot `<ENT0>` .. `<ENTn-1>` once.

    segments: the n + 1 pieces of text around the slots, in textual order.
    slots: the entity index of each slot, in textual order.
    """

    text: str
    segments: tuple[str, ...]
    slots: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> PromptTemplate:
        """Parse a template. Raises BadPrompt unless the slots are `<ENT0>` .. `<ENTn-1>`, each once."""
        pieces = SLOT.split(text)
        if any(len(index) > MAX_SLOT_DIGITS for index in pieces[1::2]):
            raise BadPrompt(f"{text!r} has a slot number that is too large. Number the slots from 0 without gaps.")
        slots = tuple(int(index) for index in pieces[1::2])
        if not slots:
            raise BadPrompt(f"{text!r} has no slot. Use <ENT0>, <ENT1>, ... in place of the entities.")
        for slot in slots:
            if slots.count(slot) > 1:
                raise BadPrompt(f"{text!r} contains the slot <ENT{slot}> twice. Use each slot once.")
        if missing := set(range(max(slots) + 1)) - set(slots):
            raise BadPrompt(f"{text!r} lacks the slot <ENT{min(missing)}>. Number the slots from 0 without gaps.")
        return cls(text, tuple(pieces[0::2]), slots)

    @property
    def arity(self) -> int:
        return len(self.slots)

    def fill(self, entities: Sequence[str]) -> str:
        return SLOT.sub(lambda slot: entities[int(slot.group(1))], self.text)


def parse_prompts(texts: Sequence[str], arity: int) -> list[PromptTemplate]:
    """Parse the distinct `texts`. Raises BadPrompt if there are none or if one does not have `arity` slots."""
    if not texts:
        raise BadPrompt(
            "The relation has no initial prompt. Add at least one, for example '<ENT0> is the place for <ENT1> .'"
        )
    templates = [PromptTemplate.parse(text) for text in dict.fromkeys(texts)]
    for template in templates:
        if template.arity != arity:
            raise BadPrompt(
                f"The prompt {template.text!r} has {template.arity} slots but the seed tuples have {arity} entities. "
                "Use one slot per entity in every prompt."
            )
    return templates
