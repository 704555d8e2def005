"""LM heads of supported masked LM architectures, and evaluation of their last layer at a single position.

Only the queried position of the last layer's output is used; in small LMs, this saves half of the work. Supported for
post-norm encoders (BERT, RoBERTa, XLM-R, DistilBERT). Other architectures run their last layer in full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import gelu, scaled_dot_product_attention

from kgharvest.engine.language_models.networks.heads import Head, WordProjection

# (hidden (B, T, d), queried (B, 1, d)) -> (B, 1, d): the layer's output at `queried`, attending to `hidden`.
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
    """Return the DeBERTa head. DeBERTa-v3 projects with its word embeddings, older checkpoints with other weights."""
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
    """Access to the LM head of a transformers model and to its last layer at a single position.

    stack: attribute of the network that contains the layers. It and `last_layer` are None if the last layer runs in
        full.
    """

    head: Callable[[Any], Head]
    stack: str | None = None
    last_layer: Callable[[Any], LastLayer] | None = None


# By `config.model_type`. Other masked LMs use `heads.without_projection`.
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
    """Remove and return the last layer of the encoder of `model`, or return None for unsupported architectures."""
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
    """Return the layers of a network without its last layer, or None for unsupported architectures."""
    architecture = ARCHITECTURES.get(network.config.model_type)
    return list(getattr(network, architecture.stack).layer) if architecture and architecture.stack else None


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return (B, Q, d): multi-head attention of `query` (B, Q, d) to `key` and `value` (B, T, d)."""
    q, k, v = (states.view(*states.shape[:2], n_heads, -1).transpose(1, 2) for states in (query, key, value))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)  # from (B, H, Q, d / H)
