"""Fake LM with distributions defined by the test."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Query
from kgharvest.engine.types import BadSeed

MASK = -1


class FakeLM:
    """Fake LM in which every word is one token.

    `probabilities[filled words]` is the distribution of the next word; unlisted words share the remaining probability.
    The prompt has no effect, except that `by_prompt` may assign separate distributions to prompt texts.
    """

    name, revision, is_cased, max_tokens, entity_end, is_affine = "fake", None, False, 64, (), True

    def __init__(self, words: list[str], probabilities: Mapping, by_prompt: Mapping = {}):
        self.words = words
        self.vocab_size = len(words)
        self.probabilities, self.by_prompt = probabilities, by_prompt
        self.starts_entity = self.continues_entity = np.ones(len(words), dtype=bool)
        self.scored_queries: list[Query] = []
        self._texts: list[str] = []

    def encode_prompt(self, prompt):
        self._texts.append(prompt.text)
        return EncodedPrompt(((len(self._texts) - 1,), *((),) * prompt.arity), prompt.slots)

    def encode_entity(self, entity):
        if unknown := [word for word in entity.split() if word not in self.words]:
            raise BadSeed(f"The fake LM does not know {unknown[0]!r}.")
        return tuple(self.words.index(word) for word in entity.split())

    def canonical_texts(self, sequences):
        return [" ".join(self.words[token] for token in ids) for ids in sequences]

    def query(self, prompt, pattern, filled):
        return Query((prompt.segments[0][0], *filled, *(MASK,) * (sum(pattern) - len(filled))), len(filled))

    def vectors(self, queries, batch_size, tick):
        self.scored_queries += queries
        tick()
        return torch.tensor([self._logprobs(query) for query in queries])

    def logits(self, vectors):
        return vectors

    def _logprobs(self, query):
        text = self._texts[query.ids[0]]
        filled = tuple(self.words[token] for token in query.ids[1:] if token != MASK)
        table = self.by_prompt.get(text, self.probabilities).get(filled, {})
        rest = (1 - sum(table.values())) / (self.vocab_size - len(table)) if len(table) < self.vocab_size else 0
        return [math.log(table.get(word, rest)) if table.get(word, rest) else -1e9 for word in self.words]
