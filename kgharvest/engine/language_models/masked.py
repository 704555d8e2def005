"""Masked LMs: any LM with a mask token (BERT, RoBERTa, DeBERTa, ELECTRA, ...). Also supports soft words in prompts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, TokenIds
from kgharvest.engine.language_models.networks.heads import (
    ARCHITECTURES,
    Head,
    is_split,
    network_of,
    split_last_layer,
    without_projection,
)
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.types import UnsupportedModel


class MaskFillingLM(PretrainedLM):
    """An LM that reads prompts with one mask per missing token. Prompts can contain soft words."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None, head: Head) -> None:
        super().__init__(model, tokenizer, name, revision, head)
        self.mask_id = self.tokens.mask_id
        self._is_split = is_split(model)
        self._soft_words: SoftWords | None = None

    @property
    def word_embeddings(self) -> torch.Tensor:
        """(V, d): input vector of every token. Raises UnsupportedModel if the LM is split over devices."""
        if self._is_split:
            raise UnsupportedModel(
                f"{self.name} is split over several devices. Split LMs do not support learned prompts. Use one device "
                "or a setting that does not learn prompts."
            )
        embeddings = self._network.get_input_embeddings()
        weights: torch.Tensor = embeddings.weight[: self.vocab_size]
        scale = getattr(embeddings, "embed_scale", 1.0)  # mBART
        return weights if scale == 1 else weights * scale

    @property
    def n_levels(self) -> int:
        """Number of levels at which soft words can be perturbed: the embeddings and every layer but the last."""
        return len(perturbed_modules(self._network, self.name))

    def with_soft_words(self, soft_words: SoftWords) -> Self:
        """Return a copy of the LM that reads token V + i as soft word i. The network is shared.

        Raises UnsupportedModel for deltas if the LM does not support them.
        """
        if soft_words.deltas is not None:
            perturbed_modules(self._network, self.name)
        clone = copy(self)
        clone._soft_words = soft_words.to(self.device)
        return clone

    def logits_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, V) at the `positions` (B,) of `ids` (B, T).

        Same as `logits(vectors(...))`, but with gradients. They reach the soft words; the LM's weights are frozen.
        """
        return self.project(self._forward(ids, positions))

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        return self._checked_query(*fill_and_mask(prompt, pattern, filled, self.mask_id))

    def _embedded(self, ids: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d): the input vectors of `ids` (B, T). vectors: (S, d), those of the soft words."""
        soft = ids - self.vocab_size  # (B, T): number of the soft word, negative for other words
        is_soft = soft >= 0
        words: torch.Tensor = self._network.get_input_embeddings()(ids.clamp(max=self.vocab_size - 1))  # (B, T, d)
        return words.masked_scatter(is_soft[..., None], vectors[soft[is_soft]].to(words.dtype))


class MaskedLM(MaskFillingLM):
    """A masked LM behind the `LanguageModel` protocol."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        architecture = None if is_split(model) else ARCHITECTURES.get(model.config.model_type)
        if architecture:
            network, head = network_of(model), architecture.head(model)
        else:
            network, head = without_projection(model, name)
        super().__init__(model, tokenizer, name, revision, head)
        self._network = network
        self._last_layer = split_last_layer(model) if architecture else None

    @property
    def hidden_size(self) -> int:
        """Size of the network's output, which can differ from the size of the word embeddings."""
        config = self._network.config
        return int(config.hidden_size if config.model_type in ARCHITECTURES else self.output_embeddings.shape[1])

    @property
    def output_embeddings(self) -> torch.Tensor:
        """(V, d'): the matrix that maps `vectors` to logits, without the bias."""
        projection: Any = self._head.projection
        weights: torch.Tensor = projection.weight
        return weights[: self.vocab_size]

    def vectors_everywhere(self, words: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d'), the input of `project`, for `words` (B, T, d) in place of word embeddings.

        Gradients reach `words`.
        """
        vectors: torch.Tensor = self._head.transform(self.hidden_everywhere(words))
        return vectors

    def hidden_everywhere(self, words: torch.Tensor) -> torch.Tensor:
        """Return (B, T, hidden_size), the output of all layers for `words` (B, T, d) in place of word embeddings."""
        self.n_read["sequences"] += len(words)
        hidden: torch.Tensor = self._network(inputs_embeds=words.to(self.dtype)).last_hidden_state
        return hidden if self._last_layer is None else self._last_layer(hidden, hidden)

    def trainable_copy(self) -> Self:
        """Return a copy with trainable float32 weights. Word and output embeddings stay tied if they are tied.

        Formats with lower precision would lose the small training steps. Raises UnsupportedModel for quantized weights.
        """
        if not all(weights.is_floating_point() for weights in self.parameters()):
            raise UnsupportedModel(
                f"The weights of {self.name} are quantized and cannot be trained. Use a float dtype or omit the "
                "method that trains them."
            )
        clone = copy(self)
        clone._network, clone._last_layer, clone._head = deepcopy((self._network, self._last_layer, self._head))
        clone.dtype = torch.float32
        for module in clone._modules():
            module.float().requires_grad_()
        return clone

    def trainable_encoder(self) -> nn.Module:
        """Return a trainable float32 copy of all layers, with `inputs_embeds` as input and without word embeddings.

        Raises UnsupportedModel for quantized weights.
        """
        clone = self.trainable_copy()
        encoder: nn.Module = clone._network
        del clone._network.get_input_embeddings().weight
        if clone._last_layer is not None:
            stack = ARCHITECTURES[clone._network.config.model_type].stack
            getattr(encoder, stack or "").layer.append(clone._last_layer.args[0])
        return encoder

    def parameters(self) -> list[nn.Parameter]:
        """Return the distinct weights of the network and of the head."""
        return list(dict.fromkeys(weights for module in self._modules() for weights in module.parameters()))

    def _modules(self) -> list[Any]:
        last_layer = () if self._last_layer is None else self._last_layer.args
        return [self._network, *last_layer, self._head.transform, self._head.projection]

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor
        if self._soft_words is None:
            hidden = self._network(input_ids=ids).last_hidden_state
            return hidden
        words, deltas = self._embedded(ids, self._soft_words.vectors), self._soft_words.deltas
        with ExitStack() as hooks:
            if deltas is not None:
                for level, module in enumerate(perturbed_modules(self._network, "this LM")[: deltas.shape[1]]):
                    hooks.callback(module.register_forward_hook(adding(deltas[:, level], ids - self.vocab_size)).remove)
            hidden = self._network(inputs_embeds=words).last_hidden_state
        return hidden

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self._last_layer is None:
            return super()._hidden_at(ids, positions)
        hidden = self._hidden(ids)  # (B, T, d), all layers but the last
        queried = hidden[torch.arange(len(ids), device=ids.device), positions, None]  # (B, 1, d)
        return self._last_layer(hidden, queried)[:, 0]


def fill_and_mask(prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds, mask_id: int) -> tuple[TokenIds, int]:
    """Return the prompt's ids with `filled` inserted and masks elsewhere, and the position of the next token."""
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


# Soft words: vectors in place of words in prompts (Qin & Eisner 2021). In token sequences, soft word i is token V + i,
# beyond the vocabulary. Search, scoring, and batching therefore need no special cases for soft words.


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


def adding(delta: torch.Tensor, soft: torch.Tensor) -> Callable[..., Any]:
    """Return a forward hook that adds `delta` (S, d) to a module's output at the soft words."""
    is_soft = soft >= 0

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        hidden = output if isinstance(output, torch.Tensor) else output[0]
        deltas = torch.zeros_like(hidden).masked_scatter(is_soft[..., None], delta[soft[is_soft]].to(hidden.dtype))
        return hidden + deltas if isinstance(output, torch.Tensor) else (hidden + deltas, *output[1:])

    return hook


def perturbed_modules(network: Any, name: str) -> list[nn.Module]:
    """Return the modules whose outputs can be perturbed by deltas. Raises UnsupportedModel.

    `network` does not contain the last layer, which is evaluated only at the mask.
    """
    architecture = ARCHITECTURES.get(network.config.model_type)
    if architecture is None or architecture.stack is None:
        supported = ", ".join(name for name, architecture in ARCHITECTURES.items() if architecture.stack)
        raise UnsupportedModel(
            f"Soft prompts in all layers require {supported}, but {name} is {network.config.model_type}. "
            "Use soft words in the first layer only."
        )
    return [network.embeddings, *getattr(network, architecture.stack).layer]
