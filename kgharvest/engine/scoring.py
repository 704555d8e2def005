"""Compatibility, prompt weights, and consistency (BertNet, sections 3.1 and 3.2; Fig. 6)."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import (
    EncodedPrompt,
    GivesLogprobs,
    LanguageModel,
    Pattern,
    Query,
    Tick,
    TokenIds,
    filled_tokens,
)
from kgharvest.engine.language_models.batching import in_halves
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import rows_at_once
from kgharvest.engine.types import BrokenModel

Encoded = tuple[TokenIds, ...]  # the token ids of a tuple's entities


def compatibility(entity_logprobs: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return f(E, p) <= 0 in nats, given log P(e_i | p, e_<i) along the last axis (Eq. 1, for n entities).

    f(E, p) is alpha * (sum of the entities' log-probabilities) + (1 - alpha) * (their minimum). It is differentiable.
    """
    return alpha * entity_logprobs.sum(dim=-1) + (1 - alpha) * entity_logprobs.amin(dim=-1)


def prompt_weights(mean_compatibilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax of the prompts' mean compatibilities with the seed tuples."""
    shifted: NDArray[np.float64] = np.exp(mean_compatibilities - mean_compatibilities.max())
    return shifted / np.sum(shifted)


def consistency(compatibilities: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sum_p w_p f(E, p) in nats (Eq. 2), with prompts along the last axis. Not normalized over the tuples."""
    return compatibilities @ weights


def compatibilities(
    lm: LanguageModel,
    prompts: Sequence[EncodedPrompt],
    tuples: Sequence[Encoded],
    alpha: float,
    batch_size: int,
    tick: Tick,
) -> NDArray[np.float64]:
    """Return the compatibility of each tuple with each prompt, (E, P), in nats."""
    logprobs = torch.from_numpy(entity_logprobs(lm, prompts, tuples, batch_size, tick))  # (E, P, n)
    scores: NDArray[np.float64] = compatibility(logprobs, alpha).numpy()
    return scores


def entity_logprobs(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], tuples: Sequence[Encoded], batch_size: int, tick: Tick
) -> NDArray[np.float64]:
    """Return log P(e_i | p, e_<i) in nats, (E, P, n), summed over the tokens of each entity (Fig. 6).

    Tuples share prefixes, so each distinct query is evaluated only once.
    """
    questions = Questions(lm, prompts)
    for entities in tuples:
        questions.add(entities)
        tick()
    token_logprobs = questions.answer(batch_size, tick)  # (sum of lengths,), in order of addition
    lengths = [len(ids) + len(lm.entity_end) for entities in tuples for _ in prompts for ids in entities]
    starts = [0, *accumulate(lengths)][:-1]
    sums = np.add.reduceat(token_logprobs, starts) if starts else np.zeros(0)
    return sums.reshape(len(tuples), len(prompts), -1)


def prior_logprobs(lm: LanguageModel, tuples: Sequence[Encoded], batch_size: int, tick: Tick) -> NDArray[np.float64]:
    """Return log P(e_i) in nats, (E, n): each entity alone in a prompt that consists of one slot."""
    empty = lm.encode_prompt(PromptTemplate.parse("<ENT0>"))
    entities = list(dict.fromkeys(ids for encoded in tuples for ids in encoded))
    alone = entity_logprobs(lm, [empty], [(ids,) for ids in entities], batch_size, tick)[:, 0, 0]
    prior = dict(zip(entities, alone.tolist(), strict=True))
    return np.array([[prior[ids] for ids in encoded] for encoded in tuples])


def corrected_compatibilities(
    lm: LanguageModel,
    prompts: Sequence[EncodedPrompt],
    tuples: Sequence[Encoded],
    priors: NDArray[np.float64],
    alpha: float,
    batch_size: int,
    tick: Tick,
) -> NDArray[np.float64]:
    """Return (E, P), in nats: Eq. 1 with log P(e_i | p, e_<i) - log P(e_i) in place of log P(e_i | p, e_<i).

    This is the pointwise mutual information of the entity with the prompt and the preceding entities (Church, Hanks
    1990; for LMs Davison et al. 2019, Holtzman et al. 2021). Entities that are likely in any context gain no advantage.
    Values can be positive. priors: result of `prior_logprobs`.
    """
    logprobs = entity_logprobs(lm, prompts, tuples, batch_size, tick)  # (E, P, n)
    scores: NDArray[np.float64] = compatibility(torch.from_numpy(logprobs - priors[:, None]), alpha).numpy()
    return scores


class Questions:
    """Distinct queries that score tuples, and the target tokens to read from the answers."""

    def __init__(self, lm: LanguageModel, prompts: Sequence[EncodedPrompt]) -> None:
        self._lm, self._prompts = lm, prompts
        self._row_of: dict[tuple[int, Pattern, TokenIds], int] = {}
        self._queries: list[Query] = []
        self._rows: list[int] = []
        self._targets: list[int] = []

    def add(self, entities: Encoded) -> None:
        """Add the queries for every token of `entities` in every prompt."""
        pattern = tuple(len(ids) for ids in entities)
        tokens = filled_tokens(self._lm, entities)
        for index in range(len(self._prompts)):
            for n_filled, token in enumerate(tokens):
                self._rows.append(self._row(index, pattern, tokens[:n_filled]))
                self._targets.append(token)

    def _row(self, index: int, pattern: Pattern, filled: TokenIds) -> int:
        key = (index, pattern, filled)
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = len(self._queries)
            self._queries.append(self._lm.query(self._prompts[index], pattern, filled))
        return row

    def answer(self, batch_size: int, tick: Tick) -> NDArray[np.float64]:
        """Return the log-probability of each target token, in nats, in order of addition."""
        if not self._queries:
            return np.zeros(0)
        if isinstance(self._lm, GivesLogprobs):
            return self._lm.target_logprobs([self._queries[row] for row in self._rows], self._targets, tick)
        self._vectors = self._lm.vectors(self._queries, batch_size, tick)  # (Q, d)
        rows, targets = torch.tensor(self._rows), torch.tensor(self._targets)
        by_row = torch.argsort(rows, stable=True)
        values = torch.empty(len(rows), dtype=torch.float64)
        at_once = rows_at_once(self._lm, self._vectors)
        edges = torch.searchsorted(rows[by_row], torch.arange(0, len(self._queries) + at_once, at_once))
        for start, end in pairwise(edges.tolist()):
            part = by_row[start:end]  # target indices, grouped by consecutive query rows
            values[part] = in_halves(self._target_logprobs, rows[part], targets[part])
            tick()
        if not values.isfinite().all():
            raise BrokenModel("The LM assigns zero probability to a token. Its weights are damaged or overflow.")
        return values.numpy()

    def _target_logprobs(self, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return (A,) float64 on the CPU. `rows` must be sorted in ascending order."""
        first, last = int(rows[0]), int(rows[-1])
        logprobs = torch.log_softmax(self._lm.logits(self._vectors[first : last + 1]), dim=-1)  # (R, V)
        return logprobs[(rows - first).to(logprobs.device), targets.to(logprobs.device)].cpu().double()
