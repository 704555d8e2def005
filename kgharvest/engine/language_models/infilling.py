"""In-filling encoder-decoders: BART. The encoder reads the masked prompt, the decoder reads it one step behind."""

from __future__ import annotations

from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, TokenIds
from kgharvest.engine.language_models.masked import fill_and_mask
from kgharvest.engine.language_models.pretrained import Head, PretrainedLM
from kgharvest.engine.prompts.template import PromptTemplate

MODEL_TYPES = ("bart",)


class InfillingLM(PretrainedLM):
    """An encoder-decoder behind the `LanguageModel` protocol, with one mask per missing token as for masked LMs."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        super().__init__(model, tokenizer, name, revision, bart_head(model))
        self.mask_id = self.tokens.mask_id
        self._start_id: int = model.config.decoder_start_token_id

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        return self.tokens.encode_prompt(prompt)

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        return self._ask(*fill_and_mask(prompt, pattern, filled, self.mask_id))

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        shifted = torch.nn.functional.pad(ids[:, :-1], (1, 0), value=self._start_id)
        hidden: torch.Tensor = self._network(
            input_ids=ids, decoder_input_ids=shifted, use_cache=False
        ).last_hidden_state
        return hidden


def bart_head(model: Any) -> Head:
    return Head(torch.nn.Identity(), lambda vectors: model.lm_head(vectors) + model.final_logits_bias)
