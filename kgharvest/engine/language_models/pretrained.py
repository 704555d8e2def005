"""Base classes of the LM families: a transformers model and its tokenizer, queried in batches."""

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, Tick, TokenIds
from kgharvest.engine.language_models.batching import evaluate, tokens_at_once
from kgharvest.engine.language_models.networks.heads import Head, device_of, is_split, network_of, text_config
from kgharvest.engine.language_models.tokens import Tokens
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

# Fallback context length for configs that do not specify one.
MAX_TOKENS = 2048


class TokenizedLM:
    """The part of the `LanguageModel` protocol that depends only on the tokenizer."""

    entity_end: TokenIds = ()
    name: str
    tokens: Tokens
    max_tokens: int
    starts_entity: NDArray[np.bool_]
    continues_entity: NDArray[np.bool_]

    def encode_entity(self, entity: str) -> TokenIds:
        return self.tokens.encode_entity(entity)

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        return self.tokens.canonical_texts(sequences)

    def _checked_query(self, ids: TokenIds, position: int, n_shared: int = 0) -> Query:
        if len(ids) > self.max_tokens:
            raise BadPrompt(
                f"A prompt of {len(ids)} tokens exceeds the maximum of {self.name} ({self.max_tokens}). Shorten it."
            )
        return Query(ids, position, n_shared)


class PretrainedLM(TokenizedLM, ABC):
    """The part of the `LanguageModel` protocol that all families share.

    n_read: n_read["sequences"] counts the sequences evaluated by the network.
    weights_per_token: approximate number of weights used per token.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None, head: Head) -> None:
        self.name, self.revision = name, revision
        self.vocab_size: int = text_config(model.config).vocab_size
        self.max_tokens = longest_sequence(model)
        self.device, self.dtype = device_of(model), model.dtype
        self.tokens = Tokens(tokenizer, self.vocab_size)
        self.is_cased = self.tokens.is_cased
        self.starts_entity, self.continues_entity = self.tokens.starts_entity, self.tokens.continues_entity
        self._network = network_of(model)
        self.weights_per_token = weights_per_token(model)
        # Moving the weights of a split LM to the device costs more than the computation, so batches are not limited.
        self._tokens_at_once = sys.maxsize if is_split(model) else tokens_at_once(self.device, self.weights_per_token)
        self._head = head
        self.is_affine = head.is_affine
        self.n_read = Counter[str]()

    @contextmanager
    def ticking(self, tick: Tick) -> Iterator[None]:
        """Call `tick` before each forward pass of network and head in this context. To cancel, `tick` can raise."""
        parts: tuple[Any, Any] = (self._network, self._head.projection)
        with ExitStack() as hooks:
            for part in parts:
                hooks.callback(part.register_forward_pre_hook(lambda module, inputs: tick()).remove)
            yield

    @torch.inference_mode()
    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        return evaluate(queries, self._forward, self.device, batch_size, tick, self._tokens_at_once)

    @torch.inference_mode()
    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.project(vectors)

    def project(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return (..., V) float32 for `vectors` (..., d'). Same as `logits`, but with gradients."""
        return self._head.projection(vectors.to(self.dtype)).float()

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        return self.tokens.encode_prompt(prompt)

    @abstractmethod
    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query: ...

    @abstractmethod
    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output (B, T, d) for `ids` (B, T)."""

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output (B, d) at `positions` (B,)."""
        return self._hidden(ids)[torch.arange(len(ids), device=ids.device), positions]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.n_read["sequences"] += len(ids)
        return self._head.transform(self._hidden_at(ids, positions))  # (B, d')


def weights_per_token(model: Any) -> int:
    """Return the approximate number of weights used per token. ALBERT applies its layers repeatedly."""
    n_all = sum(weights.numel() for weights in network_of(model).parameters())
    n_inner = n_all - model.get_input_embeddings().weight.numel()
    n_groups = getattr(model.config, "num_hidden_groups", None)
    return int(n_inner * (model.config.num_hidden_layers / n_groups if n_groups else 1))


def longest_sequence(model: Any) -> int:
    """Return the maximum number of tokens. RoBERTa and similar models do not use positions up to the padding index."""
    config = text_config(model.config)
    limits = (getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", "max_seq_len"))
    n_positions = next((limit for limit in limits if isinstance(limit, int) and limit > 0), MAX_TOKENS)
    positions = getattr(getattr(network_of(model), "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    return n_positions - (0 if padding is None else padding + 1)
