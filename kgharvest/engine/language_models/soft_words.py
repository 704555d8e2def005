"""Soft words: vectors in place of words in prompts (Qin & Eisner 2021).

In token sequences, soft word i is token V + i, beyond the vocabulary. Search, scoring, and batching therefore need no
special cases for soft words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kgharvest.engine.language_models.networks.heads import ARCHITECTURES, layers_below_the_last
from kgharvest.engine.types import UnsupportedModel


@dataclass(frozen=True)
class SoftWords:
    """Soft words, in float32.

    vectors: (S, d), used in place of word embeddings.
    deltas: (S, L, d) or None, added to the output of L levels. Level 0 is the normalized output of the embeddings;
        level l is the output of layer l.
    """

    vectors: torch.Tensor
    deltas: torch.Tensor | None = None

    def to(self, device: torch.device) -> SoftWords:
        return SoftWords(self.vectors.to(device), None if self.deltas is None else self.deltas.to(device))

    def read_by(self, network: Any, ids: torch.Tensor, word_embeddings: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d), the output of `network` for `ids` (B, T) with soft words."""
        soft = ids - len(word_embeddings)  # (B, T), negative for words
        words = word_embeddings[ids.clamp(max=len(word_embeddings) - 1)]  # (B, T, d)
        words = replaced(words, self.vectors, soft)
        with self._perturbing(network, soft):
            hidden: torch.Tensor = network(inputs_embeds=words).last_hidden_state
        return hidden

    @contextmanager
    def _perturbing(self, network: Any, soft: torch.Tensor) -> Iterator[None]:
        """Add the deltas in the forward passes of `network` within this context. soft: (B, T) indices of soft words."""
        with ExitStack() as hooks:
            if self.deltas is not None:
                modules = perturbed_modules(network, "this LM")
                for level, module in enumerate(modules[: self.deltas.shape[1]]):
                    handle = module.register_forward_hook(adding(self.deltas[:, level], soft))
                    hooks.callback(handle.remove)
            yield


def replaced(words: torch.Tensor, vectors: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
    """Return `words` (B, T, d) with `vectors` (S, d) at the positions with non-negative `soft` (B, T)."""
    is_soft = soft >= 0
    return words.masked_scatter(is_soft[..., None], vectors[soft[is_soft]].to(words.dtype))


def adding(delta: torch.Tensor, soft: torch.Tensor) -> Callable[..., Any]:
    """Return a forward hook that adds `delta` (S, d) to a module's output at the soft words."""
    is_soft = soft >= 0

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        hidden = output if isinstance(output, torch.Tensor) else output[0]
        deltas = torch.zeros_like(hidden).masked_scatter(is_soft[..., None], delta[soft[is_soft]].to(hidden.dtype))
        return hidden + deltas if isinstance(output, torch.Tensor) else (hidden + deltas, *output[1:])

    return hook


def perturbed_modules(network: Any, name: str) -> list[nn.Module]:
    """Return the modules with outputs that deltas can perturb. Raises UnsupportedModel.

    Excludes the last layer because only its output at the mask is used.
    """
    layers = layers_below_the_last(network)
    if layers is None:
        supported = ", ".join(name for name, architecture in ARCHITECTURES.items() if architecture.stack)
        raise UnsupportedModel(
            f"Soft prompts in all layers require {supported}, but {name} is {network.config.model_type}. "
            "Use soft words in the first layer only."
        )
    return [network.embeddings, *layers]
