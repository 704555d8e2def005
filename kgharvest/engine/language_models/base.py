"""The `LanguageModel` protocol: fill-in-the-blank distributions, one position at a time, many at once.

The search, the scoring and the prompt systems know LMs through `LanguageModel` only; each family is a module beside
this one, and only these modules import transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

TokenIds = tuple[int, ...]
Pattern = tuple[int, ...]  # tokens per entity, in slot-index order
Tick = Callable[[], None]  # called between forwards, so that progress and cancellation never wait for long


class EncodedPrompt(NamedTuple):
    """A prompt in tokens. `segments`: ids of the n + 1 texts around slots; `slots`: entity index of each, in order."""

    segments: tuple[TokenIds, ...]
    slots: tuple[int, ...]


class Query(NamedTuple):
    """ "What stands at `position` of `ids`?" Hashable: equal queries are asked once."""

    ids: TokenIds
    position: int


class LanguageModel(Protocol):
    """A pretrained LM that fills in blanks.

    starts_entity, continues_entity: bool (V,), the tokens that may come first, or later, in an entity. Special tokens
    never may, word-continuation pieces never first.
    entity_end: tokens that close every entity and count towards its probability: () for masked LMs, the line's end for
    causal ones, a sentinel for those that fill in spans.
    is_affine: whether the logits of a weighted mean of vectors are the weighted mean of their logits.
    """

    name: str
    revision: str | None
    is_cased: bool
    vocab_size: int
    max_tokens: int
    starts_entity: NDArray[np.bool_]
    continues_entity: NDArray[np.bool_]
    entity_end: TokenIds
    is_affine: bool

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        """Return the token ids of the text around the slots, special tokens included."""

    def encode_entity(self, entity: str) -> TokenIds:
        """Return the entity's canonical ids, the same in every prompt and place. Raises BadSeed if there are none."""

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        """Return the text of each token sequence, or None where the tokenizer writes that text with other ids."""

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        """Return the question for the next token after `filled`.

        `filled` holds the tokens so far in slot-index order, each entity followed by `entity_end`; `pattern` says how
        many tokens each entity has. What is filled is visible, the rest masked. Raises BadPrompt if it is too long.
        """

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        """Return (Q, d) float32: for each query the vector that `logits` projects. Equal queries are evaluated once.

        Raises BrokenModel on NaN. Halves the batch when memory runs out.
        """

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return (Q, V) float32."""


@runtime_checkable
class GivesLogprobs(Protocol):
    """An LM behind a server, which gives log-probabilities of tokens in the place of `vectors` and `logits`."""

    def target_logprobs(self, queries: Sequence[Query], targets: Sequence[int], tick: Tick) -> NDArray[np.float64]:
        """Return (Q,): the log-probability in nats of each target where its query asks."""

    def ranker(self, prompts: Sequence[EncodedPrompt], weights: Sequence[float], batch_size: int) -> Any:
        """Return what ranks next tokens as `ranking.TokenRanker` does."""


def filled_tokens(lm: LanguageModel, entities: Sequence[TokenIds]) -> TokenIds:
    """Return what `query` takes as filled when `entities` stand in the first slots."""
    return tuple(token for ids in entities for token in ids + lm.entity_end)


def fits(lm: LanguageModel, prompt: EncodedPrompt, pattern: Pattern) -> bool:
    """Return whether `lm` can take `prompt` with entities of so many tokens: no query of them is too long."""
    all_but_the_last = sum(pattern) + len(pattern) * len(lm.entity_end) - 1
    try:
        lm.query(prompt, pattern, (0,) * all_but_the_last)
    except BadPrompt:
        return False
    return True
