"""Fake LM with predefined distributions, for tests of code that queries LMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Query, TokenIds
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, BadSeed

BLANK, OTHER_BLANK = "_", "?"
LETTERS = "abcdefgh"  # irrelevant words that every fake LM can propose


class FakeLM:
    """Word-level LM that proposes `words` and accepts any text.

    answers: maps a text, with `_` at the queried blank and `?` at other blanks, to logits by word. Unlisted words, and
    all words of texts without an answer, have logit 0.
    """

    name, revision, is_cased = "fake", None, True
    entity_end: TokenIds = ()
    is_affine: bool = True

    def __init__(
        self,
        words: Sequence[str],
        answers: Mapping[str, Mapping[str, float]] | None = None,
        max_tokens: int = 100,
    ) -> None:
        self.answers, self.max_tokens = answers or {}, max_tokens
        self._vocabulary = [BLANK, OTHER_BLANK, *words, *LETTERS]  # words that occur only in texts are appended
        self.vocab_size = len(self._vocabulary)
        self.starts_entity = np.array([word not in (BLANK, OTHER_BLANK) for word in self._vocabulary])
        self.continues_entity = self.starts_entity

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        return EncodedPrompt(tuple(self._ids(text) for text in prompt.segments), prompt.slots)

    def encode_entity(self, entity: str) -> TokenIds:
        if unknown := set(entity.split()) - set(self._vocabulary[: self.vocab_size]):
            raise BadSeed(f"Unknown words: {unknown}.")
        return self._ids(entity)

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        return [self._text(ids) for ids in sequences]

    def query(self, prompt: EncodedPrompt, pattern: Sequence[int], filled: TokenIds) -> Query:
        blank, *others = self._ids(" ".join([BLANK] + [OTHER_BLANK] * (sum(pattern) - len(filled) - 1)))
        tokens = [*filled, blank, *others]
        starts = [0, *accumulate(pattern)]
        ids = list(prompt.segments[0])
        for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
            ids += [*tokens[starts[slot] : starts[slot + 1]], *segment]
        if len(ids) > self.max_tokens:
            raise BadPrompt(f"{len(ids)} tokens are too many.")
        return Query(tuple(ids), ids.index(blank))

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: object) -> torch.Tensor:
        answers = [self.answers.get(self._text(query.ids), {}) for query in queries]
        words = self._vocabulary[: self.vocab_size]
        return torch.tensor([[float(answer.get(word, 0)) for word in words] for answer in answers])

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors

    def _ids(self, text: str) -> TokenIds:
        words = text.split()
        self._vocabulary += [word for word in dict.fromkeys(words) if word not in self._vocabulary]
        return tuple(map(self._vocabulary.index, words))

    def _text(self, ids: TokenIds) -> str:
        return " ".join(self._vocabulary[token] for token in ids)
