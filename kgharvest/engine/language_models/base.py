"""`LanguageModel` protocol: fill-in-the-blank distributions, one position per query, many queries per call.

Search, scoring, and prompt systems access LMs only through `LanguageModel`. Each LM family is a module in this package.
Only this package imports transformers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

TokenIds = tuple[int, ...]
Pattern = tuple[int, ...]  # tokens per entity, in slot-index order
Tick = Callable[[], None]  # called between forward passes for progress and cancellation


class EncodedPrompt(NamedTuple):
    """A tokenized prompt. segments: ids of the n + 1 texts around n slots. slots: entity indices in textual order."""

    segments: tuple[TokenIds, ...]
    slots: tuple[int, ...]


class Query(NamedTuple):
    """A query for the token at `position` of `ids`. Equal queries are evaluated once.

    n_shared: number of leading ids that are the same in all queries about a prompt, if the LM can read them once.
    """

    ids: TokenIds
    position: int
    n_shared: int = 0


class LanguageModel(Protocol):
    """A pretrained LM that fills in blanks.

    starts_entity, continues_entity: bool (V,), the tokens allowed as the first token of an entity and as a later token.
        Both exclude special tokens. starts_entity also excludes word-continuation pieces.
    entity_end: tokens that terminate every entity and count towards its probability: () for masked LMs, the line break
        for causal LMs, a sentinel for span-filling LMs.
    is_affine: True if the logits of a weighted mean of vectors equal the weighted mean of their logits.
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
        """Return the token ids of the texts around the slots, including special tokens."""

    def encode_entity(self, entity: str) -> TokenIds:
        """Return the entity's canonical ids, independent of prompt and position. Raises BadSeed if there are none."""

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        """Return the text of each token sequence, or None if the tokenizer encodes that text differently."""

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        """Return the query for the next token after `filled`. Raises BadPrompt if it is too long.

        filled: tokens so far in slot-index order, each entity followed by `entity_end`. They are visible to the LM; all
            later tokens are masked.
        pattern: number of tokens per entity. If there is an `entity_end`, the query depends only on `filled`.
        """

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        """Return the vectors (Q, d), float32, that `logits` takes for these queries. Equal queries are evaluated once.

        Raises BrokenModel on NaN. Halves the batch if memory is exhausted.
        """

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the logits (Q, V) for `vectors`, float32."""


@runtime_checkable
class GivesLogprobs(Protocol):
    """An LM behind a server that returns token log-probabilities instead of `vectors` and `logits`."""

    def target_logprobs(self, queries: Sequence[Query], targets: Sequence[int], tick: Tick) -> NDArray[np.float64]:
        """Return (Q,): the log-probability of each target at the position of its query, in nats."""

    def ranker(self, prompts: Sequence[EncodedPrompt], weights: Sequence[float], batch_size: int) -> Any:
        """Return an object with the interface of `ranking.TokenRanker`."""


def filled_tokens(lm: LanguageModel, entities: Sequence[TokenIds]) -> TokenIds:
    """Return the `filled` argument of `query` for `entities` in the first slots."""
    return tuple(token for ids in entities for token in ids + lm.entity_end)


def fits(lm: LanguageModel, prompt: EncodedPrompt, pattern: Pattern) -> bool:
    """Return whether all queries for `prompt` with entities of the lengths in `pattern` fit into the LM's context."""
    all_but_the_last = sum(pattern) + len(pattern) * len(lm.entity_end) - 1
    try:
        lm.query(prompt, pattern, (0,) * all_but_the_last)
    except BadPrompt:
        return False
    return True
