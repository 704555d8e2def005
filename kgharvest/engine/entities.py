"""Entities: which token sequences are some, canonical for the tokenizer and rejected by no filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgharvest.engine.filters import LONGEST_ENTITY, UNWRITABLE, EntityFilter, Words, words_of
from kgharvest.engine.language_models.base import LanguageModel, TokenIds

CACHE_SIZE = 1_000_000


def is_writable(entity: str) -> bool:
    """Return whether people can read `entity`, and files hold it.

    It is not too long and has no control, bidirectional, zero-width or unassigned character. A zero-width non-joiner,
    which Persian spelling uses, is one: two entities that look the same would be two.
    """
    return len(entity) <= LONGEST_ENTITY and entity.isprintable()


class Entity(NamedTuple):
    """A complete entity: as the LM writes it, case-folded, and its case-folded words."""

    surface: str
    folded: str
    words: Words


class NoEntity(NamedTuple):
    """A token sequence that is none: the rule that rejects it, or None if the tokenizer would never write it."""

    rule: str | None


class EntityVocabulary:
    """Looks token sequences up and caches the answers: the same entity comes up in many tuples."""

    def __init__(self, lm: LanguageModel, entity_filter: EntityFilter) -> None:
        self._lm = lm
        self._filter = entity_filter
        self._cache: dict[TokenIds, Entity | NoEntity] = {}

    def __len__(self) -> int:
        return len(self._cache)

    def look_up(self, ids: TokenIds) -> Entity | NoEntity:
        answer = self._cache.get(ids)
        if answer is None:
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            answer = self._cache[ids] = self._classify(self._lm.canonical_texts([ids])[0])
        return answer

    def rejects_beside(self, entity: Entity, others: Sequence[Entity]) -> bool:
        """Return whether `entity` overlaps with another one of its tuple."""
        return self._filter.rejects_beside(entity.words, [other.words for other in others])

    def _classify(self, text: str | None) -> Entity | NoEntity:
        if text is None:
            return NoEntity(None)
        return read_entity(text, self._filter)


def read_entity(text: str, entity_filter: EntityFilter) -> Entity | NoEntity:
    """Return the entity that `text` is, or the rule that rejects it."""
    words = words_of(text)
    rule = entity_filter.rejection(words) if is_writable(text) else UNWRITABLE
    return NoEntity(rule) if rule else entity_of(text)


def entity_of(text: str) -> Entity:
    words = words_of(text)
    return Entity(text, " ".join(words), words)
