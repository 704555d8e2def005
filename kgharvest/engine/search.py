"""The exact best-first search for candidate tuples (BertNet, section 3.2 and App. C).

It returns the N tuples with the largest MTL (minimum token log-likelihood), in a total order: MTL first, then the
sorted token log-probabilities, smallest first (leximin), then the entity strings. One more token can only lower a
candidate in that order, so a candidate on top of the queue bounds all that follows from it, and a complete tuple on top
is final. A candidate is put to the LM only when it gets there, together with the next best ones to make a batch.

An entity occurs in `params.proposed_entity_repeats` of them at most, counted in that order.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import NamedTuple

from kgharvest.engine.entities import Entity, EntityVocabulary
from kgharvest.engine.filters import DUPLICATE, OVERLAP
from kgharvest.engine.language_models.base import Pattern, TokenIds
from kgharvest.engine.ranking import UNNAMED, RankedToken, State, Step, TokenRanker, layout
from kgharvest.engine.types import HarvestParams

Names = tuple[tuple[str, ...], ...]  # of a complete tuple: case-folded entities, then as written
Costs = tuple[float, ...]  # -log p of a candidate's tokens, largest first, zeros left out: tuple order is leximin order
Report = Callable[[int], None]  # called with the number of tuples found, often

# What things take in memory, measured on CPython 3.11 and rounded up.
EXPANSION_BYTES, CANDIDATE_BYTES, TUPLE_BYTES, ENTITY_BYTES = 4_000, 1_000, 1_500, 500


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

    @property
    def names(self) -> Names:
        return self.folded, self.surface

    def costs_with(self, cost: float) -> Costs:
        return tuple(sorted((*self.costs, cost), reverse=True)) if cost > 0 else self.costs


class Expansion:
    """A candidate with the tokens that may come next, as the LM ranks them; `next` is the best not yet drawn."""

    __slots__ = ("_ranked", "candidate", "next", "step")

    def __init__(self, candidate: Candidate, step: Step, ranked: Iterator[RankedToken]) -> None:
        self.candidate, self.step = candidate, step
        self._ranked = ranked
        self.next = next(ranked, None)

    @property
    def entities(self) -> tuple[Entity, ...]:
        return self.candidate.entities

    def draw(self) -> RankedToken:
        drawn = self.next
        assert drawn is not None, "an exhausted expansion is never queued"
        self.next = next(self._ranked, None)
        return drawn


@dataclass(frozen=True, slots=True)
class Rejected:
    """That `rule` rejects an entity beside `entities`; queued, because only what the search reaches is counted."""

    rule: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Unnamed:
    """That tokens which no server has named may follow beside `entities`; below it in the queue nothing is proved."""

    entities: tuple[Entity, ...]


Item = Candidate | Expansion | Rejected | Unnamed
Entry = tuple[Costs, bool, Names, int, Item]  # costs, whether complete, names, serial number


class Found(NamedTuple):
    """What searches found. `candidates`: best first. `notice`: a sentence if a budget ended one."""

    candidates: list[Candidate]
    rejected: Counter[str]
    n_states: int
    notice: str | None = None


def pattern_groups(arity: int, params: HarvestParams) -> list[tuple[Pattern, ...]]:
    """Return the token-count patterns that are searched together, the most tokens first: they take longest.

    Each pattern alone has its candidates, its entity cap and its budgets, unless all of them share these.
    """
    patterns = sorted(product(range(1, params.max_entity_tokens + 1), repeat=arity), key=sum, reverse=True)
    return [tuple(patterns)] if params.pattern_budget == "shared" else [(pattern,) for pattern in patterns]


def search_group(
    ranker: TokenRanker, vocabulary: EntityVocabulary, params: HarvestParams, report: Report, group: Sequence[Pattern]
) -> Found:
    """Return the `params.n_candidates` best tuples of the patterns of `group` together.

    What is found depends on nothing that was asked before if `ranker` and `vocabulary` are new.
    """
    search = BestFirstSearch(ranker, vocabulary, params, report)
    search.run(group)
    return Found(search.tuples, search.rejected, ranker.n_states, search.notice)


def merge_found(groups: Sequence[Sequence[Pattern]], found: Sequence[Found]) -> Found:
    """Return what searches of `groups` found together, each tuple once.

    Of a tuple that several patterns have, as a cased LM writes "Us" and "us" with other tokens, the better one stays.
    """
    candidates = [candidate for part in found for candidate in part.candidates]
    distinct = best_of_equals(candidates)
    rejected = sum((part.rejected for part in found), Counter[str]())
    rejected[DUPLICATE] += len(candidates) - len(distinct)
    ended = [(group, part.notice) for group, part in zip(groups, found, strict=True) if part.notice]
    notice = ended[0][1] if ended else None
    if notice and len(groups) > 1:
        patterns = sorted("-".join(map(str, group[0])) for group, _ in ended)
        notice += f" So it was with {len(ended)} of {len(groups)} token-count patterns: {', '.join(patterns)}."
    return Found(distinct, +rejected, sum(part.n_states for part in found), notice)


def best_of_equals(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, best first; of those equal after case-folding only the best."""
    best: dict[tuple[str, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: (candidate.costs, candidate.names)):
        best.setdefault(candidate.folded, candidate)
    return list(best.values())


class BestFirstSearch:
    """One queue of candidates to expand, expansions, complete tuples and rejections, the best on top.

    tuples: the best ones so far, final and in order. n_proved: how many of them are known to be the best, None for all.
    """

    def __init__(
        self, ranker: TokenRanker, vocabulary: EntityVocabulary, params: HarvestParams, report: Report
    ) -> None:
        self._ranker, self._vocabulary, self._params, self._report = ranker, vocabulary, params, report
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

    def run(self, patterns: Sequence[Pattern]) -> None:
        """Find the best `params.n_candidates` tuples of `patterns` together; call it once."""
        for pattern in patterns:
            self._layouts[pattern] = layout(pattern, self._ranker.lm.entity_end)
            self._push(Candidate(pattern))
        while self._queue and self._n_missing and not self._exceeds_budget():
            self._process(self._pop())
        while self._queue and self._n_missing and self._top_is_final():  # what is proved when a budget is used up
            self._process(self._pop())
        if self.n_proved is not None and self.notice is None:
            self.notice = self._proved_in_part(self.n_proved)

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
        self.tuples.append(candidate)
        for entity in set(candidate.folded):
            self._repeats[entity] += 1
            if self._repeats[entity] == self._params.proposed_entity_repeats:
                self._saturated.add(entity)

    def _has_saturated(self, entities: Sequence[Entity]) -> bool:
        return bool(self._saturated) and any(entity.folded in self._saturated for entity in entities)

    def _expand(self, candidates: Sequence[Candidate]) -> None:
        """Let the LM rank what may come next in each of `candidates`."""
        states = [
            State(candidate.pattern, candidate.tokens, self._layouts[candidate.pattern][len(candidate.tokens)])
            for candidate in candidates
        ]
        ranked = self._ranker.rank(states, lambda: self._report(len(self.tuples)))
        for candidate, state, tokens in zip(candidates, states, ranked, strict=True):
            self._push_expansion(Expansion(candidate, state.step, tokens))

    def _next_to_expand(self) -> list[Candidate]:
        """Pop the next best candidates that wait for the LM, as many as make a batch without much work in vain."""
        limit = min(self._ranker.states_at_once, max(8, self._ranker.n_states // 6)) - 1
        waiting: list[Candidate] = []
        aside: list[Entry] = []  # complete tuples and rejections, which are processed only on top
        while self._queue and len(waiting) < limit and len(aside) < self._n_missing:
            entry = heapq.heappop(self._queue)
            item = entry[-1]
            if isinstance(item, Expansion):
                self._n_expansions -= 1
                if not self._has_saturated(item.entities):
                    self._draw_from(item)
            elif isinstance(item, Candidate) and not item.is_complete:
                waiting += [] if self._has_saturated(item.entities) else [item]
            else:
                aside.append(entry)
            self._report(len(self.tuples))
        for entry in aside:
            heapq.heappush(self._queue, entry)
        return waiting

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _pop(self) -> Item:
        self._report(len(self.tuples))
        item = heapq.heappop(self._queue)[-1]
        self._n_expansions -= isinstance(item, Expansion)
        return item

    def _top_is_final(self) -> bool:
        item = self._queue[0][-1]
        return isinstance(item, Rejected | Unnamed) or (isinstance(item, Candidate) and item.is_complete)

    def _push(self, candidate: Candidate) -> None:
        # What is incomplete comes before what is complete at equal costs: only then is the top tuple final.
        self._enqueue(candidate.costs, candidate, candidate.names if candidate.is_complete else ())

    def _push_expansion(self, expansion: Expansion) -> None:
        if expansion.next is not None:
            self._n_expansions += 1
            self._enqueue(expansion.candidate.costs_with(expansion.next[1]), expansion)

    def _enqueue(self, costs: Costs, item: Item, names: Names = ()) -> None:
        heapq.heappush(self._queue, (costs, bool(names), names, next(self._serials), item))

    def _draw_from(self, expansion: Expansion) -> None:
        """Queue what the next token of `expansion` makes of it, and `expansion` with the token after that."""
        token, cost = expansion.draw()
        candidate, step = expansion.candidate, expansion.step
        if token == UNNAMED:
            self._enqueue(candidate.costs_with(cost), Unnamed(candidate.entities))
        elif step.ends_entity:
            self._end_entity(candidate, step, token, cost)
        else:
            self._extend(candidate, token, cost, candidate.entities)
        self._push_expansion(expansion)

    def _end_entity(self, candidate: Candidate, step: Step, token: int, cost: float) -> None:
        """Queue the candidate with a complete entity, or the rule that rejects it."""
        entity = self._vocabulary.look_up((*candidate.tokens[len(candidate.tokens) - step.n_before :], token))
        if isinstance(entity, Entity):
            if not self._vocabulary.rejects_beside(entity, candidate.entities):
                self._extend(candidate, token, cost, (*candidate.entities, entity))
                return
            rule: str | None = OVERLAP
        else:
            rule = entity.rule
        if rule:
            self._enqueue(candidate.costs_with(cost), Rejected(rule, candidate.entities))

    def _extend(self, candidate: Candidate, token: int, cost: float, entities: tuple[Entity, ...]) -> None:
        tokens = (*candidate.tokens, token)
        is_complete = len(tokens) == len(self._layouts[candidate.pattern])
        self._push(Candidate(candidate.pattern, tokens, candidate.costs_with(cost), entities, is_complete))

    # -- budgets -------------------------------------------------------------------------------------------------------

    def _exceeds_budget(self) -> bool:
        if self._ranker.n_states >= self._params.state_budget:
            self.notice = self._stopped(f"its budget of {self._params.state_budget:,} evaluated states", "state")
        elif self._memory_bytes() > self._params.memory_budget_mb * 2**20:
            self.notice = self._stopped(f"its memory budget of {self._params.memory_budget_mb:,} MB", "memory")
        return self.notice is not None

    def _memory_bytes(self) -> int:
        return (
            self._n_expansions * (EXPANSION_BYTES + self._ranker.vector_bytes)
            + (len(self._queue) - self._n_expansions) * CANDIDATE_BYTES
            + len(self.tuples) * TUPLE_BYTES
            + len(self._vocabulary) * ENTITY_BYTES
        )

    def _proved_in_part(self, n_proved: int) -> str:
        return (
            f"The first {n_proved:,} of {len(self.tuples):,} proposed tuples are proved to be the best; others may be "
            "missing after them, as the LM's server names only so many of the likeliest next tokens."
        )

    def _stopped(self, at: str, budget: str) -> str:
        return (
            f"The search stopped at {at} with the best {len(self.tuples):,} tuples of {self._params.n_candidates:,}; "
            f"raise the {budget} budget or ask for fewer candidates."
        )
