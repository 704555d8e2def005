"""Slot recovery: from "A bird can fly." and ("bird", "fly") back to `A <ENT0> can <ENT1>.` (BertNet, section 3.1).

Paraphrasers inflect words: "exercise" becomes "exercising", "virus" becomes "viruses", and "the exam" becomes "exams".
Entities are recognized as whole words in any of these forms. Entities are arbitrary text, so the forms are derived from
word endings: a dictionary would relate "thing" to "the" and "being" to "is".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kgharvest.engine.prompts.template import SLOT, PromptTemplate

ARTICLES = ("a", "an", "the")
SUFFIXES = ("s", "es", "ing", "ed")
VOWELS = "aeiouy"
SHORTEST_BASE = 3  # "bus" is not a plural of "bu", and "king" is not a form of "k"
BASE_ENDINGS = {
    "ies": ("y",),
    "ied": ("y",),
    "ying": ("ie",),
    "ing": ("", "e"),
    "ed": ("", "e"),
    "es": ("", "e"),
    "s": ("",),
}

_SOME_ARTICLE = rf"(?:(?:{'|'.join(ARTICLES)})\s+)?"


class Occurrence(NamedTuple):
    """Position of an entity in a sentence. suffix: text that remains after the slot."""

    slot: int
    start: int
    end: int
    suffix: str
    is_exact: bool


def recover_slots(sentence: str, entities: Sequence[str]) -> PromptTemplate | None:
    """Return the template that gives `sentence` when filled, or None unless each entity occurs once, as whole words.

    A plain suffix (s, es, ing, ed) on an otherwise unchanged entity remains as text after the slot: "viruses" becomes
    `<ENT1>es`. Any other inflection ("swimming" for "swim", "pass an exam" for "pass exam") becomes part of the slot.
    Words in an occurrence of a longer entity do not count for a shorter one: "fried rice" is not an occurrence of
    "rice" if the tuple contains both.
    """
    if SLOT.search(sentence):
        return None
    candidates = [
        occurrence for slot, entity in enumerate(entities) for occurrence in occurrences(sentence, slot, entity)
    ]
    claimed: list[Occurrence] = []
    # If two occurrences overlap, the exact one wins, or otherwise the longer one.
    for occurrence in sorted(candidates, key=lambda other: (not other.is_exact, other.start - other.end, other.start)):
        if all(occurrence.start >= other.end or other.start >= occurrence.end for other in claimed):
            claimed.append(occurrence)
    if sorted(occurrence.slot for occurrence in claimed) != list(range(len(entities))):
        return None
    for occurrence in sorted(claimed, key=lambda occurrence: occurrence.start, reverse=True):
        tail = occurrence.suffix + sentence[occurrence.end :]
        sentence = f"{sentence[: occurrence.start]}<ENT{occurrence.slot}>{tail}"
    return PromptTemplate.parse(sentence)


def as_sentence(prompt: PromptTemplate, entities: Sequence[str]) -> str:
    """Return the filled prompt as ordinary text, without a space before punctuation."""
    return re.sub(r"\s+([.,;:?!])", r"\1", prompt.fill(entities))


def as_prompt(sentence: str, entities: Sequence[str]) -> PromptTemplate | None:
    """Return `sentence` with its slots and a space before the final mark, or None if a slot cannot be recovered."""
    text = re.sub(r"\s*(?:\.|\.{3})$", "", " ".join(sentence.split()))
    ended = f"{text[:-1].rstrip()} {text[-1]}" if text.endswith(("?", "!")) else f"{text} ."
    return recover_slots(ended, entities)


def occurrences(sentence: str, slot: int, entity: str) -> list[Occurrence]:
    if not entity.strip():
        return []
    suffixes = {(entity + suffix).casefold(): suffix for suffix in ("", *SUFFIXES)}
    return [
        Occurrence(slot, *match.span(), suffixes.get(words, ""), words == entity.casefold())
        for match in entity_pattern(entity).finditer(sentence)
        for words in [match.group().casefold()]
    ]


@lru_cache(maxsize=1024)
def entity_pattern(entity: str) -> re.Pattern[str]:
    """Return a pattern for `entity` as whole words, which can be inflected. Articles before later words are optional.

    An article at the start of the entity can be missing or different. Any other article before it is not matched.
    """
    words = entity.split()
    content = [word for word in words if word.lower() not in ARTICLES] or words
    lead = _SOME_ARTICLE if content[0] != words[0] else ""
    # Longest form first. Straight and curly apostrophes are treated as equal.
    forms = [sorted(word_forms(word), key=lambda form: (-len(form), form)) for word in content]
    patterns = [f"(?:{'|'.join(map(re.escape, of_word))})".replace("'", "['’]") for of_word in forms]
    body = rf"\s+{_SOME_ARTICLE}".join(patterns)
    return re.compile(rf"(?<!\w){lead}{body}(?!\w)", re.IGNORECASE)


def word_forms(word: str) -> set[str]:
    """Return `word`, its inflected forms, its possible stems, and their forms."""
    if not word[-1].isalpha():
        return {word + suffix for suffix in ("", *SUFFIXES)}
    stems = {word, *bases(word)}
    return stems | {form for stem in stems for form in inflections(stem)}


def inflections(stem: str) -> set[str]:
    """Return the regular -s, -ing, and -ed forms of `stem`, correct or not ("studies" and "studys")."""
    forms = {stem + suffix for suffix in SUFFIXES}
    if stem.endswith("ie"):
        forms |= {stem[:-2] + "ying", stem + "d"}
    elif stem.endswith("e"):
        forms |= {stem[:-1] + "ing", stem + "d"}
    elif stem.endswith("y"):
        forms |= {stem[:-1] + "ies", stem[:-1] + "ied"}
    elif stem[-1] not in VOWELS:
        forms |= {stem + stem[-1] + "ing", stem + stem[-1] + "ed"}
    return forms


def bases(word: str) -> set[str]:
    """Return possible stems of `word`, derived from its ending. Some stems are not words."""
    candidates: set[str] = set()
    if word.endswith("ss"):
        return candidates
    for ending, endings_of_base in BASE_ENDINGS.items():
        if word.endswith(ending):
            stem = word[: -len(ending)]
            candidates |= {stem + end for end in endings_of_base}
            if ending in ("ing", "ed") and stem[-1:] == stem[-2:-1]:
                candidates.add(stem[:-1])
    return {base for base in candidates if len(base) >= SHORTEST_BASE and any(letter in VOWELS for letter in base)}
