"""Masked LMs: those with a mask token, of any type (BERT, RoBERTa, DeBERTa, ELECTRA, ...); soft words in prompts."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any, Self

import torch
from torch import nn

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, TokenIds
from kgharvest.engine.language_models.networks.architectures import ARCHITECTURES, split_last_layer
from kgharvest.engine.language_models.networks.heads import network_of, without_projection
from kgharvest.engine.language_models.networks.split import is_split
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.language_models.soft_words import SoftWords, perturbed_modules
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel


class MaskedLM(PretrainedLM):
    """A masked LM behind the `LanguageModel` protocol."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        self._is_split = is_split(model)
        known = None if self._is_split else ARCHITECTURES.get(model.config.model_type)
        network, head = (network_of(model), known.head(model)) if known else without_projection(model, name)
        super().__init__(model, tokenizer, name, revision, head)
        self._network = network
        self.mask_id = self.tokens.mask_id
        self._last_layer = split_last_layer(model) if known else None
        self._soft_words: SoftWords | None = None

    @property
    def word_embeddings(self) -> torch.Tensor:
        """(V, d): the vector of every token, as the network reads it. Raises UnsupportedModel if it is split."""
        if self._is_split:
            raise UnsupportedModel(
                f"{self.name} is on several devices, where no prompts are learned; use one device, or a setting that "
                "learns none."
            )
        weights: torch.Tensor = self._network.get_input_embeddings().weight
        return weights[: self.vocab_size]

    @property
    def hidden_size(self) -> int:
        """The width of what the network gives; that of the word embeddings may be another."""
        is_known = self._network.config.model_type in ARCHITECTURES
        return int(self._network.config.hidden_size if is_known else self.output_embeddings.shape[1])

    @property
    def output_embeddings(self) -> torch.Tensor:
        """(V, d'): what the vectors of `vectors` are multiplied with, bias apart, to give a token's logit."""
        projection: Any = self._head.projection
        weights: torch.Tensor = projection.weight
        return weights[: self.vocab_size]

    @property
    def n_levels(self) -> int:
        """How many levels of soft words can be perturbed: the embeddings and the output of every layer but the last."""
        return len(perturbed_modules(self._network, self.name))

    def with_soft_words(self, soft_words: SoftWords) -> Self:
        """Return the same LM, in whose prompts token V + i is soft word i. The network is shared."""
        clone = copy(self)
        clone._soft_words = soft_words.to(self.device)
        return clone

    def logits_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return (B, V) for the `positions` (B,) of `ids` (B, T): what `logits(vectors(...))` is, with gradients.

        Gradients reach the soft words; the LM's own weights are frozen.
        """
        return self.project(self._forward(ids, positions))

    def vectors_everywhere(self, words: torch.Tensor) -> torch.Tensor:
        """Return (B, T, d'), what `project` takes, for vectors (B, T, d) read in place of word embeddings.

        Gradients reach those vectors.
        """
        self.n_read["sequences"] += len(words)
        hidden = self._network(inputs_embeds=words.to(self.dtype)).last_hidden_state
        if self._last_layer is not None:
            hidden = self._last_layer(hidden, hidden)
        vectors: torch.Tensor = self._head.transform(hidden)
        return vectors

    def trainable_encoder(self) -> nn.Module:
        """Return a copy in float32 of the layers below the last one, which reads `inputs_embeds` and may be trained.

        Steps as small as training takes are lost in formats with fewer digits. Raises UnsupportedModel where weights
        are quantized.
        """
        if not all(weights.is_floating_point() for weights in self._network.parameters()):
            raise UnsupportedModel(
                f"The weights of {self.name} are quantized, and those of a copy of it are to be trained; use a float "
                "dtype, or leave that method out."
            )
        encoder: nn.Module = deepcopy(self._network).float().requires_grad_()
        return encoder

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        return self.tokens.encode_prompt(prompt)

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        return self._checked_query(*fill_and_mask(prompt, pattern, filled, self.mask_id))

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        if self._soft_words is None:
            hidden: torch.Tensor = self._network(input_ids=ids).last_hidden_state
            return hidden
        return self._soft_words.read_by(self._network, ids, self.word_embeddings)

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self._last_layer is None:
            return super()._hidden_at(ids, positions)
        whole = self._hidden(ids)  # (B, T, d), all layers but the last
        here = whole[torch.arange(len(ids), device=ids.device), positions, None]  # (B, 1, d)
        return self._last_layer(whole, here)[:, 0]


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
