"""Token ranking: which tokens may come next in a candidate, best first, under a relation's weighted prompts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Pattern, Tick, TokenIds
from kgharvest.engine.language_models.batching import CPU_OPERATIONS_AT_ONCE, in_halves
from kgharvest.engine.types import BrokenModel

TOP_K = 64  # tokens ranked at first, four times as many at each refill
LOGITS_AT_ONCE = 1 << 25  # 128 MiB
# A processor gains nothing from larger batches, and what they ask ahead is asked in vain where an entity is used up.
CPU_SEQUENCES_AT_ONCE = 48

RankedToken = tuple[int, float]  # token, cost: -log p over the whole vocabulary, in nats
# In the place of a token: all that a server has not named. They cost at least what is said with it, and tokens that
# come after it are no longer known to be the next best.
UNNAMED = -1


class Step(NamedTuple):
    """What the next token of a candidate has to be. n_before: tokens of the entity there already.

    forced: a token of `entity_end`, which every entity of this LM ends with.
    """

    starts_entity: bool
    n_before: int
    ends_entity: bool
    forced: int | None = None


def layout(pattern: Pattern, entity_end: TokenIds) -> list[Step]:
    """Return the steps that fill `pattern`: the tokens of each entity, then the tokens that end it."""
    steps: list[Step] = []
    for n_tokens in pattern:
        steps += [Step(n == 0, n, n == n_tokens - 1) for n in range(n_tokens)]
        steps += [Step(False, 0, False, token) for token in entity_end]
    return steps


class State(NamedTuple):
    """A question for the LM: what may take `step` after `filled`."""

    pattern: Pattern
    filled: TokenIds
    step: Step


class Ranked(NamedTuple):
    """The best tokens of a state and their costs, best first. Arrays take an eighth of a list of pairs."""

    tokens: array[int]
    costs: array[float]


class TokenRanker:
    """Ranks next tokens by an LM and weighted prompts; the weights add up to 1.

    is_mixture: the prompts' probabilities are averaged, not their log-probabilities.
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
        self.vector_bytes = 0  # of a state, once one is known
        self.states_at_once = batch_size  # to be ranked together for speed; fewer once the LM is known to be on a CPU
        self._prompts, self._batch_size, self._is_mixture = prompts, batch_size, is_mixture
        self._weights = torch.tensor(weights, dtype=torch.float32)  # (P,)
        self._starts = torch.from_numpy(lm.starts_entity)  # (V,)
        self._continues = torch.from_numpy(lm.continues_entity)  # (V,)

    def rank(self, states: Sequence[State], tick: Tick) -> list[Iterator[RankedToken]]:
        """Return, for each state, its admissible tokens, best first, ranked lazily."""
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
        """Return (S, K, d): what to project for each state, of all prompts in one, or of each if that is not the same.

        Where the LM head is affine, projecting the mean vector gives the mean of the prompts' logits.
        """
        queries = [self.lm.query(prompt, state.pattern, state.filled) for state in states for prompt in self._prompts]
        vectors = self.lm.vectors(queries, self._batch_size, tick).view(len(states), len(self._prompts), -1)
        if self._is_mixture or not self.lm.is_affine:
            return vectors
        return torch.einsum("spd,p->sd", vectors, self._weights.to(vectors.device))[:, None]

    def _best(self, vectors: torch.Tensor, steps: Sequence[Step], k: int) -> Iterator[Ranked]:
        """Yield, for each row of `vectors` (S, K, d), its k best admissible tokens."""
        k = min(k, self.lm.vocab_size)
        rows = max(1, rows_at_once(self.lm, vectors[:, 0]) // vectors.shape[1])
        for start in range(0, len(steps), rows):
            admissible = torch.stack([self._admissible(step) for step in steps[start : start + rows]])
            best = in_halves(self._top_logprobs, vectors[start : start + rows], admissible.to(vectors.device), k)
            for values, tokens in zip(best[..., 0].tolist(), best[..., 1].long().tolist(), strict=True):
                n_admissible = k - values.count(-torch.inf)  # they come last
                yield Ranked(array("i", tokens[:n_admissible]), array("d", [-value for value in values[:n_admissible]]))

    def _top_logprobs(self, vectors: torch.Tensor, admissible: torch.Tensor, k: int) -> torch.Tensor:
        """Return (R, k, 2) float64: log-probabilities, largest first, and their tokens."""
        best = self._logprobs(vectors).masked_fill_(~admissible, -torch.inf).topk(k)
        if best.values.isnan().any():
            raise BrokenModel("The LM's logits are NaN; its weights are damaged or overflow in this dtype.")
        return torch.stack([best.values.cpu().double(), best.indices.cpu().double()], dim=-1)  # mps has no float64

    def _logprobs(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return (R, V) for `vectors` (R, K, d)."""
        logits = self.lm.logits(vectors.flatten(0, 1)).view(*vectors.shape[:2], -1)  # (R, K, V)
        weights = self._weights.to(vectors.device)  # (P,), as many as K unless K is 1
        if self._is_mixture:
            return torch.logsumexp(torch.log_softmax(logits, dim=-1) + weights.log()[:, None], dim=1)
        mean = logits[:, 0] if self.lm.is_affine else torch.einsum("rkv,k->rv", logits, weights)
        return torch.log_softmax(mean, dim=-1)

    def _admissible(self, step: Step) -> torch.Tensor:
        if step.forced is not None:
            return torch.arange(self.lm.vocab_size) == step.forced
        return self._starts if step.starts_entity else self._continues

    def _all_ranked(self, step: Step, row: torch.Tensor, ranked: Ranked) -> Iterator[RankedToken]:
        """Yield every admissible token, best first; rank more of them only when those at hand are used up."""
        drawn: set[int] = set()
        k = TOP_K
        while True:
            # Ranking again may reorder what is equal up to rounding, so tokens count as drawn by id, not by place.
            yield from (pair for pair in zip(*ranked, strict=True) if pair[0] not in drawn)
            if len(ranked.tokens) < k:
                return
            drawn.update(ranked.tokens)
            k = 4 * k
            ranked = next(self._best(row[None], [step], k))


def rows_at_once(lm: LanguageModel, vectors: torch.Tensor) -> int:
    """Return how many of `vectors` (Q, d) to project at a time: within memory and, on a processor, within a second."""
    rows = LOGITS_AT_ONCE // lm.vocab_size
    if vectors.device.type == "cpu":
        rows = min(rows, int(CPU_OPERATIONS_AT_ONCE) // (2 * vectors.shape[1] * lm.vocab_size))
    return max(1, rows)
