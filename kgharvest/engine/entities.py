"""Entities: token sequences that are canonical for the tokenizer and pass every filter."""

from collections.abc import Sequence
from typing import NamedTuple

from kgharvest.engine.filters import UNWRITABLE, EntityFilter, Words, is_writable, words_of
from kgharvest.engine.language_models.base import LanguageModel, TokenIds

CACHE_SIZE = 1_000_000


class Entity(NamedTuple):
    """A complete entity: its text as the LM writes it, its case-folded text, and its case-folded words."""

    surface: str
    folded: str
    words: Words


class NoEntity(NamedTuple):
    """A token sequence that is not an entity. rule: the filter that rejects it, or None if it is not canonical."""

    rule: str | None


class EntityVocabulary:
    """Lookup of token sequences, cached because the same entity occurs in many tuples."""

    def __init__(self, lm: LanguageModel, entity_filter: EntityFilter) -> None:
        self._lm = lm
        self._filter = entity_filter
        self._cache: dict[TokenIds, Entity | NoEntity] = {}

    def __len__(self) -> int:
        return len(self._cache)

    def look_up(self, ids: TokenIds) -> Entity | NoEntity:
        entity = self._cache.get(ids)
        if entity is None:
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            text = self._lm.canonical_texts([ids])[0]
            entity = self._cache[ids] = NoEntity(None) if text is None else read_entity(text, self._filter)
        return entity

    def rejects_beside(self, entity: Entity, others: Sequence[Entity]) -> bool:
        """Return whether `entity` overlaps another entity of its tuple."""
        return self._filter.rejects_beside(entity.words, [other.words for other in others])


def read_entity(text: str, entity_filter: EntityFilter) -> Entity | NoEntity:
    """Return `text` as an entity, or the rule that rejects it."""
    words = words_of(text)
    rule = entity_filter.rejection(words) if is_writable(text) else UNWRITABLE
    return NoEntity(rule) if rule else entity_of(text)


def entity_of(text: str) -> Entity:
    words = words_of(text)
    return Entity(text, " ".join(words), words)
