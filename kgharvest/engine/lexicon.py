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


class Rejection(NamedTuple):
    """The rule that rejects an entity, or None for ids that the tokenizer would never write."""

    rule: str | None


class Lexicon:
    """Answers for token sequences, remembered: the same entity comes up in many tuples."""

    def __init__(self, lm: LanguageModel, entity_filter: EntityFilter) -> None:
        self._lm = lm
        self._filter = entity_filter
        self._known: dict[TokenIds, Entity | Rejection] = {}

    def look_up(self, sequences: Sequence[TokenIds]) -> list[Entity | Rejection]:
        unknown = [ids for ids in sequences if ids not in self._known]
        if unknown:
            if len(self._known) > MOST_REMEMBERED:
                self._known.clear()
                unknown = list(sequences)
            texts = self._lm.canonical_texts(unknown)
            self._known.update((ids, self._judge(text)) for ids, text in zip(unknown, texts, strict=True))
        return [self._known[ids] for ids in sequences]

    def _judge(self, text: str | None) -> Entity | Rejection:
        if text is None:
            return Rejection(None)
        words = words_of(text)
        rule = self._filter.rejection(words)
        return Rejection(rule) if rule else Entity(text, " ".join(words), words)
