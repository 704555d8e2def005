"""Exact best-first search for the tuples with the largest consistency (BertNet, Eq. 1 and 2).

Returns `rank` of all admissible tuples. A tuple is admissible if the LM can write it with canonical tokens, with at
most `params.max_entity_tokens` per entity, if every entity passes the filters, and if the prompts do not show it.
Tuples that are equal after case-folding count as one tuple, in its most consistent casing. Ties are ordered by the
entity strings.

Log-probabilities are never positive. By Eq. 1, the consistency of the tokens so far is therefore an upper bound for
every extension. For the next token t, each prompt's minimum over the entities is at most the log-probability of the
current entity, so the weighted mean of the minima is at most the current entity's weighted mean log-probability. This
bound decreases with S(t) = sum_p w_p log P(t | p), and an expansion draws its tokens by S(t), largest first. The top of
the queue thus bounds all unread tuples, and a complete tuple on top is final. The LM reads only states with a bound of
at least the last score of the list. The search ends when all bounds are below `params.min_score`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from kgharvest.engine.entities import Entity
from kgharvest.engine.language_models.base import LanguageModel, Tick
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.ranking import TOP_K, RankedByPrompt, RankedToken, State, Step, TokenRanker
from kgharvest.engine.scoring import compatibility, consistency
from kgharvest.engine.search import BestFirstSearch, Candidate, Costs

ROUNDING = 1e-9  # nats by which a bound can be smaller than a score because of rounding


class PromptRanker(TokenRanker):
    """Ranking of next tokens by S(t), with the log-probability in each prompt."""

    def __init__(self, lm: LanguageModel, prompts: PromptSet, batch_size: int) -> None:
        super().__init__(lm, prompts.prompts, prompts.weights, batch_size, prompts.combine == "mixture")
        self._averages_vectors = False
        self.prompt_weights = np.array(prompts.weights)  # (P,)

    def rank(self, states: Sequence[State], tick: Tick) -> list[Iterator[RankedToken]]:
        ranked = super().rank(states, tick)
        self.vector_bytes += 8 * TOP_K * len(self._prompts)
        return ranked

    def _top_logprobs(self, vectors: torch.Tensor, admissible: torch.Tensor, k: int) -> torch.Tensor:
        """Return (R, k, 2 + P) float64: log-probabilities that MTL uses, token ids, and log-probabilities by prompt."""
        logits = self.lm.logits(vectors.flatten(0, 1)).view(*vectors.shape[:2], -1)
        logprobs = torch.log_softmax(logits, dim=-1)  # (R, P, V)
        weights = self._weights.to(vectors.device)
        mean = torch.einsum("rpv,p->rv", logprobs, weights)
        best = mean.masked_fill(~admissible, -torch.inf).topk(k)
        mixed = mean - mean.logsumexp(dim=-1, keepdim=True)
        if self._is_mixture:
            mixed = torch.logsumexp(logprobs + weights.log()[:, None], dim=1)
        of_tokens = mixed.gather(1, best.indices).masked_fill(best.values == -torch.inf, -torch.inf)
        by_prompt = logprobs.gather(2, best.indices[:, None].expand(-1, logprobs.shape[1], -1)).transpose(1, 2)
        columns = [of_tokens[..., None], best.indices[..., None], by_prompt]
        return torch.cat([column.cpu().double() for column in columns], dim=-1)

    def _as_ranked(self, best: torch.Tensor) -> RankedByPrompt:
        ranked = super()._as_ranked(best)
        # A view would keep the rows of the whole batch alive.
        return RankedByPrompt(ranked.tokens, ranked.costs, best[: len(ranked.tokens), 2:].numpy().copy())


class ConsistencySearch(BestFirstSearch):
    """Priority queue of partial candidates, expansions, and complete tuples, by upper bounds of their consistency."""

    _ranker: PromptRanker

    @property
    def _n_missing(self) -> int:
        least = self._params.min_score
        is_below = least is not None and self._queue and -self._queue[0][0][0] < least - ROUNDING
        return 0 if is_below else super()._n_missing

    def _position(self, candidate: Candidate) -> Costs:
        return (-candidate.score,)

    def _position_after(self, candidate: Candidate, step: Step, ranked: RankedToken) -> Costs:
        weights, alpha = self._ranker.prompt_weights, self._params.alpha
        token = weights @ ranked[-1]  # S(t)
        if candidate.logprobs is None:
            return (-float(token),)
        entities = weights @ candidate.logprobs  # (n,)
        smallest = min(weights @ candidate.logprobs.min(axis=1), token + (0 if step.starts_entity else entities[-1]))
        return (-float(alpha * (entities.sum() + token) + (1 - alpha) * smallest),)

    def _extended(
        self, candidate: Candidate, step: Step, ranked: RankedToken, entities: tuple[Entity, ...]
    ) -> Candidate:
        logprobs = np.array(ranked[-1])[:, None]  # (P, 1)
        if candidate.logprobs is not None:
            complete = candidate.logprobs if step.starts_entity else candidate.logprobs[:, :-1]
            begun = 0 if step.starts_entity else candidate.logprobs[:, -1:]
            logprobs = np.concatenate([complete, logprobs + begun], axis=1)
        fits = compatibility(torch.from_numpy(logprobs), self._params.alpha).numpy()  # (P,)
        score = float(consistency(fits, self._ranker.prompt_weights))
        return replace(super()._extended(candidate, step, ranked, entities), logprobs=logprobs, score=score)
