"""Entity filters: named predicates that reject an entity. Each can be disabled. Rejections are counted per filter.

Predicates take case-folded words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kgharvest.engine.prompts.template import PromptTemplate

Words = tuple[str, ...]

LONGEST_ENTITY = 200  # characters; longer texts are not entities

STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each either else ever
    every few for from further had hadn't has hasn't have haven't having he hence her here hers herself him himself his
    how however i if in into is isn't it its itself just let like may me might more most much must my myself neither no
    nor not now of off often on once one ones only or other others otherwise ought our ours ourselves out over own
    perhaps quite rather s same shall she should shouldn't since so some somebody someone something somewhere still such
    t than that the their theirs them themselves then there therefore these they this those though through thus to too
    under until up upon us usually very was wasn't we were weren't what whatever when where whether which while who whom
    whose why will with within without won't would wouldn't yes yet you your yours yourself yourselves
    """.split()  # noqa: SIM905  more readable than a list of strings
)


def words_of(text: str) -> Words:
    return tuple(text.casefold().split())


def is_writable(entity: str) -> bool:
    """Return whether `entity` is short enough and printable.

    False if it contains a control, bidirectional, zero-width, or unassigned character. This includes the zero-width
    non-joiner of Persian spelling, because two entities that look the same would otherwise be distinct.
    """
    return len(entity) <= LONGEST_ENTITY and entity.isprintable()


def has_no_letter_or_punctuation(entity: Words) -> bool:
    text = "".join(entity)
    return not any(map(str.isalpha, text)) or any(unicodedata.category(character)[0] in "PS" for character in text)


def is_number(entity: Words) -> bool:
    """Return whether `entity` is a number with digits, such as "1,200" or "-3.5". An LM can write it with spaces."""
    return re.fullmatch(r"[-−]?\d+([.,]\d+)*", "".join(entity)) is not None


def has_one_letter_word(entity: Words) -> bool:
    return any(len(word) == 1 and word.isalpha() for word in entity)


def occurs_in(part: Words, whole: Words) -> bool:
    """Return whether `part` occurs in `whole` as consecutive whole words."""
    return part[0] in whole and any(
        whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1)
    )


class Filter(NamedTuple):
    """A named reason to reject an entity.

    name: used in parameters, files, and counts. label: user-facing name.
    rejects: predicate over the entity's words. None: `EntityFilter` compares the words with prompts or other entities.
    """

    name: str
    label: str
    rejects: Callable[[Words], bool] | None = None


IN_PROMPT, OVERLAP = "in_prompt", "overlap"
# Filters in the order in which they are applied.
FILTERS = {
    entry.name: entry
    for entry in (
        Filter("stop_word", "stop word", STOP_WORDS.issuperset),
        Filter("no_letter_or_punctuation", "no letter, or punctuation", has_no_letter_or_punctuation),
        Filter("short", "fewer than three letters", lambda entity: sum(map(str.isalpha, "".join(entity))) < 3),
        Filter("one_letter_word", "a word of one letter", has_one_letter_word),
        Filter("repeated_word", "a repeated word", lambda entity: len(set(entity)) < len(entity)),
        Filter(IN_PROMPT, "words of a prompt"),
        Filter(OVERLAP, "overlap with another entity of the tuple"),
    )
}
# Reasons that cannot be disabled: tuples equal to a better tuple after case-folding, and entities that are unwritable
# (`is_writable`), and seed tuples that the prompts show.
DUPLICATE, UNWRITABLE, EXAMPLE = "duplicate", "unwritable", "example"


def filter_label(name: str) -> str:
    """Return the user-facing label of a filter or other rejection reason."""
    return FILTERS[name].label if name in FILTERS else name.replace("_", " ")


class EntityFilter:
    """The enabled filters for a set of prompts. numbers: if true, no filter of single entities rejects numbers."""

    def __init__(
        self, prompts: Sequence[PromptTemplate], disabled: frozenset[str] = frozenset(), numbers: bool = False
    ) -> None:
        self._numbers = numbers
        enabled = [entry for entry in FILTERS.values() if entry.name not in disabled]
        self._of_entity_alone = {entry.name: entry.rejects for entry in enabled if entry.rejects}
        self._prompt_texts = [] if IN_PROMPT in disabled else prompt_texts(prompts)
        self._checks_overlap = OVERLAP not in disabled

    def rejection(self, entity: Words) -> str | None:
        """Return the name of the first filter that rejects `entity` regardless of the other entities, or None."""
        if not (self._numbers and is_number(entity)):
            for name, rejects in self._of_entity_alone.items():
                if rejects(entity):
                    return name
        return IN_PROMPT if any(occurs_in(entity, text) for text in self._prompt_texts) else None

    def rejects_beside(self, entity: Words, others: Sequence[Words]) -> bool:
        """Return whether `entity` equals, contains, or is contained in another entity of its tuple."""
        return self._checks_overlap and any(occurs_in(entity, other) or occurs_in(other, entity) for other in others)


def prompt_texts(prompts: Sequence[PromptTemplate]) -> list[Words]:
    """Return the words of each text between slots, without punctuation."""
    segments = (segment for prompt in prompts for segment in prompt.segments)
    texts = {
        words_of("".join(" " if unicodedata.category(character)[0] in "PS" else character for character in segment))
        for segment in segments
    }
    return sorted(texts - {()})
