"""LM behind a log-probability server: local tokenizer, remote weights.

The server returns no vectors. Tuples are scored by token log-probabilities, and the search uses the server's list of
most likely next tokens. Tokens outside the list are at most as likely as the last token in the list.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, Query, Tick, TokenIds
from kgharvest.engine.language_models.causal import LineByLine
from kgharvest.engine.language_models.pretrained import MAX_TOKENS, TokenizedLM
from kgharvest.engine.language_models.served.client import PROMPTS_AT_ONCE, CompletionsClient, Ranked
from kgharvest.engine.language_models.tokens import Tokens
from kgharvest.engine.ranking import UNNAMED, RankedToken, State, Step, TokenRanker
from kgharvest.engine.types import UnsupportedModel

KEPT_ANSWERS = 50_000  # lists of next tokens
EXACT_AT_ONCE = 16  # exact queries per batch, for tokens listed for some prompts only


class ServedLM(LineByLine, TokenizedLM):
    """A causal LM behind a server, with the query format of local causal LMs."""

    is_affine = True

    def __init__(self, client: CompletionsClient, tokenizer: Any, name: str, revision: str | None) -> None:
        self.name, self.revision, self.client = name, revision, client
        self.vocab_size = max(tokenizer.get_vocab().values()) + 1
        self.max_tokens = min(tokenizer.model_max_length, MAX_TOKENS)
        self.tokens = Tokens(tokenizer, self.vocab_size)
        self.is_cased = self.tokens.is_cased
        self.starts_entity, self.continues_entity = self.tokens.starts_entity, self.tokens.continues_entity
        self.end_entities_with_lines()
        self._answers: dict[TokenIds, Ranked] = {}

    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        raise self._no_distributions()

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        raise self._no_distributions()

    def _no_distributions(self) -> UnsupportedModel:
        return UnsupportedModel(
            f"{self.name} is behind a server that returns log-probabilities of few tokens, but this requires complete "
            "distributions. Load the LM locally."
        )

    def target_logprobs(self, queries: Sequence[Query], targets: Sequence[int], tick: Tick) -> NDArray[np.float64]:
        """Return (Q,): the log-probability of each target at the position of its query. Each text is sent once."""
        texts = [(*query.ids, target) for query, target in zip(queries, targets, strict=True)]
        in_order = sorted(set(texts))
        # The answer for a text includes those for its prefixes, so prefixes are not sent.
        longest = [ids for ids, after in zip(in_order, [*in_order[1:], ()], strict=True) if after[: len(ids)] != ids]
        answers = dict(zip(longest, self.client.token_logprobs(longest, tick), strict=True))
        longest_of: dict[TokenIds, TokenIds] = {}
        extension: TokenIds = ()
        for ids in reversed(in_order):
            extension = ids if ids in answers else extension
            longest_of[ids] = extension
        return np.array([answers[longest_of[ids]][len(ids) - 2] for ids in texts])

    def ranker(self, prompts: Sequence[EncodedPrompt], weights: Sequence[float], batch_size: int) -> TokenRanker:
        return ServedRanker(self, prompts, weights, batch_size)

    def next_tokens(self, texts: Sequence[TokenIds], tick: Tick) -> list[Ranked]:
        """Return the most likely next tokens of each text, best first. Each distinct text is sent once."""
        if len(self._answers) > KEPT_ANSWERS:
            self._answers.clear()
        new = [ids for ids in dict.fromkeys(texts) if ids not in self._answers]
        self._answers |= zip(new, self.client.next_tokens(new, tick), strict=True)
        return [self._answers[ids] for ids in texts]


class ServedRanker(TokenRanker):
    """Ranks next tokens by the weighted mean of the prompts' log-probabilities, without renormalization.

    With one prompt, this is the log-probability. Tokens missing from some of the prompts' lists are queried exactly.
    UNNAMED stands for the tokens in no list, with a lower bound on their cost.
    """

    lm: ServedLM

    def __init__(
        self, lm: ServedLM, prompts: Sequence[EncodedPrompt], weights: Sequence[float], batch_size: int
    ) -> None:
        super().__init__(lm, prompts, weights, batch_size)
        self.states_at_once = max(1, min(batch_size, PROMPTS_AT_ONCE // len(prompts)))
        self._prompt_weights = tuple(weights)
        self._exact: dict[tuple[TokenIds, int], float] = {}  # log-probabilities of unlisted tokens

    def rank(self, states: Sequence[State], tick: Tick) -> list[Iterator[RankedToken]]:
        self.n_states += len(states)
        texts = [
            [self.lm.query(prompt, state.pattern, state.filled).ids for prompt in self._prompts] for state in states
        ]
        lists = self.lm.next_tokens([ids for row in texts for ids in row], tick)
        list_of = dict(zip((ids for row in texts for ids in row), lists, strict=True))
        forced = [(ids, state.step.forced) for state, row in zip(states, texts, strict=True) for ids in row]
        self._ask([(ids, token) for ids, token in forced if token is not None and token not in list_of[ids]], tick)
        return [self._ranked(state.step, row, tick) for state, row in zip(states, texts, strict=True)]

    def _ranked(self, step: Step, texts: Sequence[TokenIds], tick: Tick) -> Iterator[RankedToken]:
        lists = self.lm.next_tokens(texts, tick)
        # Upper bound on the log-probability of unlisted tokens; minus infinity if the whole vocabulary is listed.
        last = [min(ranked.values()) if len(ranked) < self.lm.vocab_size else -np.inf for ranked in lists]
        if step.forced is not None:
            yield step.forced, self._costs(texts, lists, [step.forced], tick)[0]
            return
        admissible = self.lm.starts_entity if step.starts_entity else self.lm.continues_entity
        listed = {token for ranked in lists for token in ranked if token < len(admissible) and admissible[token]}
        lower_bounds = {
            token: self._cost([ranked.get(token, worst) for ranked, worst in zip(lists, last, strict=True)])
            for token in listed
        }
        queue = [(cost, any(token not in ranked for ranked in lists), token) for token, cost in lower_bounds.items()]
        heapq.heapify(queue)
        unnamed = self._cost(last)
        has_unnamed = bool(np.isfinite(unnamed))
        while queue:
            cost, is_bound, token = heapq.heappop(queue)
            if has_unnamed and cost >= unnamed:
                yield UNNAMED, unnamed
                has_unnamed = False
            if not is_bound:
                yield token, cost
                continue
            bounds = [token, *(other for _, is_bound, other in sorted(queue) if is_bound)]
            exact = bounds[:EXACT_AT_ONCE]
            queue = [entry for entry in queue if entry[2] not in exact]
            queue += zip(self._costs(texts, lists, exact, tick), [False] * len(exact), exact, strict=True)
            heapq.heapify(queue)
        if has_unnamed:
            yield UNNAMED, unnamed

    def _costs(
        self, texts: Sequence[TokenIds], lists: Sequence[Ranked], tokens: Sequence[int], tick: Tick
    ) -> list[float]:
        """Return the cost of each token after `texts`. Queries the server for tokens missing from its lists."""
        pairs = list(zip(texts, lists, strict=True))
        self._ask([(ids, token) for token in tokens for ids, ranked in pairs if token not in ranked], tick)
        return [
            self._cost([ranked[token] if token in ranked else self._exact[ids, token] for ids, ranked in pairs])
            for token in tokens
        ]

    def _ask(self, pairs: Sequence[tuple[TokenIds, int]], tick: Tick) -> None:
        """Query and cache the log-probability of a token after a text, for each pair not cached yet."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._exact]
        answers = self.lm.client.token_logprobs([(*ids, token) for ids, token in new], tick)
        self._exact |= {pair: logprobs[-1] for pair, logprobs in zip(new, answers, strict=True)}

    def _cost(self, logprobs: Sequence[float]) -> float:
        pairs = zip(self._prompt_weights, logprobs, strict=True)
        return -float(sum(weight * logprob for weight, logprob in pairs if weight))
