"""Causal LMs of any type: an instruction contains the prompt with numbered blanks, and the LM fills them line by line.

Fill in the blanks so that the sentence is true.
Sentence: (1) is the capital of (2) .
(1): Paris
(2): France
"""

from collections.abc import Sequence
from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, Tick, TokenIds
from kgharvest.engine.language_models.networks.heads import N_TOKENS, device_of, head_on_hidden, is_close, network_of
from kgharvest.engine.language_models.pretrained import PretrainedLM, TokenizedLM
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel


def instruction(prompt: PromptTemplate) -> str:
    blanks = [f"({number})" for number in range(1, prompt.arity + 1)]
    sentence = " ".join(prompt.fill(blanks).split())
    return f"Fill in the blanks so that the sentence is true.\nSentence: {sentence}\n"


class LineByLine(TokenizedLM):
    """Query format of causal LMs, local or behind a server: `query` asks for the token after all filled tokens.

    If the LM has a chat template (instruction-tuned LMs), the instruction is the user message.
    """

    def end_entities_with_lines(self) -> None:
        """End entities with line breaks and exclude line breaks from entities. Raises UnsupportedModel."""
        self.entity_end = self.tokens.continuing("\n")
        line_breaks = self.tokens.containing("\n")
        if not self.entity_end or not line_breaks[list(self.entity_end)].all():
            raise UnsupportedModel(
                f"The tokenizer of {self.name!r} has no line break. Use a causal LM with line breaks."
            )
        self.starts_entity &= ~line_breaks
        self.continues_entity &= ~line_breaks

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        """Return the instruction with the first label, the other labels, and an empty last segment."""
        self.tokens.check_text(prompt.text)
        labels = [f"({number}):" for number in range(1, prompt.arity + 1)]
        first = self.tokens.encode_instruction(instruction(prompt), labels[0])
        return EncodedPrompt((first, *map(self.tokens.continuing, labels[1:]), ()), tuple(range(prompt.arity)))

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        ids: TokenIds = ()
        for label, length in zip(prompt.segments, pattern, strict=False):
            n_line = length + len(self.entity_end)
            ids = ids + label + filled[:n_line]
            if len(filled) < n_line:
                break
            filled = filled[n_line:]
        return self._checked_query(ids, len(ids) - 1)


class CausalLM(LineByLine, PretrainedLM):
    """A causal LM behind the `LanguageModel` protocol."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        head = head_on_hidden(model, lambda ids: read_whole(network_of(model), ids), name)
        super().__init__(model, tokenizer, name, revision, head)
        self._shares_beginnings = shares_beginnings(self._network)
        self.end_entities_with_lines()

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        # Sorting puts queries about one prompt into one batch, so they share the cache of their common prefix.
        order = sorted(range(len(queries)), key=lambda index: queries[index].ids)
        vectors = super().vectors([queries[index] for index in order], batch_size, tick)
        return torch.empty_like(vectors).index_copy_(0, torch.tensor(order, device=vectors.device), vectors)

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return read_whole(self._network, ids)

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if not self._shares_beginnings:
            return self._hidden(ids)[:, -1]
        parts = [
            after_shared(self._network, rows, n_shared) if n_shared else self._hidden(rows)[:, -1]
            for rows, n_shared in runs_that_share(ids)
        ]
        return torch.cat(parts)


def read_whole(network: Any, ids: torch.Tensor) -> torch.Tensor:
    hidden: torch.Tensor = network(input_ids=ids, use_cache=False).last_hidden_state
    return hidden


@torch.inference_mode()
def shares_beginnings(network: Any) -> bool:
    """Return whether the cache of a common prefix can be reused for several continuations. Tested with a short text."""
    ids = torch.arange(N_TOKENS, device=device_of(network)).repeat(2, 1)
    ids[1, -1] = 0
    try:
        hidden = after_shared(network, ids, N_TOKENS - 2)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # no cache, or another cache interface
        return False
    return is_close(hidden.float(), network(input_ids=ids, use_cache=False).last_hidden_state[:, -1].float())


def after_shared(network: Any, ids: torch.Tensor, n_shared: int) -> torch.Tensor:
    """Return (B, d), the output at the last position of `ids` (B, T). Evaluates the `n_shared` common tokens once."""
    cache = network(input_ids=ids[:1, :n_shared], use_cache=True).past_key_values
    cache.batch_repeat_interleave(len(ids))
    hidden: torch.Tensor = network(input_ids=ids[:, n_shared:], past_key_values=cache).last_hidden_state
    return hidden[:, -1]


def runs_that_share(ids: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """Split sorted `ids` (B, T) into runs of rows with a common prefix. Return each run with the prefix length.

    Runs end between rows that share less than half of their tokens. The prefix length of a single row is 0.
    """
    length = ids.shape[1]
    # Length of the prefix that each row shares with the previous row.
    shared = (ids[1:] == ids[:-1]).cumprod(dim=1).sum(dim=1).clamp(max=length - 1)  # (B - 1,)
    ends = [row + 1 for row, n_shared in enumerate(shared.tolist()) if 2 * n_shared < length]
    runs = zip([0, *ends], [*ends, len(ids)], strict=True)
    return [(ids[start:end], int(shared[start : end - 1].min()) if end - start > 1 else 0) for start, end in runs]
