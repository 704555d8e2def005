"""The last encoder layer at one position: nothing reads its output elsewhere; in small LMs that is half the work.

For the post-norm encoders (BERT, RoBERTa, XLM-R, DistilBERT); the others run their last layer whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

# (whole (B, T, d), here (B, 1, d)) -> (B, 1, d): the layer's output for the positions `here`, attending to `whole`.
LastLayer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def bert_layer(layer: Any) -> LastLayer:
    projections = layer.attention.self

    def at(whole: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        context = attend(
            projections.query(here),
            projections.key(whole),
            projections.value(whole),
            projections.num_attention_heads,
        )
        output: torch.Tensor = layer.feed_forward_chunk(layer.attention.output(context, here))
        return output

    return at


def distilbert_layer(layer: Any) -> LastLayer:
    projections = layer.attention

    def at(whole: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        context = attend(
            projections.q_lin(here), projections.k_lin(whole), projections.v_lin(whole), projections.n_heads
        )
        attended = layer.sa_layer_norm(projections.out_lin(context) + here)
        output: torch.Tensor = layer.output_layer_norm(layer.ffn(attended) + attended)
        return output

    return at


# By `config.model_type`: where the layers are, and how the last one runs at one position.
POST_NORM: dict[str, tuple[str, Callable[[Any], LastLayer]]] = {
    "bert": ("encoder", bert_layer),
    "roberta": ("encoder", bert_layer),
    "xlm-roberta": ("encoder", bert_layer),
    "distilbert": ("transformer", distilbert_layer),
}


def split_last_layer(model: Any) -> LastLayer | None:
    """Take the last layer off the encoder of `model` and return it, or None for architectures that keep it."""
    if model.config.model_type not in POST_NORM or getattr(model.config, "is_decoder", False):
        return None
    place, at_one_position = POST_NORM[model.config.model_type]
    stack = getattr(model.base_model, place)
    last = stack.layer[-1]
    stack.layer = stack.layer[:-1]
    return at_one_position(last)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return (B, Q, d): multi-head attention of `query` (B, Q, d) to `key` and `value` (B, T, d)."""
    q, k, v = (states.view(*states.shape[:2], n_heads, -1).transpose(1, 2) for states in (query, key, value))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)  # from (B, H, Q, d / H)
