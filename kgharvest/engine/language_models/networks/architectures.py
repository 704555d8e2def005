"""Architectures of masked LMs that are known in detail: their LM head, and their last layer at a single position.

Nothing reads the last layer's output at any other position; in small LMs that is half the work. Only the post-norm
encoders (BERT, RoBERTa, XLM-R, DistilBERT) are split so; all others run their last layer whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import gelu, scaled_dot_product_attention

from kgharvest.engine.language_models.networks.heads import Head, WordProjection

# (hidden (B, T, d), queried (B, 1, d)) -> (B, 1, d): the layer's output where `queried` stands, attending to `hidden`.
LastLayer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bert_head(model: Any) -> Head:
    return Head(model.cls.predictions.transform, model.cls.predictions.decoder)


def roberta_head(model: Any) -> Head:
    head = model.lm_head
    return Head(lambda hidden: head.layer_norm(gelu(head.dense(hidden))), head.decoder)


def distilbert_head(model: Any) -> Head:
    return Head(
        lambda hidden: model.vocab_layer_norm(model.activation(model.vocab_transform(hidden))), model.vocab_projector
    )


def albert_head(model: Any) -> Head:
    head = model.predictions
    return Head(lambda hidden: head.LayerNorm(head.activation(head.dense(hidden))), head.decoder)


def modernbert_head(model: Any) -> Head:
    return Head(model.head, model.decoder)


def deberta_head(model: Any) -> Head:
    """DeBERTa-v3 projects with its word embeddings, older checkpoints with weights of their own."""
    if model.legacy:
        return bert_head(model)
    head, words = model.lm_predictions.lm_head, model.deberta.embeddings.word_embeddings
    return Head(
        lambda hidden: head.LayerNorm(head.transform_act_fn(head.dense(hidden))),
        WordProjection(words, head.bias),
    )


def bert_layer(layer: Any) -> LastLayer:
    projections = layer.attention.self

    def at_queried(hidden: torch.Tensor, queried: torch.Tensor) -> torch.Tensor:
        context = attend(
            projections.query(queried),
            projections.key(hidden),
            projections.value(hidden),
            projections.num_attention_heads,
        )
        output: torch.Tensor = layer.feed_forward_chunk(layer.attention.output(context, queried))
        return output

    return at_queried


def distilbert_layer(layer: Any) -> LastLayer:
    projections = layer.attention

    def at_queried(hidden: torch.Tensor, queried: torch.Tensor) -> torch.Tensor:
        context = attend(
            projections.q_lin(queried), projections.k_lin(hidden), projections.v_lin(hidden), projections.n_heads
        )
        attended = layer.sa_layer_norm(projections.out_lin(context) + queried)
        output: torch.Tensor = layer.output_layer_norm(layer.ffn(attended) + attended)
        return output

    return at_queried


class Architecture(NamedTuple):
    """How to take the LM head from a transformers model, and how to run the last layer at a single position.

    stack: the attribute of the network that holds the layers; it and `last_layer` are None where the last one runs
    whole.
    """

    head: Callable[[Any], Head]
    stack: str | None = None
    last_layer: Callable[[Any], LastLayer] | None = None


# By `config.model_type`. Masked LMs of other types are taken as they are (`heads.without_projection`).
ARCHITECTURES = {
    "bert": Architecture(bert_head, "encoder", bert_layer),
    "roberta": Architecture(roberta_head, "encoder", bert_layer),
    "xlm-roberta": Architecture(roberta_head, "encoder", bert_layer),
    "distilbert": Architecture(distilbert_head, "transformer", distilbert_layer),
    "camembert": Architecture(roberta_head, "encoder", bert_layer),
    "albert": Architecture(albert_head),
    "deberta-v2": Architecture(deberta_head),
    "modernbert": Architecture(modernbert_head),
}


def split_last_layer(model: Any) -> LastLayer | None:
    """Take the last layer off the encoder of `model` and return it, or None for architectures that keep it."""
    architecture = ARCHITECTURES.get(model.config.model_type)
    if architecture is None or architecture.stack is None or architecture.last_layer is None:
        return None
    if getattr(model.config, "is_decoder", False):
        return None
    stack = getattr(model.base_model, architecture.stack)
    last = stack.layer[-1]
    stack.layer = stack.layer[:-1]
    return architecture.last_layer(last)


def layers_below_the_last(network: Any) -> list[torch.nn.Module] | None:
    """Return the layers of a network whose last one is split off, or None for architectures that keep it."""
    architecture = ARCHITECTURES.get(network.config.model_type)
    return list(getattr(network, architecture.stack).layer) if architecture and architecture.stack else None


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return (B, Q, d): multi-head attention of `query` (B, Q, d) to `key` and `value` (B, T, d)."""
    q, k, v = (states.view(*states.shape[:2], n_heads, -1).transpose(1, 2) for states in (query, key, value))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)  # from (B, H, Q, d / H)
