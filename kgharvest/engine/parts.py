"""The parts of a harvest, each done by itself: searches of token-count patterns, re-scoring of runs of candidates.

A part puts the LM questions in batches that depend on nothing outside it. So its floating-point results are the same to
the bit whoever does it, after or beside whatever other parts, on hardware of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice, product
from math import ceil
from string import capwords
from typing import Protocol, TypeVar

import numpy as np

from kgharvest.engine.entities import Entity, EntityVocabulary, is_writable
from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.base import EncodedPrompt, GivesLogprobs, LanguageModel, Pattern, fits
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.scoring import Encoded, compatibilities, consistency
from kgharvest.engine.search import Candidate, Found, Report, pattern_groups, search_group
from kgharvest.engine.types import BadSeed, HarvestParams, OnProgress, Reporter, ScoredTuple

# Put together for re-scoring at most: bounds its memory, and how evenly several workers can share a slow LM's work.
QUESTIONS_AT_ONCE = 5_000
MOST_RESCORE_PARTS = 32
SPELLINGS = 3  # of an entity at most

ResultT = TypeVar("ResultT")
ResultCo = TypeVar("ResultCo", covariant=True)


@dataclass(frozen=True)
class Question:
    """What every part of a harvest asks. templates: whose words are no entities."""

    prompt_set: PromptSet
    templates: tuple[PromptTemplate, ...]
    params: HarvestParams


class Part(Protocol[ResultCo]):
    """size: in the units that its stage reports."""

    @property
    def size(self) -> int: ...

    def do(self, lm: LanguageModel, question: Question, report: Report) -> ResultCo:
        """Return the result; `report` is called with the units done, often. Raises EngineError."""


Do = Callable[[Part[ResultT], Report], ResultT]


class Share(Protocol):
    """Has the parts of a stage done, by whomever and in whatever order; returns their results in the order of parts."""

    def __call__(self, stage: str, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> list[ResultT]: ...


@dataclass(frozen=True)
class InTurn:
    """Does one part after the other."""

    on_progress: OnProgress

    def __call__(self, stage: str, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> list[ResultT]:
        report = Reporter(self.on_progress, stage, sum(part.size for part in parts))
        results, n_before = [], 0
        for part in parts:
            results.append(do(part, partial(report_after, report, n_before)))
            n_before += part.size
            report(n_before)
        return results


def report_after(report: Report, n_before: int, n_done: int) -> None:
    report(n_before + n_done)


# -- searching ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchPart:
    """patterns: searched together. size: the candidates wanted of them."""

    patterns: tuple[Pattern, ...]
    size: int

    def do(self, lm: LanguageModel, question: Question, report: Report) -> Found:
        params = question.params
        ranker = make_ranker(question.prompt_set.reader(lm), question.prompt_set, params)
        vocabulary = EntityVocabulary(lm, EntityFilter(question.templates, params.disabled_filters))
        return search_group(ranker, vocabulary, params, report, self.patterns)


def search_parts(question: Question) -> list[SearchPart]:
    """Return the searches of a harvest, the longest first."""
    arity = len(question.prompt_set.prompts[0].slots)
    return [SearchPart(group, question.params.n_candidates) for group in pattern_groups(arity, question.params)]


def make_ranker(lm: LanguageModel, prompts: PromptSet, params: HarvestParams) -> TokenRanker:
    if isinstance(lm, GivesLogprobs):
        ranker: TokenRanker = lm.ranker(prompts.prompts, prompts.weights, params.batch_size)
        return ranker
    return TokenRanker(lm, prompts.prompts, prompts.weights, params.batch_size, prompts.combine == "mixture")


# -- re-scoring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RescorePart:
    """candidates: in the order of `rescore_order`, as many as make whole chunks unless they are the last."""

    candidates: tuple[Candidate, ...]

    @property
    def size(self) -> int:
        return len(self.candidates)

    def do(self, lm: LanguageModel, question: Question, report: Report) -> list[ScoredTuple]:
        return rescore(question.prompt_set.reader(lm), question.prompt_set, self.candidates, question.params, report)


def rescore_parts(lm: LanguageModel, question: Question, candidates: Sequence[Candidate]) -> list[RescorePart]:
    """Return MOST_RESCORE_PARTS parts at most, all of one size but the last, of whole chunks."""
    chunk = rescored_at_once(lm, question.prompt_set.prompts, question.params)
    in_order = sorted(candidates, key=rescore_order)
    size = chunk * max(1, ceil(ceil(len(in_order) / chunk) / MOST_RESCORE_PARTS))
    return [RescorePart(tuple(in_order[start : start + size])) for start in range(0, len(in_order), size)]


def rescore_order(candidate: Candidate) -> tuple[Pattern, tuple[str, ...]]:
    """Neighbours share beginnings, which are asked once within a chunk."""
    return candidate.pattern, candidate.folded


def rescore(
    lm: LanguageModel, prompt_set: PromptSet, candidates: Sequence[Candidate], params: HarvestParams, report: Report
) -> list[ScoredTuple]:
    """Return the candidates with their consistency, each in its most consistent casing, in no particular order."""
    prompts, weights = prompt_set.prompts, np.array(prompt_set.weights)
    waiting = iter(sorted(candidates, key=rescore_order))
    scored: list[ScoredTuple] = []
    while chunk := list(islice(waiting, rescored_at_once(lm, prompts, params))):
        tick = partial(report, len(scored))
        variants = [
            (candidate, surface, ids) for candidate in chunk for surface, ids in casings(lm, prompts, candidate)
        ]
        ids = [ids for _, _, ids in variants]
        scores = compatibilities(lm, prompts, ids, params.alpha, params.batch_size, tick)  # (E, P)
        surfaces = [(candidate, surface) for candidate, surface, _ in variants]
        scored += best_casings(surfaces, consistency(scores, weights).tolist())
        report(len(scored))
    return scored


def scorable(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], tuples: Sequence[Sequence[Entity]]
) -> list[Candidate]:
    """Return as candidates those of given tuples that `lm` can write and take in every prompt."""
    encoded = [try_encode(lm, prompts, [entity.surface for entity in entities]) for entities in tuples]
    return [
        Candidate(tuple(map(len, ids)), entities=tuple(entities), is_complete=True)
        for entities, ids in zip(tuples, encoded, strict=True)
        if ids is not None
    ]


def rescored_at_once(lm: LanguageModel, prompts: Sequence[EncodedPrompt], params: HarvestParams) -> int:
    """Return how many tuples to re-score together."""
    arity = len(prompts[0].slots)
    n_variants = SPELLINGS**arity if lm.is_cased else 1
    n_tokens = arity * (params.max_entity_tokens + len(lm.entity_end))
    return max(1, QUESTIONS_AT_ONCE // (len(prompts) * n_variants * n_tokens))


def casings(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], candidate: Candidate
) -> list[tuple[tuple[str, ...], Encoded]]:
    """Return the ways that `lm` can write the tuple: as found, then with entities in lower and in title case."""
    as_found = (candidate.surface, tuple(lm.encode_entity(entity) for entity in candidate.surface))
    if not lm.is_cased:
        return [as_found]
    others = list(product(*map(spellings, candidate.surface)))[1:]
    written = [(surface, try_encode(lm, prompts, surface)) for surface in others]
    return [as_found, *((surface, ids) for surface, ids in written if ids is not None)]


def spellings(entity: str) -> list[str]:
    """Return `entity` as it is, in lower and in title case, without those that are another entity or none.

    "ısı" in title case is "Isı", which is the title case of "isı".
    """
    cased = dict.fromkeys((entity, entity.lower(), capwords(entity)))
    return [spelling for spelling in cased if spelling.casefold() == entity.casefold() and is_writable(spelling)]


def try_encode(lm: LanguageModel, prompts: Sequence[EncodedPrompt], surface: Sequence[str]) -> Encoded | None:
    """Return the ids of the entities, or None if `lm` cannot write them or cannot take them in every prompt."""
    try:
        encoded = tuple(lm.encode_entity(entity) for entity in surface)
    except BadSeed:
        return None
    pattern = tuple(map(len, encoded))
    return encoded if all(fits(lm, prompt, pattern) for prompt in prompts) else None


def best_casings(
    variants: Sequence[tuple[Candidate, tuple[str, ...]]], scores: Sequence[float]
) -> Iterator[ScoredTuple]:
    """Yield one scored tuple a candidate: its casing with the largest score, the first one of equals."""
    pairs = zip(variants, scores, strict=True)
    for _, group in groupby(pairs, key=lambda pair: id(pair[0][0])):
        (candidate, surface), score = max(group, key=lambda pair: pair[1])
        yield ScoredTuple(candidate.folded, surface, score, candidate.mtl)
