"""Templates for text tasks: `{sentence} [T] [T] [T] [P] .` (Shin et al. 2020, Table 3).

Does not import torch before a template is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, BadText

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
    from kgharvest.engine.language_models.masked import MaskedLM
    from kgharvest.engine.prompt_learning.autoprompt import TriggerTemplate

PLACEHOLDER = re.compile(r"\{(\w+)\}|(\[T\])|(\[P\])")
Encoded = TypeVar("Encoded")


@dataclass(frozen=True)
class TextTemplate:
    """Words and placeholders: each field once, triggers [T], and exactly one [P] for the LM's answer."""

    text: str
    fields: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TextTemplate:
        """Parse a template. Raises BadPrompt unless it has at least one field and exactly one [P]."""
        fields = re.findall(r"\{(\w+)\}", text)
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
        return TextTemplate(re.sub(r"\s*\[T\]", "", self.text).strip(), self.fields)

    def with_triggers(self, n: int) -> TextTemplate:
        """Return the template with `n` triggers at the place of its first triggers. Raises BadPrompt without one."""
        first, found, rest = self.text.partition("[T]")
        if not found:
            raise BadPrompt(f"The template {self.text!r} has no trigger. Add one [T] in place of the triggers.")
        return TextTemplate(first + " ".join(["[T]"] * n) + re.sub(r"\s*\[T\]", "", rest), self.fields)

    def encode(self, lm: MaskedLM) -> TriggerTemplate:
        """Return the tokenized template: slots 0, 1, ... for the fields, the next slot for [P]. Raises BadPrompt."""
        from kgharvest.engine.prompt_learning.autoprompt import TRIGGER, TriggerTemplate

        n_slots = len(self.fields) + 1
        trigger_slots = count(n_slots)

        def slot(placeholder: re.Match[str]) -> str:
            if placeholder[1]:
                return f"<ENT{self.fields.index(placeholder[1])}>"
            return f"<ENT{len(self.fields)}>" if placeholder[3] else f"<ENT{next(trigger_slots)}>"

        encoded = lm.encode_prompt(PromptTemplate.parse(PLACEHOLDER.sub(slot, self.text)))
        segments, slots = [encoded.segments[0]], []
        for number, segment in zip(encoded.slots, encoded.segments[1:], strict=True):
            if number < n_slots:
                segments.append(segment)
                slots.append(number)
            else:
                segments[-1] += (TRIGGER, *segment)
        return TriggerTemplate(tuple(segments), tuple(slots))

    def prompt_text(self, lm: MaskedLM, prompt: EncodedPrompt) -> str:
        """Return the text of a prompt made from this template."""
        from kgharvest.engine.prompts.prompt_set import prompt_text

        names = [*(f"{{{name}}}" for name in self.fields), "[P]"]
        return re.sub(r"<ENT(\d+)>", lambda slot: names[int(slot[1])], prompt_text(lm, prompt))


@dataclass(frozen=True)
class EncodedTexts(Generic[Encoded]):
    """Tokenized texts. left_out: number of unencodable texts by reason. n_cut: number of truncated texts."""

    examples: tuple[Encoded, ...]
    left_out: dict[str, int]
    n_cut: int


def encode_texts(
    lm: MaskedLM, template: TextTemplate, texts: Iterable[tuple[Any, ...]], kind: Callable[..., Encoded]
) -> EncodedTexts[Encoded]:
    """Tokenize texts, truncated to fit in the template.

    texts: tuples (text by field, *columns). Each tuple becomes an example `kind(parts, *columns)`, where `parts` are
    the tokens of the template's fields in order. Raises BadPrompt if the template leaves no room for texts.
    """
    encoded = template.encode(lm)
    room = lm.max_tokens - sum(map(len, encoded.segments)) - 1  # the mask
    if room < len(template.fields):
        raise BadPrompt(f"The template leaves no room for texts within the {lm.max_tokens} tokens of {lm.name}.")
    examples, n_left_out, n_cut = [], 0, 0
    for text, *columns in texts:
        try:
            whole = tuple(lm.tokens.encode_text(text[name]) for name in template.fields)
        except BadText:
            n_left_out += 1
            continue
        parts = cut_to_fit(whole, room)
        n_cut += parts != whole
        examples.append(kind(parts, *columns))
    left_out = {"special tokens of the LM in the text": n_left_out} if n_left_out else {}
    return EncodedTexts(tuple(examples), left_out, n_cut)


def cut_to_fit(parts: Sequence[TokenIds], room: int) -> tuple[TokenIds, ...]:
    """Return `parts` with at most `room` tokens in total: tokens are removed from the end of the longest part."""
    lengths = list(map(len, parts))
    for _ in range(sum(lengths) - room):
        lengths[lengths.index(max(lengths))] -= 1
    return tuple(part[:length] for part, length in zip(parts, lengths, strict=True))
