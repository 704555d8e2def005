"""Which token sequences are entities: canonical for the tokenizer and rejected by no filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgharvest.engine.filters import EntityFilter, Words, words_of
from kgharvest.engine.language_models.base import LanguageModel, TokenIds

MOST_REMEMBERED = 1_000_000


class Entity(NamedTuple):
    """A complete entity: as the LM writes it, case-folded, and its case-folded words."""

    surface: str
    folded: str
    words: Words


class NoEntity(NamedTuple):
    """A token sequence that is none: the rule that rejects it, or None if the tokenizer would never write it."""

    rule: str | None


class Lexicon:
    """Answers for token sequences, remembered: the same entity comes up in many tuples."""

    def __init__(self, lm: LanguageModel, entity_filter: EntityFilter) -> None:
        self._lm = lm
        self._filter = entity_filter
        self._known: dict[TokenIds, Entity | NoEntity] = {}

    def __len__(self) -> int:
        return len(self._known)

    def look_up(self, ids: TokenIds) -> Entity | NoEntity:
        known = self._known.get(ids)
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            known = self._known[ids] = self._judge(self._lm.canonical_texts([ids])[0])
        return known

    def rejects_beside(self, entity: Entity, others: Sequence[Entity]) -> bool:
        """Return whether `entity` overlaps with another one of its tuple."""
        return self._filter.rejects_beside(entity.words, [other.words for other in others])

    def _judge(self, text: str | None) -> Entity | NoEntity:
        if text is None:
            return NoEntity(None)
        words = words_of(text)
        rule = self._filter.rejection(words)
        return NoEntity(rule) if rule else Entity(text, " ".join(words), words)
