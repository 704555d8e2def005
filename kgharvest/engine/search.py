"""The exact best-first search for candidate tuples (BertNet, section 3.2 and App. C).

Wanted are the N tuples with the largest MTL (minimum token log-likelihood), in a total order: MTL first, then the
sorted token log-probabilities, smallest first (leximin), then the entity strings. One more token can only lower a
candidate in that order, so a candidate on top of the queue bounds all that follows from it, and a complete tuple on top
is final. The LM is asked about a candidate only when it gets there, together with the next best ones to make a batch.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, product
from typing import NamedTuple

import torch

from kgharvest.engine.filters import DUPLICATE, OVERLAP, EntityFilter
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Pattern, TokenIds
from kgharvest.engine.lexicon import Entity, Lexicon
from kgharvest.engine.types import BrokenModel, HarvestParams

Costs = tuple[float, ...]  # -log p of a candidate's tokens, largest first, zeros left out: tuple order is leximin order

TOP_K = 64  # continuations ranked at first, four times as many at each refill
LOOKED_UP_AT_ONCE = 16
LOGITS_AT_ONCE = 1 << 25  # 128 MiB
CANDIDATE_BYTES = 2000  # what a queue entry takes beside its vector and ranked continuations


class WeighedPrompt(NamedTuple):
    """A prompt as the search uses it; the weights of a search add up to 1."""

    prompt: EncodedPrompt
    weight: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tuple in the making: `tokens` fill the first steps of `pattern`, entity ends included."""

    pattern: Pattern
    tokens: TokenIds = ()
    costs: Costs = ()
    entities: tuple[Entity, ...] = ()
    is_complete: bool = False

    @property
    def mtl(self) -> float:
        return -self.costs[0] if self.costs else 0.0

    @property
    def folded(self) -> tuple[str, ...]:
        return tuple(entity.folded for entity in self.entities)

    @property
    def surface(self) -> tuple[str, ...]:
        return tuple(entity.surface for entity in self.entities)

    def extended(self, token: int, cost: float, entities: tuple[Entity, ...], is_complete: bool) -> Candidate:
        costs = tuple(sorted((*self.costs, cost), reverse=True)) if cost > 0 else self.costs
        return Candidate(self.pattern, (*self.tokens, token), costs, entities, is_complete)


class Step(NamedTuple):
    """What the next token of a candidate is to be. `forced`: a token of `entity_end`."""

    starts_entity: bool
    n_before: int  # tokens of the entity that are there already
    ends_entity: bool
    forced: int | None = None


class Expansion:
    """A candidate that the LM has answered, with its continuations, best first; only the next one exists as such."""

    __slots__ = ("_continuations", "entities", "next")

    def __init__(self, candidate: Candidate, continuations: Iterator[Candidate]) -> None:
        self.entities = candidate.entities
        self._continuations = continuations
        self.next = next(continuations, None)

    def draw(self) -> Candidate:
        drawn = self.next
        assert drawn is not None, "an exhausted expansion is never queued"
        self.next = next(self._continuations, None)
        return drawn


@dataclass(frozen=True)
class SearchResult:
    """`candidates` best first, pattern by pattern or together. `notice`: a sentence if a budget ended it."""

    candidates: list[Candidate]
    rejected: Counter[str]
    n_states: int
    notice: str | None


def search_tuples(
    lm: LanguageModel,
    prompts: Sequence[WeighedPrompt],
    entity_filter: EntityFilter,
    params: HarvestParams,
    report: Callable[[int], None],
) -> SearchResult:
    """Return the `params.candidates` best tuples of each token-count pattern, or of all patterns together.

    Each pattern has its own entity cap, too, unless the budget is shared. `report(n_found)` is called between forwards.
    """
    arity = len(prompts[0].prompt.slots)
    patterns = list(product(range(1, params.max_entity_tokens + 1), repeat=arity))
    groups = [patterns] if params.pattern_budget == "shared" else [[pattern] for pattern in patterns]
    search = BestFirstSearch(lm, prompts, entity_filter, params, report)
    for group in groups:
        search.run(group)
        if search.notice:
            break
    return SearchResult(search.found, search.rejected, search.n_states, search.notice)


class BestFirstSearch:
    """One queue of unevaluated candidates, expansions and complete tuples, the best on top."""

    def __init__(
        self,
        lm: LanguageModel,
        prompts: Sequence[WeighedPrompt],
        entity_filter: EntityFilter,
        params: HarvestParams,
        report: Callable[[int], None],
    ) -> None:
        self._lm, self._params, self._report = lm, params, report
        self.prompts = prompts
        self._weights = torch.tensor([weight for _, weight in prompts])  # (P,)
        self._filter = entity_filter
        self._lexicon = Lexicon(lm, entity_filter)
        self._serials = count()
        self._starts = torch.from_numpy(lm.starts_entity)  # (V,)
        self._continues = torch.from_numpy(lm.continues_entity)  # (V,)
        self.found: list[Candidate] = []
        self.rejected: Counter[str] = Counter()
        self.n_states = 0
        self.notice: str | None = None

    def run(self, patterns: Sequence[Pattern]) -> None:
        """Append the best `params.candidates` tuples of `patterns` together to `found`."""
        self._begin(patterns)
        while self._queue and self._n_wanted > 0 and not self._exceeds_budget():
            best = self._pop()
            if self._has_saturated(best.entities):
                continue
            if isinstance(best, Expansion):
                self._draw_from(best)
            elif best.is_complete:
                self._keep(best)
            else:
                self._evaluate([best, *self._take_unevaluated()])
        if not self._queue:
            self._count_rejections(up_to=None)

    def _begin(self, patterns: Sequence[Pattern]) -> None:
        self._layouts = {pattern: layout(pattern, self._lm.entity_end) for pattern in patterns}
        self._queue: list[tuple[Costs, bool, tuple[tuple[str, ...], ...], int, Candidate | Expansion]] = []
        self._rejections: list[tuple[Costs, str, tuple[Entity, ...]]] = []
        self._seen: set[tuple[str, ...]] = set()
        self._repeats: Counter[str] = Counter()
        self._saturated: set[str] = set()
        self._n_wanted = self._params.candidates
        for pattern in patterns:
            self._push(Candidate(pattern))

    def _push(self, candidate: Candidate) -> None:
        # What is incomplete comes before what is complete at equal costs: only then is the top tuple final.
        names = (candidate.folded, candidate.surface) if candidate.is_complete else ()
        heapq.heappush(self._queue, (candidate.costs, candidate.is_complete, names, next(self._serials), candidate))

    def _push_expansion(self, expansion: Expansion) -> None:
        if expansion.next is not None:
            heapq.heappush(self._queue, (expansion.next.costs, False, (), next(self._serials), expansion))

    def _pop(self) -> Candidate | Expansion:
        return heapq.heappop(self._queue)[-1]

    def _draw_from(self, expansion: Expansion) -> None:
        self._push(expansion.draw())
        self._push_expansion(expansion)

    def _keep(self, candidate: Candidate) -> None:
        self._count_rejections(up_to=candidate.costs)
        if candidate.folded in self._seen:
            self.rejected[DUPLICATE] += 1
            return
        self._seen.add(candidate.folded)
        for entity in set(candidate.folded):
            self._repeats[entity] += 1
            if self._repeats[entity] == self._params.max_entity_repeats:
                self._saturated.add(entity)
        self.found.append(candidate)
        self._n_wanted -= 1

    def _has_saturated(self, entities: Sequence[Entity]) -> bool:
        return bool(self._saturated) and any(entity.folded in self._saturated for entity in entities)

    def _take_unevaluated(self) -> list[Candidate]:
        """Take the next best candidates that wait for the LM, as many as make a batch without much in vain."""
        limit = min(self._params.batch_size, max(8, self.n_states // 6)) - 1
        waiting: list[Candidate] = []
        complete: list[Candidate] = []
        while self._queue and len(waiting) < limit and len(complete) < self._n_wanted:
            item = self._pop()
            if self._has_saturated(item.entities):
                continue
            if isinstance(item, Expansion):
                self._draw_from(item)
            else:
                (complete if item.is_complete else waiting).append(item)
        for candidate in complete:
            self._push(candidate)
        return waiting

    def _evaluate(self, candidates: Sequence[Candidate]) -> None:
        queries = [
            self._lm.query(prompt, candidate.pattern, candidate.tokens)
            for candidate in candidates
            for prompt, _ in self.prompts
        ]
        vectors = self._lm.vectors(queries, self._params.batch_size, lambda: self._report(len(self.found)))
        vectors = vectors.view(len(candidates), len(self.prompts), -1)  # (S, P, d)
        # The LM head is affine: projecting the mean vector gives the mean of the prompts' logits.
        means = torch.einsum("spd,p->sd", vectors, self._weights.to(vectors.device))  # (S, d)
        steps = [self._step(candidate) for candidate in candidates]
        for candidate, step, mean, ranked in zip(
            candidates, steps, means, self._rank(means, steps, TOP_K), strict=True
        ):
            self._push_expansion(Expansion(candidate, self._continuations(candidate, step, mean, ranked)))
        self.n_states += len(candidates)

    def _step(self, candidate: Candidate) -> Step:
        return self._layouts[candidate.pattern][len(candidate.tokens)]

    def _rank(self, means: torch.Tensor, steps: Sequence[Step], k: int) -> Iterator[list[tuple[int, float]]]:
        """Yield, for each state, its k best admissible tokens with their costs (-log p over the whole vocabulary)."""
        rows = max(1, LOGITS_AT_ONCE // self._lm.vocab_size)
        for start in range(0, len(steps), rows):
            logprobs = torch.log_softmax(self._lm.logits(means[start : start + rows]), dim=-1)  # (R, V)
            admissible = torch.stack([self._admissible(step) for step in steps[start : start + rows]])
            logprobs = logprobs.masked_fill(~admissible.to(logprobs.device), -torch.inf)
            best = logprobs.topk(min(k, self._lm.vocab_size))
            if best.values.isnan().any():
                raise BrokenModel("The LM's logits are NaN; its weights are damaged or overflow in this dtype.")
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                yield [(token, -value) for token, value in zip(tokens, values, strict=True) if value > -torch.inf]

    def _admissible(self, step: Step) -> torch.Tensor:
        if step.forced is not None:
            return torch.arange(self._lm.vocab_size) == step.forced
        return self._starts if step.starts_entity else self._continues

    def _continuations(
        self, candidate: Candidate, step: Step, mean: torch.Tensor, ranked: list[tuple[int, float]]
    ) -> Iterator[Candidate]:
        """Yield the candidates one token longer, best first; note those that a rule rejects."""
        is_last = len(candidate.tokens) + 1 == len(self._layouts[candidate.pattern])
        tokens = self._all_ranked(step, mean, ranked)
        if not step.ends_entity:
            yield from (candidate.extended(token, cost, candidate.entities, is_last) for token, cost in tokens)
            return
        for token, cost, entity in self._with_entities(candidate, step, tokens):
            extended = candidate.extended(token, cost, (*candidate.entities, entity), is_last)
            if self._filter.rejects_beside(entity.words, [other.words for other in candidate.entities]):
                self._note_rejection(extended.costs, OVERLAP, candidate)
            else:
                yield extended

    def _all_ranked(
        self, step: Step, mean: torch.Tensor, ranked: list[tuple[int, float]]
    ) -> Iterator[tuple[int, float]]:
        """Yield every admissible token, best first; rank more of them only when those at hand are used up."""
        drawn: set[int] = set()
        k = TOP_K
        while True:
            # Ranking again may reorder what is equal up to rounding, so tokens count as drawn by id, not by place.
            yield from (pair for pair in ranked if pair[0] not in drawn)
            if len(ranked) < k:
                return
            drawn.update(token for token, _ in ranked)
            k = min(4 * k, self._lm.vocab_size + 1)
            ranked = next(self._rank(mean[None], [step], k))

    def _with_entities(
        self, candidate: Candidate, step: Step, tokens: Iterator[tuple[int, float]]
    ) -> Iterator[tuple[int, float, Entity]]:
        """Yield the tokens that complete an entity, with it; note entities that a rule rejects."""
        prefix = candidate.tokens[len(candidate.tokens) - step.n_before :]
        while pairs := list(islice(tokens, LOOKED_UP_AT_ONCE)):
            found = self._lexicon.look_up([(*prefix, token) for token, _ in pairs])
            for (token, cost), entity in zip(pairs, found, strict=True):
                if isinstance(entity, Entity):
                    yield token, cost, entity
                elif entity.rule:
                    costs = candidate.extended(token, cost, (), False).costs
                    self._note_rejection(costs, entity.rule, candidate)

    def _note_rejection(self, costs: Costs, rule: str, candidate: Candidate) -> None:
        heapq.heappush(self._rejections, (costs, rule, candidate.entities))

    def _count_rejections(self, up_to: Costs | None) -> None:
        """Count what was rejected no later than `up_to`: what batches looked at in vain is not part of the result."""
        while self._rejections and (up_to is None or self._rejections[0][0] <= up_to):
            _, rule, entities = heapq.heappop(self._rejections)
            if not self._has_saturated(entities):
                self.rejected[rule] += 1

    def _exceeds_budget(self) -> bool:
        entry_bytes = CANDIDATE_BYTES + TOP_K * 100
        if self.n_states >= self._params.state_budget:
            self.notice = (
                f"The search stopped at its budget of {self._params.state_budget:,} evaluated states with "
                f"{len(self.found):,} tuples, the best there are; raise the state budget or ask for fewer candidates."
            )
        elif len(self._queue) * entry_bytes > self._params.memory_budget_mb * 2**20:
            self.notice = (
                f"The search stopped at its memory budget of {self._params.memory_budget_mb:,} MB with "
                f"{len(self.found):,} tuples, the best there are; raise the memory budget or ask for fewer candidates."
            )
        return self.notice is not None


def layout(pattern: Pattern, entity_end: TokenIds) -> list[Step]:
    """Return the steps that fill `pattern`: the tokens of each entity, then the tokens that end it."""
    steps: list[Step] = []
    for n_tokens in pattern:
        steps += [Step(n == 0, n, n == n_tokens - 1) for n in range(n_tokens)]
        steps += [Step(False, 0, False, token) for token in entity_end]
    return steps
