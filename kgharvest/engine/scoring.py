"""Compatibility, prompt weights, and consistency (BertNet, sections 3.1 and 3.2; Fig. 6)."""

from collections.abc import Sequence
from functools import partial
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

QUERIES_AT_ONCE = 2_048  # limits the memory of their vectors

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
        pattern, tokens = tuple(map(len, entities)), filled_tokens(lm, entities)
        for n_filled, token in enumerate(tokens):
            questions.ask(pattern, tokens[:n_filled], token)
        tick()
    token_logprobs = questions.answer(batch_size, tick)  # (sum of lengths, P), in order of addition
    lengths = [len(ids) + len(lm.entity_end) for entities in tuples for ids in entities]
    starts = [0, *accumulate(lengths)][:-1]
    sums = np.add.reduceat(token_logprobs, starts) if starts else token_logprobs
    return sums.reshape(len(tuples), -1, len(prompts)).swapaxes(1, 2)


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
    """Distinct queries, and the target tokens to read from the answers."""

    def __init__(self, lm: LanguageModel, prompts: Sequence[EncodedPrompt]) -> None:
        self._lm, self._prompts = lm, prompts
        self._first_row_of: dict[tuple[Pattern, TokenIds], int] = {}
        self._queries: list[Query] = []  # one per prompt, in consecutive rows
        self._first_rows: list[int] = []
        self._targets: list[int] = []

    def ask(self, pattern: Pattern, filled: TokenIds, target: int) -> None:
        """Add the question for log P(target | prompt, filled) in every prompt."""
        row = self._first_row_of.setdefault((pattern, filled), len(self._queries))
        if row == len(self._queries):
            self._queries += [self._lm.query(prompt, pattern, filled) for prompt in self._prompts]
        self._first_rows.append(row)
        self._targets.append(target)

    def answer(self, batch_size: int, tick: Tick) -> NDArray[np.float64]:
        """Return the log-probability of each target token in each prompt, (A, P), in nats, in order of addition."""
        n_prompts = len(self._prompts)
        if not self._queries:
            return np.zeros((0, n_prompts))
        rows = (np.array(self._first_rows)[:, None] + np.arange(n_prompts)).ravel()  # (A * P,)
        targets = np.repeat(self._targets, n_prompts)
        if isinstance(self._lm, GivesLogprobs):
            queries = [self._queries[row] for row in rows]
            return self._lm.target_logprobs(queries, targets.tolist(), tick).reshape(-1, n_prompts)
        values = np.empty(len(rows))
        by_row = np.argsort(rows, kind="stable")
        starts = range(0, len(self._queries), QUERIES_AT_ONCE)
        edges = np.searchsorted(rows[by_row], [*starts, len(self._queries)])
        for start, (first, last) in zip(starts, pairwise(edges.tolist()), strict=True):
            part = by_row[first:last]
            queries = self._queries[start : start + QUERIES_AT_ONCE]
            values[part] = self._answers(queries, rows[part] - start, targets[part], batch_size, tick)
        if not np.isfinite(values).all():
            raise BrokenModel("The LM assigns zero probability to a token. Its weights are damaged or overflow.")
        return values.reshape(-1, n_prompts)

    def _answers(
        self,
        queries: Sequence[Query],
        rows: NDArray[np.int64],
        targets: NDArray[np.int64],
        batch_size: int,
        tick: Tick,
    ) -> NDArray[np.float64]:
        """Return the log-probabilities (A,) of `targets` at `rows` of `queries`. The rows are in ascending order."""
        vectors = self._lm.vectors(queries, batch_size, tick)  # (Q, d)
        values = torch.empty(len(rows), dtype=torch.float64)
        # Smaller tensors than in the search. Freed blocks of several MB stay with the process as fragmented memory.
        at_once = max(1, rows_at_once(self._lm, vectors) // 4)
        edges = np.searchsorted(rows, np.arange(0, len(queries) + at_once, at_once))
        work = partial(self._target_logprobs, vectors)
        for first, last in pairwise(edges.tolist()):
            part_rows, part_targets = torch.from_numpy(rows[first:last]), torch.from_numpy(targets[first:last])
            values[first:last] = in_halves(work, part_rows, part_targets)
            tick()
        return values.numpy()

    def _target_logprobs(self, vectors: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities (A,) of `targets`, float64, on the CPU. `rows` must be in ascending order."""
        first, last = int(rows[0]), int(rows[-1])
        logprobs = torch.log_softmax(self._lm.logits(vectors[first : last + 1]), dim=-1)  # (R, V)
        return logprobs[(rows - first).to(logprobs.device), targets.to(logprobs.device)].cpu().double()
