"""Next-token ranking for candidates under a relation's weighted prompts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Pattern, Tick, TokenIds
from kgharvest.engine.language_models.batching import CPU_OPERATIONS_AT_ONCE, in_halves
from kgharvest.engine.types import BrokenModel

TOP_K = 64  # tokens in the first ranking; each extension quadruples the number
LOGITS_AT_ONCE = 1 << 25  # 128 MiB
CPU_LOGITS_AT_ONCE = 1 << 20  # 4 MiB
# CPUs gain nothing from larger batches, and prefetched queries are wasted when an entity reaches its maximum number of
# repeats.
CPU_SEQUENCES_AT_ONCE = 48

# Token, cost: -log p over the whole vocabulary, in nats. For a search by consistency also log p in each prompt.
RankedToken = tuple[int, float] | tuple[int, float, NDArray[np.float64]]
# Pseudo-token for all tokens that a server did not list. Its cost is a lower bound on the costs of these tokens. Tokens
# after it in the ranking are not proved to be the next best.
UNNAMED = -1


class Step(NamedTuple):
    """Constraints on the next token of a candidate.

    n_before: number of preceding tokens of the same entity.
    forced: the required token of `entity_end`, which terminates every entity of this LM; otherwise None.
    """

    starts_entity: bool
    n_before: int
    ends_entity: bool
    forced: int | None = None


def layout(pattern: Pattern, entity_end: TokenIds) -> list[Step]:
    """Return the steps that fill `pattern`: the tokens of each entity, followed by the entity end."""
    steps: list[Step] = []
    for n_tokens in pattern:
        steps += [Step(n == 0, n, n == n_tokens - 1) for n in range(n_tokens)]
        steps += [Step(False, 0, False, token) for token in entity_end]
    return steps


class State(NamedTuple):
    """An LM query: the next token for `step` after `filled`."""

    pattern: Pattern
    filled: TokenIds
    step: Step


class Ranked(NamedTuple):
    """The best tokens of a state and their costs, best first. Arrays need 1/8 of the memory of a list of pairs."""

    tokens: array[int]
    costs: array[float]


class RankedByPrompt(NamedTuple):
    """The best tokens of a state by mean log-probability, their costs, and their log-probabilities (k, P)."""

    tokens: array[int]
    costs: array[float]
    logprobs: NDArray[np.float64]


class TokenRanker:
    """Ranking of next tokens by an LM with weighted prompts. The weights sum to 1.

    is_mixture: average the prompts' probabilities instead of their log-probabilities.
    """

    def __init__(
        self,
        lm: LanguageModel,
        prompts: Sequence[EncodedPrompt],
        weights: Sequence[float],
        batch_size: int,
        is_mixture: bool = False,
    ) -> None:
        self.lm = lm
        self.arity = len(prompts[0].slots)
        self.n_states = 0
        self.vector_bytes = 0  # per state; set by the first call of rank
        self.states_at_once = batch_size  # recommended batch; rank reduces it if the LM runs on a CPU
        self._prompts, self._batch_size, self._is_mixture = prompts, batch_size, is_mixture
        self._averages_vectors = lm.is_affine and not is_mixture
        self._weights = torch.tensor(weights, dtype=torch.float32)  # (P,)
        self._starts = torch.from_numpy(lm.starts_entity)  # (V,)
        self._continues = torch.from_numpy(lm.continues_entity)  # (V,)

    def rank(self, states: Sequence[State], tick: Tick) -> list[Iterator[RankedToken]]:
        """Return the admissible tokens of each state, best first, as lazy iterators."""
        self.n_states += len(states)
        vectors = self._vectors(states, tick)
        self.vector_bytes = vectors[0].numel() * vectors.element_size()
        if vectors.device.type == "cpu":
            self.states_at_once = min(self._batch_size, ceil(CPU_SEQUENCES_AT_ONCE / len(self._prompts)))
        steps = [state.step for state in states]
        best = self._best(vectors, steps, TOP_K)
        # A view of one row would keep the vectors of the whole batch alive.
        return [
            self._all_ranked(step, row.clone(), ranked) for step, row, ranked in zip(steps, vectors, best, strict=True)
        ]

    def _vectors(self, states: Sequence[State], tick: Tick) -> torch.Tensor:
        """Return (S, K, d): the vectors to project for each state, with K = 1 or one vector per prompt.

        If the LM head is affine, the projection of the mean vector equals the mean of the prompts' logits (K = 1).
        """
        queries = [self.lm.query(prompt, state.pattern, state.filled) for state in states for prompt in self._prompts]
        vectors = self.lm.vectors(queries, self._batch_size, tick).view(len(states), len(self._prompts), -1)
        if not self._averages_vectors:
            return vectors
        return torch.einsum("spd,p->sd", vectors, self._weights.to(vectors.device))[:, None]

    def _best(self, vectors: torch.Tensor, steps: Sequence[Step], k: int) -> Iterator[Ranked | RankedByPrompt]:
        """Yield the k best admissible tokens for each row of `vectors` (S, K, d)."""
        k = min(k, self.lm.vocab_size)
        rows = max(1, rows_at_once(self.lm, vectors[:, 0]) // vectors.shape[1])
        for start in range(0, len(steps), rows):
            admissible = torch.stack([self._admissible(step) for step in steps[start : start + rows]])
            best = in_halves(self._top_logprobs, vectors[start : start + rows], admissible.to(vectors.device), k)
            if best[..., 0].isnan().any():
                raise BrokenModel("The LM's logits are NaN. Its weights are damaged or overflow in this dtype.")
            yield from map(self._as_ranked, best)

    def _as_ranked(self, best: torch.Tensor) -> Ranked | RankedByPrompt:
        values, tokens = best[:, 0].tolist(), best[:, 1].long().tolist()
        n_admissible = len(values) - values.count(-torch.inf)  # inadmissible tokens are last
        return Ranked(array("i", tokens[:n_admissible]), array("d", [-value for value in values[:n_admissible]]))

    def _top_logprobs(self, vectors: torch.Tensor, admissible: torch.Tensor, k: int) -> torch.Tensor:
        """Return (R, k, 2) float64: log-probabilities, largest first, and token ids."""
        best = self._logprobs(vectors).masked_fill_(~admissible, -torch.inf).topk(k)
        return torch.stack([best.values.cpu().double(), best.indices.cpu().double()], dim=-1)  # mps has no float64

    def _logprobs(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities (R, V) for `vectors` (R, K, d)."""
        logits = self.lm.logits(vectors.flatten(0, 1)).view(*vectors.shape[:2], -1)  # (R, K, V)
        weights = self._weights.to(vectors.device)  # (P,), P = K unless K is 1
        if self._is_mixture:
            return torch.logsumexp(torch.log_softmax(logits, dim=-1) + weights.log()[:, None], dim=1)
        mean = logits[:, 0] if self.lm.is_affine else torch.einsum("rkv,k->rv", logits, weights)
        return torch.log_softmax(mean, dim=-1)

    def _admissible(self, step: Step) -> torch.Tensor:
        if step.forced is not None:
            return torch.arange(self.lm.vocab_size) == step.forced
        return self._starts if step.starts_entity else self._continues

    def _all_ranked(self, step: Step, row: torch.Tensor, ranked: Ranked | RankedByPrompt) -> Iterator[RankedToken]:
        """Yield every admissible token, best first. Extends the ranking when it is exhausted."""
        seen_tokens: set[int] = set()
        k = TOP_K
        while True:
            # A new ranking can reorder tokens that are equal up to rounding, so skip tokens by id, not by position.
            yield from (pair for pair in zip(*ranked, strict=True) if pair[0] not in seen_tokens)
            if len(ranked.tokens) < k:
                return
            seen_tokens.update(ranked.tokens)
            k = 4 * k
            ranked = next(self._best(row[None], [step], k))


def rows_at_once(lm: LanguageModel, vectors: torch.Tensor) -> int:
    """Return how many `vectors` (Q, d) to project at a time. Limits memory and, on a CPU, the time to one second."""
    rows = LOGITS_AT_ONCE // lm.vocab_size
    if vectors.device.type == "cpu":
        n_operations = 2 * vectors.shape[1] * lm.vocab_size
        rows = min(CPU_LOGITS_AT_ONCE // lm.vocab_size, int(CPU_OPERATIONS_AT_ONCE) // n_operations)
    return max(1, rows)
