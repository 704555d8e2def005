"""Masked LMs: BERT, RoBERTa, DistilBERT, ALBERT, ModernBERT, XLM-R."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, Tick, TokenIds
from kgharvest.engine.language_models.batching import evaluate
from kgharvest.engine.language_models.tokens import Tokens
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

Transform = Callable[[torch.Tensor], torch.Tensor]  # (B, d) -> (B, d), all of the LM head but its projection


def bert_head(model: Any) -> tuple[Transform, nn.Module]:
    return model.cls.predictions.transform, model.cls.predictions.decoder


def roberta_head(model: Any) -> tuple[Transform, nn.Module]:
    head = model.lm_head
    return lambda hidden: head.layer_norm(nn.functional.gelu(head.dense(hidden))), head.decoder


def distilbert_head(model: Any) -> tuple[Transform, nn.Module]:
    return (
        lambda hidden: model.vocab_layer_norm(model.activation(model.vocab_transform(hidden))),
        model.vocab_projector,
    )


def albert_head(model: Any) -> tuple[Transform, nn.Module]:
    head = model.predictions
    return lambda hidden: head.LayerNorm(head.activation(head.dense(hidden))), head.decoder


def modernbert_head(model: Any) -> tuple[Transform, nn.Module]:
    return model.head, model.decoder


# By `config.model_type`: the LM head in two parts, so that it runs at the mask only and projects averaged vectors.
HEADS: dict[str, Callable[[Any], tuple[Transform, nn.Module]]] = {
    "bert": bert_head,
    "roberta": roberta_head,
    "xlm-roberta": roberta_head,
    "distilbert": distilbert_head,
    "albert": albert_head,
    "modernbert": modernbert_head,
}


class MaskedLM:
    """A masked LM behind the `LanguageModel` protocol."""

    entity_end: TokenIds = ()

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        self.name, self.revision = name, revision
        self.vocab_size = model.config.vocab_size
        self.max_tokens = longest_sequence(model.config)
        self.device, self.dtype = model.device, model.dtype
        self.tokens = Tokens(tokenizer, self.vocab_size)
        self.is_cased = self.tokens.is_cased
        self.starts_entity, self.continues_entity = self.tokens.starts_entity, self.tokens.continues_entity
        self.mask_id: int = tokenizer.mask_token_id
        self._encoder = model.base_model
        self._transform, self._projection = HEADS[model.config.model_type](model)

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        return self.tokens.encode_prompt(prompt, self.tokens.prefix, self.tokens.suffix)

    def encode_entity(self, entity: str) -> TokenIds:
        return self.tokens.encode_entity(entity)

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        return self.tokens.canonical_texts(sequences)

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        ids, position = fill_and_mask(prompt, pattern, filled, self.mask_id)
        if len(ids) > self.max_tokens:
            raise BadPrompt(
                f"A prompt of {len(ids)} tokens exceeds the {self.max_tokens} that {self.name} takes; shorten it."
            )
        return Query(ids, position)

    @torch.inference_mode()
    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        return evaluate(queries, self._forward, self.device, batch_size, tick)

    @torch.inference_mode()
    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        return self._projection(vectors.to(self.dtype)).float()

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        hidden = self._encoder(input_ids=ids).last_hidden_state  # (B, T, d)
        return self._transform(hidden[torch.arange(len(ids), device=ids.device), positions])  # (B, d)


def fill_and_mask(prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds, mask_id: int) -> tuple[TokenIds, int]:
    """Return the prompt's ids with `filled` in place, masks elsewhere, and the position of the first mask to fill."""
    tokens = filled + (mask_id,) * (sum(pattern) - len(filled))
    starts = [sum(pattern[:slot]) for slot in range(len(pattern))]
    ids = prompt.segments[0]
    position = -1
    for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
        start = starts[slot]
        if start <= len(filled) < start + pattern[slot]:
            position = len(ids) + len(filled) - start
        ids = ids + tokens[start : start + pattern[slot]] + segment
    return ids, position


def longest_sequence(config: Any) -> int:
    """Return how many tokens the LM takes. RoBERTa numbers positions from pad_token_id + 1."""
    offset = config.pad_token_id + 1 if config.model_type in {"roberta", "xlm-roberta"} else 0
    return int(config.max_position_embeddings) - offset
