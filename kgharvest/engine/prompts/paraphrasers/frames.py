"""Frames around a clause that leave its meaning as it is: "it is well known that ..."."""

from __future__ import annotations

import re

from kgharvest.engine.prompts.paraphrasers.rewriting import clause_of, prompt_of
from kgharvest.engine.prompts.template import PromptTemplate

FRAMES = (
    "it is well known that {clause}",
    "in general, {clause}",
    "it is often said that {clause}",
    "as everybody can see, {clause}",
    "there is no doubt about it: {clause}",
    "most of us would agree that {clause}",
    "{clause}, or so it is said",
    "as it happens, {clause}",
    "it should not be forgotten that {clause}",
    "{clause}, which is hardly surprising",
    "if I remember this correctly, {clause}",
    "{clause}, as has been found out again and again",
    "only later was it found out that {clause}",
)
FRAME_PATTERNS = [re.compile(re.escape(frame).replace(r"\{clause\}", "(?P<clause>.*)")) for frame in FRAMES]


def framed(prompt: PromptTemplate) -> list[PromptTemplate]:
    clause = bare_clause(prompt)
    return [prompt_of(frame.format(clause=clause)) for frame in FRAMES]


def bare_clause(prompt: PromptTemplate) -> str:
    """Return the clause of `prompt` without the frame that it may stand in."""
    clause = clause_of(prompt)
    matches = (pattern.fullmatch(clause) for pattern in FRAME_PATTERNS)
    return next((match["clause"] for match in matches if match), clause)
