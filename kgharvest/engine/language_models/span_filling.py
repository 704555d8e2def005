"""Span-filling encoder-decoders (T5, mT5, UL2): sentinels mark the blanks, and the decoder writes their contents.

Encoder: <extra_id_0> is the capital of <extra_id_1> .      Encoder: Paris is the capital of <extra_id_0> .
Decoder: <extra_id_0> Paris <extra_id_1>                    Decoder: <extra_id_0> France <extra_id_1>

The current blank has the first sentinel, as in pre-training. Later blanks have the following sentinels in query order.
An entity ends with the next sentinel, which counts towards its probability.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, TokenIds
from kgharvest.engine.language_models.networks.heads import head_on_hidden
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinels_in(vocabulary: Mapping[str, int]) -> list[int]:
    """Return the ids of the sentinels 0, 1, ..., up to the first gap."""
    numbered = {int(match[1]): index for token, index in vocabulary.items() if (match := SENTINEL.fullmatch(token))}
    ids: list[int] = []
    while len(ids) in numbered:
        ids.append(numbered[len(ids)])
    return ids


class SpanFillingLM(PretrainedLM):
    """An encoder-decoder with sentinels behind the `LanguageModel` protocol.

    The ids of a query are the encoder's ids followed by the decoder's. Its position is the start of the decoder's ids.
    The answer is the next token of the decoder.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        self._encoder, self._decoder = model.get_encoder(), model.get_decoder()
        head = head_on_hidden(model, lambda ids: self._decoded(ids, self._encoded(ids)), name)
        super().__init__(model, tokenizer, name, revision, head)
        self._sentinels = sentinels_in(tokenizer.get_vocab())
        self._start_id: int = model.config.decoder_start_token_id
        self.entity_end = (self._sentinels[1],)

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        if prompt.arity > len(self._sentinels):
            raise BadPrompt(f"{self.name} fills in at most {len(self._sentinels)} blanks. Use fewer slots.")
        return self.tokens.encode_prompt(prompt)

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        entities, partial = entities_so_far(pattern, filled, len(self.entity_end))
        blanks = [(sentinel,) for sentinel in self._sentinels[: len(pattern) - len(entities)]]
        contents = [*entities, *blanks]
        ids = prompt.segments[0]
        for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
            ids = ids + contents[slot] + segment
        return self._checked_query((*ids, self._start_id, self._sentinels[0], *partial), len(ids))

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return self._decoded(ids, self._encoded(ids))

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows_of = {begin: (positions == begin).nonzero()[:, 0] for begin in set(positions.tolist())}
        parts = [self._next_hidden(ids[rows], begin) for begin, rows in rows_of.items()]
        hidden = torch.empty(len(ids), parts[0].shape[1], dtype=parts[0].dtype, device=ids.device)
        return hidden.index_copy_(0, torch.cat(list(rows_of.values())), torch.cat(parts))

    def _next_hidden(self, ids: torch.Tensor, begin: int) -> torch.Tensor:
        """Return (B, d), the decoder's last output for `ids` (B, T) from `begin`. Encodes each distinct text once."""
        texts, text_of_row = torch.unique(ids[:, :begin], dim=0, return_inverse=True)
        return self._decoded(ids[:, begin:], self._encoded(texts)[text_of_row])[:, -1]

    def _encoded(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._encoder(input_ids=ids).last_hidden_state
        return hidden

    def _decoded(self, ids: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._decoder(
            input_ids=ids, encoder_hidden_states=encoded, use_cache=False
        ).last_hidden_state
        return hidden


def entities_so_far(pattern: Pattern, filled: TokenIds, n_end: int) -> tuple[Sequence[TokenIds], TokenIds]:
    """Return the complete entities of `filled`, without their ends, and the tokens of the partial entity."""
    entities: list[TokenIds] = []
    for length in pattern:
        if len(filled) < length + n_end:
            break
        entities.append(filled[:length])
        filled = filled[length + n_end :]
    return entities, filled
