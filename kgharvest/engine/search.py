"""Exact best-first search for candidate tuples (BertNet, section 3.2 and App. C).

Returns the N tuples with the largest MTL (minimum token log-likelihood). Ties are ordered by the sorted token
log-probabilities, smallest first (leximin), then by the entity strings. Extending a candidate never improves its
position in this order. The top of the queue is therefore at least as good as all later tuples, and a complete tuple on
top is final. The LM evaluates a candidate only when the candidate reaches the top, in a batch with the next best
candidates.

A tuple is skipped if one of its entities already occurs in `params.proposed_entity_repeats` better tuples.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kgharvest.engine.entities import Entity, EntityVocabulary, entity_of
from kgharvest.engine.filters import DUPLICATE, EXAMPLE, OVERLAP
from kgharvest.engine.language_models.base import Pattern, TokenIds, filled_tokens
from kgharvest.engine.ranking import UNNAMED, RankedToken, State, Step, TokenRanker, layout
from kgharvest.engine.types import HarvestParams

Names = tuple[tuple[str, ...], ...]  # case-folded entities of a complete tuple, then the entities as written
Costs = tuple[float, ...]  # -log p of a candidate's tokens, largest first, without zeros; compared in leximin order
Report = Callable[[int], None]  # called frequently with the number of tuples so far

# Memory per object, measured on CPython 3.11 and rounded up.
EXPANSION_BYTES, CANDIDATE_BYTES, TUPLE_BYTES, ENTITY_BYTES = 4_000, 1_000, 1_500, 500


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partial or complete tuple: `tokens` fill the first steps of `pattern`, including entity ends.

    logprobs: (P, n), log P(entity | prompt) of the tokens so far. score: their consistency in nats. Set by a search by
    consistency.
    """

    pattern: Pattern
    tokens: TokenIds = ()
    costs: Costs = ()
    entities: tuple[Entity, ...] = ()
    is_complete: bool = False
    logprobs: NDArray[np.float64] | None = None
    score: float = 0.0

    @property
    def mtl(self) -> float:
        return -self.costs[0] if self.costs else 0.0

    @property
    def folded(self) -> tuple[str, ...]:
        return tuple(entity.folded for entity in self.entities)

    @property
    def surface(self) -> tuple[str, ...]:
        return tuple(entity.surface for entity in self.entities)

    @property
    def names(self) -> Names:
        return self.folded, self.surface

    def costs_with(self, cost: float) -> Costs:
        return tuple(sorted((*self.costs, cost), reverse=True)) if cost > 0 else self.costs


class Expansion:
    """A candidate with its possible next tokens, ranked by the LM. `next` is the best token not yet drawn."""

    __slots__ = ("_ranked", "candidate", "next", "step")

    def __init__(self, candidate: Candidate, step: Step, ranked: Iterator[RankedToken]) -> None:
        self.candidate, self.step = candidate, step
        self._ranked = ranked
        self.next = next(ranked, None)

    @property
    def entities(self) -> tuple[Entity, ...]:
        return self.candidate.entities

    def draw(self) -> RankedToken:
        ranked_token = self.next
        assert ranked_token is not None, "an exhausted expansion is never queued"
        self.next = next(self._ranked, None)
        return ranked_token


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rejection of an entity that follows `entities`. Queued, because only rejections that the search reaches count."""

    rule: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Marker for next tokens that the server did not list. Nothing below it in the queue is proved optimal."""

    entities: tuple[Entity, ...]


Item = Candidate | Expansion | Rejected | Unnamed
Entry = tuple[Costs, bool, Names, int, Item]  # costs, whether complete, names, serial number


class Found(NamedTuple):
    """Search result. candidates: best first. notice: set if a budget ended a search."""

    candidates: list[Candidate]
    rejected: Counter[str]
    n_states: int
    notice: str | None = None


def pattern_groups(n_slots: int, params: HarvestParams) -> list[tuple[Pattern, ...]]:
    """Return groups of token-count patterns to search together. Patterns with the most tokens (slowest) come first.

    Each group has its own candidates, entity cap, and budgets.
    """
    patterns = sorted(product(range(1, params.max_entity_tokens + 1), repeat=n_slots), key=sum, reverse=True)
    return [tuple(patterns)] if params.is_one_search else [(pattern,) for pattern in patterns]


def merge_found(groups: Sequence[Sequence[Pattern]], found: Sequence[Found]) -> Found:
    """Merge the search results of `groups`, without duplicates.

    If several patterns yield the same tuple, the best candidate wins. This happens because a cased LM writes "Us" and
    "us" with different tokens.
    """
    candidates = [candidate for part in found for candidate in part.candidates]
    distinct = best_of_equals(candidates)
    rejected = sum((part.rejected for part in found), Counter[str]())
    rejected[DUPLICATE] += len(candidates) - len(distinct)
    ended = [(group, part.notice) for group, part in zip(groups, found, strict=True) if part.notice]
    notice = ended[0][1] if ended else None
    n_groups = len(set(map(tuple, groups)))
    if notice and n_groups > 1:
        patterns = sorted({"-".join(map(str, group[0])) for group, _ in ended})
        notice += f" This applies to {len(patterns)} of {n_groups} token-count patterns: {', '.join(patterns)}."
    return Found(distinct, +rejected, sum(part.n_states for part in found), notice)


def best_of_equals(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, best first. Of candidates that are equal after case-folding, only the best is returned."""
    best: dict[tuple[str, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: (candidate.costs, candidate.names)):
        best.setdefault(candidate.folded, candidate)
    return list(best.values())


class BestFirstSearch:
    """Priority queue of partial candidates, expansions, complete tuples, and rejections, best first.

    omitted: case-folded tuples that the prompts show as examples.
    tuples: the best tuples so far, final and in order. n_proved: number of `tuples` that are proved to be the best.
        None: all of them.
    """

    def __init__(
        self,
        ranker: TokenRanker,
        vocabulary: EntityVocabulary,
        params: HarvestParams,
        report: Report,
        omitted: frozenset[tuple[str, ...]] = frozenset(),
    ) -> None:
        self._ranker, self._vocabulary, self._params, self._report = ranker, vocabulary, params, report
        self._omitted = omitted
        self._layouts: dict[Pattern, list[Step]] = {}
        self._queue: list[Entry] = []
        self._serials = count()
        self._n_expansions = 0
        self._seen: set[tuple[str, ...]] = set()
        self._repeats: Counter[str] = Counter()
        self._saturated: set[str] = set()
        self.tuples: list[Candidate] = []
        self.rejected: Counter[str] = Counter()
        self.notice: str | None = None
        self.n_proved: int | None = None

    def run(self, patterns: Sequence[Pattern], head: str | None = None) -> Found:
        """Return the best `params.n_candidates` tuples over all `patterns`. Call only once per instance.

        head: first entity of all tuples. `patterns` and the MTL then cover only the other slots. Raises BadSeed if the
        LM cannot write the head.
        The result is independent of earlier searches if the ranker and the vocabulary are new.
        """
        lm = self._ranker.lm
        first = () if head is None else (lm.encode_entity(head),)
        entities = () if head is None else (entity_of(head),)
        for rest in patterns:
            pattern = (*map(len, first), *rest)
            self._layouts[pattern] = layout(pattern, lm.entity_end)
            self._push(Candidate(pattern, filled_tokens(lm, first), (), entities, is_complete=not rest))
        while self._queue and self._n_missing and not self._exceeds_budget():
            self._process(self._pop())
        while self._queue and self._n_missing:  # after a budget is exhausted, complete tuples on top are still final
            top = self._queue[0][-1]
            if isinstance(top, Expansion) or (isinstance(top, Candidate) and not top.is_complete):
                break
            self._process(self._pop())
        if self.n_proved is not None and self.notice is None:
            self.notice = (
                f"The first {self.n_proved:,} of {len(self.tuples):,} proposed tuples are proved to be the best. After "
                "them, tuples may be missing because the LM server lists a limited number of next tokens."
            )
        return Found(self.tuples, self.rejected, self._ranker.n_states, self.notice)

    @property
    def _n_missing(self) -> int:
        return self._params.n_candidates - len(self.tuples)

    def _process(self, item: Item) -> None:
        if self._has_saturated(item.entities):
            return
        if isinstance(item, Expansion):
            self._draw_from(item)
        elif isinstance(item, Rejected):
            self.rejected[item.rule] += 1
        elif isinstance(item, Unnamed):
            self.n_proved = len(self.tuples) if self.n_proved is None else self.n_proved
        elif item.is_complete:
            self._accept(item)
        else:
            self._expand([item, *self._next_to_expand()])

    def _accept(self, candidate: Candidate) -> None:
        if candidate.folded in self._seen:
            self.rejected[DUPLICATE] += 1
            return
        self._seen.add(candidate.folded)
        if candidate.folded in self._omitted:
            self.rejected[EXAMPLE] += 1
            return
        self.tuples.append(candidate)
        for entity in set(candidate.folded):
            self._repeats[entity] += 1
            if self._repeats[entity] == self._params.proposed_entity_repeats:
                self._saturated.add(entity)

    def _has_saturated(self, entities: Sequence[Entity]) -> bool:
        return bool(self._saturated) and any(entity.folded in self._saturated for entity in entities)

    def _expand(self, candidates: Sequence[Candidate]) -> None:
        """Rank the possible next tokens of each candidate."""
        states = [
            State(candidate.pattern, candidate.tokens, self._layouts[candidate.pattern][len(candidate.tokens)])
            for candidate in candidates
        ]
        ranked = self._ranker.rank(states, lambda: self._report(len(self.tuples)))
        for candidate, state, tokens in zip(candidates, states, ranked, strict=True):
            self._push_expansion(Expansion(candidate, state.step, tokens))

    def _next_to_expand(self) -> list[Candidate]:
        """Pop the next best partial candidates for the current batch. Their number is limited to save evaluations."""
        limit = min(self._ranker.states_at_once, max(8, self._ranker.n_states // 6)) - 1
        batch: list[Candidate] = []
        aside: list[Entry] = []  # complete tuples and rejections, which are processed only on top
        while self._queue and len(batch) < limit and len(aside) < self._n_missing:
            entry = heapq.heappop(self._queue)
            item = entry[-1]
            if isinstance(item, Expansion):
                self._n_expansions -= 1
                if not self._has_saturated(item.entities):
                    self._draw_from(item)
            elif isinstance(item, Candidate) and not item.is_complete:
                batch += [] if self._has_saturated(item.entities) else [item]
            else:
                aside.append(entry)
            self._report(len(self.tuples))
        for entry in aside:
            heapq.heappush(self._queue, entry)
        return batch

    # Queue

    def _pop(self) -> Item:
        self._report(len(self.tuples))
        item = heapq.heappop(self._queue)[-1]
        self._n_expansions -= isinstance(item, Expansion)
        return item

    def _push(self, candidate: Candidate) -> None:
        # Ties: incomplete candidates sort first, so a complete tuple on top of the heap is final.
        self._enqueue(self._position(candidate), candidate, candidate.names if candidate.is_complete else ())

    def _push_expansion(self, expansion: Expansion) -> None:
        if expansion.next is not None:
            self._n_expansions += 1
            self._enqueue(self._position_after(expansion.candidate, expansion.step, expansion.next), expansion)

    def _enqueue(self, costs: Costs, item: Item, names: Names = ()) -> None:
        heapq.heappush(self._queue, (costs, bool(names), names, next(self._serials), item))

    def _draw_from(self, expansion: Expansion) -> None:
        """Queue the candidate extended by the next token. Requeue `expansion` for the token after that."""
        ranked = expansion.draw()
        candidate, step = expansion.candidate, expansion.step
        if ranked[0] == UNNAMED:
            self._enqueue(self._position_after(candidate, step, ranked), Unnamed(candidate.entities))
        elif step.ends_entity:
            self._end_entity(candidate, step, ranked)
        else:
            self._push(self._extended(candidate, step, ranked, candidate.entities))
        self._push_expansion(expansion)

    def _end_entity(self, candidate: Candidate, step: Step, ranked: RankedToken) -> None:
        """Queue the candidate with the completed entity, or the rejection of the entity."""
        entity = self._vocabulary.look_up((*candidate.tokens[len(candidate.tokens) - step.n_before :], ranked[0]))
        if isinstance(entity, Entity):
            if not self._vocabulary.rejects_beside(entity, candidate.entities):
                self._push(self._extended(candidate, step, ranked, (*candidate.entities, entity)))
                return
            rule: str | None = OVERLAP
        else:
            rule = entity.rule
        if rule:
            self._enqueue(self._position_after(candidate, step, ranked), Rejected(rule, candidate.entities))

    def _extended(
        self, candidate: Candidate, step: Step, ranked: RankedToken, entities: tuple[Entity, ...]
    ) -> Candidate:
        """Return the candidate with one more token."""
        tokens = (*candidate.tokens, ranked[0])
        is_complete = len(tokens) == len(self._layouts[candidate.pattern])
        return Candidate(candidate.pattern, tokens, candidate.costs_with(ranked[1]), entities, is_complete)

    def _position(self, candidate: Candidate) -> Costs:
        return candidate.costs

    def _position_after(self, candidate: Candidate, step: Step, ranked: RankedToken) -> Costs:
        """Return the first position that an extension of `candidate` by this or a later next token can have."""
        return candidate.costs_with(ranked[1])

    # Budgets

    def _exceeds_budget(self) -> bool:
        n_bytes = (
            self._n_expansions * (EXPANSION_BYTES + self._ranker.vector_bytes)
            + (len(self._queue) - self._n_expansions) * CANDIDATE_BYTES
            + len(self.tuples) * TUPLE_BYTES
            + len(self._vocabulary) * ENTITY_BYTES
        )
        if self._ranker.n_states >= self._params.state_budget:
            self.notice = self._stopped(f"after {self._params.state_budget:,} evaluated states", "state")
        elif n_bytes > self._params.memory_budget_mb * 2**20:
            self.notice = self._stopped(f"at its memory budget of {self._params.memory_budget_mb:,} MB", "memory")
        return self.notice is not None

    def _stopped(self, reason: str, budget: str) -> str:
        return (
            f"Search stopped {reason} with the best {len(self.tuples):,} of {self._params.n_candidates:,} tuples. "
            f"Increase the {budget} budget or request fewer candidates."
        )
