"""The sentence that annotators judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgharvest.engine.prompts.template import SLOT, SPACE_BEFORE_END


class Statement(NamedTuple):
    """spans: [start, end) of each entity in the text, in reading order."""

    text: str
    spans: list[list[int]]


def freeze_statement(template: str, surface: Sequence[str]) -> Statement:
    """Return `template` with the entities in its slots. Unlike a prompt, it may name a slot more than once."""
    pieces = SLOT.split(SPACE_BEFORE_END.sub("", template.strip()))  # text, slot, text, slot, ..., text
    text, spans = pieces[0], []
    for slot, following in zip(pieces[1::2], pieces[2::2], strict=True):
        entity = surface[int(slot)]
        spans.append([len(text), len(text) + len(entity)])
        text += entity + following
    return Statement(text, spans)


def statement_parts(text: str, spans: Sequence[Sequence[int]]) -> list[tuple[str, bool]]:
    """Return a frozen statement in stretches of text, each with whether it is an entity; none is empty."""
    parts, reached = [], 0
    for start, end in spans:
        parts += [(text[reached:start], False), (text[start:end], True)]
        reached = end
    return [part for part in [*parts, (text[reached:], False)] if part[0]]
