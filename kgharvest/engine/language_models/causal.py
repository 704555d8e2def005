"""Causal LMs of any type: an instruction shows the prompt with numbered blanks, the LM fills them line by line.

Fill in the blanks so that the sentence is true.
Sentence: (1) is the capital of (2) .
(1): Paris
(2): France
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, Tick, TokenIds
from kgharvest.engine.language_models.networks.heads import N_TOKENS, head_on_hidden, is_close, network_of
from kgharvest.engine.language_models.networks.split import device_of
from kgharvest.engine.language_models.pretrained import PretrainedLM, TokenizedLM
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel


def instruction(prompt: PromptTemplate) -> str:
    blanks = [f"({number})" for number in range(1, prompt.arity + 1)]
    sentence = " ".join(prompt.fill(blanks).split())
    return f"Fill in the blanks so that the sentence is true.\nSentence: {sentence}\n"


def answer_label(slot: int) -> str:
    """Return what stands before the entity of `slot` in its line."""
    return f"({slot + 1}):"


class LineByLine(TokenizedLM):
    """How causal LMs are asked, wherever they are: `query` asks what follows all that is filled so far.

    An LM with a chat template (one trained on instructions) gets the instruction as its user's message.
    """

    def end_entities_with_lines(self) -> None:
        """Set what ends an entity, which cannot stand in one. Raises UnsupportedModel."""
        self.entity_end = self.tokens.continuing("\n")
        line_breaks = self.tokens.containing("\n")
        if not self.entity_end or not line_breaks[list(self.entity_end)].all():
            raise UnsupportedModel(
                f"The tokenizer of {self.name!r} has no line break; choose a causal LM that writes lines."
            )
        self.starts_entity &= ~line_breaks
        self.continues_entity &= ~line_breaks

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        """Return the instruction with the first label, the other labels, and nothing after the last entity."""
        self.tokens.check_text(prompt.text)
        labels = [answer_label(slot) for slot in range(prompt.arity)]
        first = self.tokens.encode_instruction(instruction(prompt), labels[0])
        return EncodedPrompt((first, *map(self.tokens.continuing, labels[1:]), ()), tuple(range(prompt.arity)))

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        ids = written_so_far(prompt, [length + len(self.entity_end) for length in pattern], filled)
        return self._checked_query(ids, len(ids) - 1)


class CausalLM(LineByLine, PretrainedLM):
    """A causal LM behind the `LanguageModel` protocol."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        head = head_on_hidden(model, lambda ids: read_whole(network_of(model), ids), name)
        super().__init__(model, tokenizer, name, revision, head)
        self._shares_beginnings = shares_beginnings(self._network)
        self.end_entities_with_lines()

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        # In this order, queries about one prompt meet in one batch and share the cache of what they begin with.
        order = sorted(range(len(queries)), key=lambda index: queries[index].ids)
        vectors = super().vectors([queries[index] for index in order], batch_size, tick)
        return torch.empty_like(vectors).index_copy_(0, torch.tensor(order, device=vectors.device), vectors)

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return read_whole(self._network, ids)

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if not self._shares_beginnings:
            return self._hidden(ids)[:, -1]
        return torch.cat([self._last_hidden(rows, n_shared) for rows, n_shared in runs_that_share(ids)])

    def _last_hidden(self, ids: torch.Tensor, n_shared: int) -> torch.Tensor:
        """Return (B, d), the output at the last of `ids` (B, T); the first `n_shared` are the same."""
        return after_shared(self._network, ids, n_shared) if n_shared else self._hidden(ids)[:, -1]


def read_whole(network: Any, ids: torch.Tensor) -> torch.Tensor:
    hidden: torch.Tensor = network(input_ids=ids, use_cache=False).last_hidden_state
    return hidden


@torch.inference_mode()
def shares_beginnings(network: Any) -> bool:
    """Return whether what `network` has read of a text can be kept for several continuations, tried on a small one."""
    ids = torch.arange(N_TOKENS, device=device_of(network)).repeat(2, 1)
    ids[1, -1] = 0
    try:
        hidden = after_shared(network, ids, N_TOKENS - 2)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # it keeps nothing, or keeps it otherwise
        return False
    return is_close(hidden.float(), network(input_ids=ids, use_cache=False).last_hidden_state[:, -1].float())


def after_shared(network: Any, ids: torch.Tensor, n_shared: int) -> torch.Tensor:
    """Return (B, d), the output at the last of `ids` (B, T); the first `n_shared` are the same, read once."""
    cache = network(input_ids=ids[:1, :n_shared], use_cache=True).past_key_values
    cache.batch_repeat_interleave(len(ids))
    hidden: torch.Tensor = network(input_ids=ids[:, n_shared:], past_key_values=cache).last_hidden_state
    return hidden[:, -1]


def written_so_far(prompt: EncodedPrompt, lines: list[int], filled: TokenIds) -> TokenIds:
    """Return the instruction and the lines up to the next token. `lines`: length of each entity with its end."""
    ids: TokenIds = ()
    for label, length in zip(prompt.segments, lines, strict=False):
        ids = ids + label + filled[:length]
        if len(filled) < length:
            break
        filled = filled[length:]
    return ids


def runs_that_share(ids: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """Split sorted `ids` (B, T) into runs of rows that begin alike, with the number of tokens that each run shares.

    Rows that share less than half go apart; a row alone shares nothing.
    """
    length = ids.shape[1]
    shared = (ids[1:] == ids[:-1]).cumprod(dim=1).sum(dim=1).clamp(max=length - 1)  # (B - 1,), with the row before
    ends = [row + 1 for row, n_shared in enumerate(shared.tolist()) if 2 * n_shared < length]
    runs = zip([0, *ends], [*ends, len(ids)], strict=True)
    return [(ids[start:end], int(shared[start : end - 1].min()) if end - start > 1 else 0) for start, end in runs]
