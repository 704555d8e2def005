"""Templates for text tasks: `{sentence} [T] [T] [T] [P] .` (Shin et al. 2020, Table 3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning.autoprompt import TRIGGER, TriggerTemplate
from kgharvest.engine.prompts.prompt_set import prompt_text
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

PLACEHOLDER = re.compile(r"\{(\w+)\}|(\[T\])|(\[P\])")
FIELD = re.compile(r"\{(\w+)\}")
SPECIAL_TOKENS = "special tokens of the LM in the text"  # the reason to discard a text
SPACED_TRIGGER = re.compile(r"\s*\[T\]")


@dataclass(frozen=True)
class TextTemplate:
    """Words and placeholders: each field once, triggers [T], and exactly one [P] for the LM's answer."""

    text: str
    fields: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TextTemplate:
        """Parse a template. Raises BadPrompt unless it has a field and exactly one [P]."""
        fields = FIELD.findall(text)
        if not fields:
            raise BadPrompt(
                f"The template {text!r} has no field for a text. Add the name of a column, for example {{sentence}}."
            )
        if repeated := [field for field in fields if fields.count(field) > 1]:
            raise BadPrompt(f"The template {text!r} contains {{{repeated[0]}}} twice. Use each column once.")
        if text.count("[P]") != 1:
            raise BadPrompt(
                f"The template {text!r} contains [P] {text.count('[P]')} times. Use it once, in place of the mask."
            )
        return cls(text, tuple(fields))

    @property
    def n_triggers(self) -> int:
        return self.text.count("[T]")

    def without_triggers(self) -> TextTemplate:
        return TextTemplate(SPACED_TRIGGER.sub("", self.text).strip(), self.fields)

    def encode(self, lm: MaskedLM) -> TriggerTemplate:
        """Return the tokenized template: slots 0, 1, ... for the fields, the next slot for [P]. Raises BadPrompt."""
        n_slots = len(self.fields) + 1
        encoded = lm.encode_prompt(self._with_slots_only())
        segments, slots = [encoded.segments[0]], []
        for slot, segment in zip(encoded.slots, encoded.segments[1:], strict=True):
            if slot < n_slots:
                segments.append(segment)
                slots.append(slot)
            else:
                segments[-1] += (TRIGGER, *segment)
        return TriggerTemplate(tuple(segments), tuple(slots))

    def prompt_text(self, lm: MaskedLM, prompt: EncodedPrompt) -> str:
        """Return the text of a prompt made from this template."""
        names = [*(f"{{{name}}}" for name in self.fields), "[P]"]
        return re.sub(r"<ENT(\d+)>", lambda slot: names[int(slot[1])], prompt_text(lm, prompt))

    def _with_slots_only(self) -> PromptTemplate:
        """Return a prompt with slots for the fields, then [P], then the triggers."""
        slots = iter(range(len(self.fields) + 1, len(self.text)))

        def slot(placeholder: re.Match[str]) -> str:
            if placeholder[1]:
                return f"<ENT{self.fields.index(placeholder[1])}>"
            return f"<ENT{len(self.fields)}>" if placeholder[3] else f"<ENT{next(slots)}>"

        return PromptTemplate.parse(PLACEHOLDER.sub(slot, self.text))


def room_for_texts(lm: MaskedLM, template: TriggerTemplate) -> int:
    """Return the maximum total number of tokens of the texts in `template`. Raises BadPrompt if there is no room."""
    room = lm.max_tokens - sum(map(len, template.segments)) - 1  # the mask
    if room < len(template.slots) - 1:
        raise BadPrompt(f"The template leaves no room for texts within the {lm.max_tokens} tokens of {lm.name}.")
    return room


def encode_fields(
    lm: MaskedLM, template: TextTemplate, texts: Mapping[str, str], room: int
) -> tuple[tuple[TokenIds, ...], bool]:
    """Return the tokens of the template's fields, in order, and whether they were truncated. Raises BadText."""
    encoded = tuple(lm.tokens.encode_text(texts[name]) for name in template.fields)
    parts = cut_to_fit(encoded, room)
    return parts, parts != encoded


def cut_to_fit(parts: Sequence[TokenIds], room: int) -> tuple[TokenIds, ...]:
    """Return `parts`, truncated at the end of the longest part until they have `room` tokens in total."""
    lengths = list(map(len, parts))
    for _ in range(sum(lengths) - room):
        lengths[lengths.index(max(lengths))] -= 1
    return tuple(part[:length] for part, length in zip(parts, lengths, strict=True))
