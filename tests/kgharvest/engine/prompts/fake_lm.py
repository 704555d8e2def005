"""An LM whose every distribution is written down: for tests of what asks LMs, not of LMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Query, TokenIds
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, BadSeed

BLANK, OTHER_BLANK = "_", "?"
LETTERS = "abcdefgh"  # so that any LM has a few words to propose that nobody wants


class FakeLM:
    """A word-level LM that proposes `words` and reads any text.

    answers: from a text with `_` where the question is and `?` at the other blanks, to logits by word. The words that
    an answer leaves out, and all words where there is no answer, have logit 0.
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
        self._known = [BLANK, OTHER_BLANK, *words, *LETTERS]  # the words that only occur in texts are appended
        self.vocab_size = len(self._known)
        self.starts_entity = np.array([word not in (BLANK, OTHER_BLANK) for word in self._known])
        self.continues_entity = self.starts_entity

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        return EncodedPrompt(tuple(self._ids(text) for text in prompt.segments), prompt.slots)

    def encode_entity(self, entity: str) -> TokenIds:
        if unknown := set(entity.split()) - set(self._known[: self.vocab_size]):
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
        words = self._known[: self.vocab_size]
        return torch.tensor([[float(answer.get(word, 0)) for word in words] for answer in answers])

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors

    def _ids(self, text: str) -> TokenIds:
        words = text.split()
        self._known += [word for word in dict.fromkeys(words) if word not in self._known]
        return tuple(map(self._known.index, words))

    def _text(self, ids: TokenIds) -> str:
        return " ".join(self._known[token] for token in ids)
