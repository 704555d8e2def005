"""Entity filters: named predicates that reject an entity. Each can be disabled and counts its rejections.

Predicates take case-folded words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

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


def is_stop_word(entity: Words) -> bool:
    return all(word in STOP_WORDS for word in entity)


def has_no_letter_or_punctuation(entity: Words) -> bool:
    text = "".join(entity)
    return not any(map(str.isalpha, text)) or any(unicodedata.category(character)[0] in "PS" for character in text)


def is_short(entity: Words) -> bool:
    return sum(map(str.isalpha, "".join(entity))) < 3


def has_one_letter_word(entity: Words) -> bool:
    return any(len(word) == 1 and word.isalpha() for word in entity)


def repeats_a_word(entity: Words) -> bool:
    return len(set(entity)) < len(entity)


def occurs_in(part: Words, whole: Words) -> bool:
    """Return whether `part` occurs in `whole` as consecutive whole words."""
    return part[0] in whole and any(
        whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1)
    )


def overlaps_another(entity: Words, others: Sequence[Words]) -> bool:
    return any(occurs_in(entity, other) or occurs_in(other, entity) for other in others)


def occurs_in_prompt(entity: Words, prompt_texts: Sequence[Words]) -> bool:
    return any(occurs_in(entity, text) for text in prompt_texts)


class Filter(NamedTuple):
    """A named reason to reject an entity.

    name: used in parameters, files, and counts. label: user-facing name.
    rejects: predicate over the entity's words and, if `compared_with` is set, the prompt texts or the other entities of
        the tuple.
    """

    name: str
    label: str
    rejects: Callable[..., bool]
    compared_with: Literal["prompts", "entities"] | None = None


IN_PROMPT, OVERLAP = "in_prompt", "overlap"
# In order of application.
FILTERS = {
    entry.name: entry
    for entry in (
        Filter("stop_word", "stop word", is_stop_word),
        Filter("no_letter_or_punctuation", "no letter, or punctuation", has_no_letter_or_punctuation),
        Filter("short", "fewer than three letters", is_short),
        Filter("one_letter_word", "a word of one letter", has_one_letter_word),
        Filter("repeated_word", "a repeated word", repeats_a_word),
        Filter(IN_PROMPT, "words of a prompt", occurs_in_prompt, compared_with="prompts"),
        Filter(OVERLAP, "overlap with another entity of the tuple", overlaps_another, compared_with="entities"),
    )
}
# Always enabled: equal to a better tuple after case-folding; see `entities.is_writable`.
DUPLICATE, UNWRITABLE = "duplicate", "unwritable"


def filter_label(name: str) -> str:
    """Return the user-facing label of a filter or other rejection reason."""
    return FILTERS[name].label if name in FILTERS else name.replace("_", " ")


class EntityFilter:
    """The enabled filters for a set of prompts."""

    def __init__(self, prompts: Sequence[PromptTemplate], disabled: frozenset[str] = frozenset()) -> None:
        enabled = [entry for entry in FILTERS.values() if entry.name not in disabled]
        self._of_entity_alone = {entry.name: entry.rejects for entry in enabled if entry.compared_with is None}
        self._prompt_texts = [] if IN_PROMPT in disabled else prompt_texts(prompts)
        self._checks_overlap = OVERLAP not in disabled

    def rejection(self, entity: Words) -> str | None:
        """Return the name of the first filter that rejects `entity` regardless of the other entities, or None."""
        for name, rejects in self._of_entity_alone.items():
            if rejects(entity):
                return name
        return IN_PROMPT if occurs_in_prompt(entity, self._prompt_texts) else None

    def rejects_beside(self, entity: Words, others: Sequence[Words]) -> bool:
        """Return whether `entity` equals, contains, or is contained in another entity of its tuple."""
        return self._checks_overlap and overlaps_another(entity, others)


def prompt_texts(prompts: Sequence[PromptTemplate]) -> list[Words]:
    """Return the words of each text between slots, without punctuation."""
    texts = {words_of(without_punctuation(segment)) for prompt in prompts for segment in prompt.segments}
    return sorted(texts - {()})


def without_punctuation(text: str) -> str:
    return "".join(" " if unicodedata.category(character)[0] in "PS" else character for character in text)
