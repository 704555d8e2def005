"""Soft words: vectors that stand in prompts where words would (Qin & Eisner 2021).

In token sequences soft word i is the token V + i, beyond the vocabulary. So a prompt with soft words is a prompt like
any other, and the search, the scoring and the batching need not know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kgharvest.engine.language_models.networks.architectures import ARCHITECTURES, layers_below_the_last
from kgharvest.engine.types import UnsupportedModel


@dataclass(frozen=True)
class SoftWords:
    """vectors: (S, d), read in place of word embeddings. deltas: (S, L, d) or None, added to what L levels give there.

    Level 0 is the output of the embeddings, after their normalisation; level l is that of layer l. All in float32.
    """

    vectors: torch.Tensor
    deltas: torch.Tensor | None = None

    def to(self, device: torch.device) -> SoftWords:
        return SoftWords(self.vectors.to(device), None if self.deltas is None else self.deltas.to(device))

    def read_by(self, network: Any, ids: torch.Tensor, word_embeddings: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d), what `network` gives for `ids` (B, T), some of which are soft words."""
        soft = ids - len(word_embeddings)  # (B, T), negative for words
        words = word_embeddings[ids.clamp(max=len(word_embeddings) - 1)]  # (B, T, d)
        words = replaced(words, self.vectors, soft)
        with self._perturbing(network, soft):
            hidden: torch.Tensor = network(inputs_embeds=words).last_hidden_state
        return hidden

    @contextmanager
    def _perturbing(self, network: Any, soft: torch.Tensor) -> Iterator[None]:
        """Let `network` add the deltas while it reads sequences whose soft words are `soft` (B, T)."""
        with ExitStack() as hooks:
            if self.deltas is not None:
                modules = perturbed_modules(network, "this LM")
                for level, module in enumerate(modules[: self.deltas.shape[1]]):
                    handle = module.register_forward_hook(adding(self.deltas[:, level], soft))
                    hooks.callback(handle.remove)
            yield


def replaced(words: torch.Tensor, vectors: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
    """Return `words` (B, T, d) with the soft words' `vectors` (S, d) where `soft` (B, T) is not negative."""
    is_soft = soft >= 0
    return words.masked_scatter(is_soft[..., None], vectors[soft[is_soft]].to(words.dtype))


def adding(delta: torch.Tensor, soft: torch.Tensor) -> Callable[..., Any]:
    """Return a forward hook that adds `delta` (S, d) to the soft words of a module's output."""
    is_soft = soft >= 0

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        hidden = output if isinstance(output, torch.Tensor) else output[0]
        deltas = torch.zeros_like(hidden).masked_scatter(is_soft[..., None], delta[soft[is_soft]].to(hidden.dtype))
        return hidden + deltas if isinstance(output, torch.Tensor) else (hidden + deltas, *output[1:])

    return hook


def perturbed_modules(network: Any, name: str) -> list[nn.Module]:
    """Return the modules of which deltas perturb the output. Raises UnsupportedModel.

    The last layer is not among them: only the mask is read of what it gives.
    """
    layers = layers_below_the_last(network)
    if layers is None:
        supported = ", ".join(name for name, architecture in ARCHITECTURES.items() if architecture.stack)
        raise UnsupportedModel(
            f"Soft prompts in all layers work with {supported}, and {name} is {network.config.model_type}; "
            "use soft words in the first layer only."
        )
    return [network.embeddings, *layers]
