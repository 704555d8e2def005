"""Independent parts of a harvest: searches of token-count patterns and re-scoring of candidate chunks.

The LM batches of a part depend only on that part. On the same kind of hardware, floating-point results are therefore
bit-identical, regardless of the other parts and of the process that runs the part.
"""

from collections.abc import Callable, Sequence
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
from kgharvest.engine.search import BestFirstSearch, Candidate, Found, Report, pattern_groups
from kgharvest.engine.types import BadSeed, HarvestParams, OnProgress, Reporter, ScoredTuple

# Maximum number of LM queries per re-scoring chunk. Limits memory and lets workers share the work of a slow LM evenly.
QUESTIONS_AT_ONCE = 5_000
MOST_RESCORE_PARTS = 32
SPELLINGS = 3  # maximum per entity

ResultT = TypeVar("ResultT")
ResultCo = TypeVar("ResultCo", covariant=True)


@dataclass(frozen=True)
class Question:
    """Prompts and parameters shared by all parts of a harvest. templates: prompts whose words must not be entities."""

    prompt_set: PromptSet
    templates: tuple[PromptTemplate, ...]
    params: HarvestParams


class Part(Protocol[ResultCo]):
    """A unit of work that returns a result. size: number of progress units, as defined by the stage."""

    @property
    def size(self) -> int: ...

    def do(self, lm: LanguageModel, question: Question, report: Report) -> ResultCo:
        """Return the result. Calls `report` frequently with the number of completed units. Raises EngineError."""


Do = Callable[[Part[ResultT], Report], ResultT]


class Share(Protocol):
    """Runner for the parts of a stage. Runs them in any order and returns the results in the order of `parts`."""

    def __call__(self, stage: str, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> list[ResultT]: ...


@dataclass(frozen=True)
class InTurn:
    """Runner that processes parts sequentially in this process."""

    on_progress: OnProgress

    def __call__(self, stage: str, parts: Sequence[Part[ResultT]], do: Do[ResultT]) -> list[ResultT]:
        report = Reporter(self.on_progress, stage, sum(part.size for part in parts))
        results, n_before = [], 0
        for part in parts:

            def report_part(n_done: int, n_before: int = n_before) -> None:
                report(n_before + n_done)

            results.append(do(part, report_part))
            n_before += part.size
            report(n_before)
        return results


# Search


@dataclass(frozen=True)
class SearchPart:
    """A joint search of `patterns`. size: number of candidates requested."""

    patterns: tuple[Pattern, ...]
    size: int

    def do(self, lm: LanguageModel, question: Question, report: Report) -> Found:
        params = question.params
        ranker = make_ranker(question.prompt_set.reader(lm), question.prompt_set, params)
        vocabulary = EntityVocabulary(lm, EntityFilter(question.templates, params.disabled_filters))
        return BestFirstSearch(ranker, vocabulary, params, report).run(self.patterns)


def search_parts(question: Question) -> list[SearchPart]:
    """Return the searches of a harvest, longest first."""
    arity = len(question.prompt_set.prompts[0].slots)
    return [SearchPart(group, question.params.n_candidates) for group in pattern_groups(arity, question.params)]


def make_ranker(lm: LanguageModel, prompts: PromptSet, params: HarvestParams) -> TokenRanker:
    if isinstance(lm, GivesLogprobs):
        ranker: TokenRanker = lm.ranker(prompts.prompts, prompts.weights, params.batch_size)
        return ranker
    return TokenRanker(lm, prompts.prompts, prompts.weights, params.batch_size, prompts.combine == "mixture")


# Re-scoring


@dataclass(frozen=True)
class RescorePart:
    """Re-scoring of `candidates`, sorted by `rescore_order`. All parts but the last contain only whole chunks."""

    candidates: tuple[Candidate, ...]

    @property
    def size(self) -> int:
        return len(self.candidates)

    def do(self, lm: LanguageModel, question: Question, report: Report) -> list[ScoredTuple]:
        return rescore(question.prompt_set.reader(lm), question.prompt_set, self.candidates, question.params, report)


def rescore_parts(lm: LanguageModel, question: Question, candidates: Sequence[Candidate]) -> list[RescorePart]:
    """Return at most MOST_RESCORE_PARTS parts of whole chunks, all of equal size except the last."""
    chunk = rescored_at_once(lm, question.prompt_set.prompts, question.params)
    in_order = sorted(candidates, key=rescore_order)
    size = chunk * max(1, ceil(ceil(len(in_order) / chunk) / MOST_RESCORE_PARTS))
    return [RescorePart(tuple(in_order[start : start + size])) for start in range(0, len(in_order), size)]


def rescore_order(candidate: Candidate) -> tuple[Pattern, tuple[str, ...]]:
    """Sort key that makes candidates with shared prefixes adjacent. Each prefix is evaluated once per chunk."""
    return candidate.pattern, candidate.folded


def rescore(
    lm: LanguageModel, prompt_set: PromptSet, candidates: Sequence[Candidate], params: HarvestParams, report: Report
) -> list[ScoredTuple]:
    """Return the candidates with their consistency, each in its most consistent casing, in unspecified order."""
    prompts, weights = prompt_set.prompts, np.array(prompt_set.weights)
    in_order = iter(sorted(candidates, key=rescore_order))
    scored: list[ScoredTuple] = []
    while chunk := list(islice(in_order, rescored_at_once(lm, prompts, params))):
        tick = partial(report, len(scored))
        variants = [
            (candidate, surface, ids) for candidate in chunk for surface, ids in casings(lm, prompts, candidate)
        ]
        ids = [ids for _, _, ids in variants]
        scores = compatibilities(lm, prompts, ids, params.alpha, params.batch_size, tick)  # (E, P)
        pairs = zip(variants, consistency(scores, weights).tolist(), strict=True)
        for _, group in groupby(pairs, key=lambda pair: id(pair[0][0])):  # ties: the first casing wins
            (candidate, surface, _), score = max(group, key=lambda pair: pair[1])
            scored.append(ScoredTuple(candidate.folded, surface, score, candidate.mtl))
        report(len(scored))
    return scored


def scorable(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], tuples: Sequence[Sequence[Entity]]
) -> list[Candidate]:
    """Return `tuples` as candidates, without tuples that `lm` cannot write or that are too long for a prompt."""
    encoded = [try_encode(lm, prompts, [entity.surface for entity in entities]) for entities in tuples]
    return [
        Candidate(tuple(map(len, ids)), entities=tuple(entities), is_complete=True)
        for entities, ids in zip(tuples, encoded, strict=True)
        if ids is not None
    ]


def rescored_at_once(lm: LanguageModel, prompts: Sequence[EncodedPrompt], params: HarvestParams) -> int:
    """Return the number of tuples per re-scoring chunk."""
    arity = len(prompts[0].slots)
    n_variants = SPELLINGS**arity if lm.is_cased else 1
    n_tokens = arity * (params.max_entity_tokens + len(lm.entity_end))
    return max(1, QUESTIONS_AT_ONCE // (len(prompts) * n_variants * n_tokens))


def casings(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], candidate: Candidate
) -> list[tuple[tuple[str, ...], Encoded]]:
    """Return the casings of the tuple that `lm` can write: the original, then lower-case and title-case variants."""
    original = (candidate.surface, tuple(lm.encode_entity(entity) for entity in candidate.surface))
    if not lm.is_cased:
        return [original]
    variants = list(product(*map(spellings, candidate.surface)))[1:]
    encoded = [(surface, try_encode(lm, prompts, surface)) for surface in variants]
    return [original, *((surface, ids) for surface, ids in encoded if ids is not None)]


def spellings(entity: str) -> list[str]:
    """Return the original, lower-case, and title-case spelling of `entity`.

    Omits spellings that are unwritable or case-fold to another entity. Example: the title case of both "ısı" and "isı"
    is "Isı".
    """
    cased = dict.fromkeys((entity, entity.lower(), capwords(entity)))
    return [spelling for spelling in cased if spelling.casefold() == entity.casefold() and is_writable(spelling)]


def try_encode(lm: LanguageModel, prompts: Sequence[EncodedPrompt], surface: Sequence[str]) -> Encoded | None:
    """Return the entity ids, or None if `lm` cannot write an entity or a prompt becomes too long."""
    try:
        encoded = tuple(lm.encode_entity(entity) for entity in surface)
    except BadSeed:
        return None
    pattern = tuple(map(len, encoded))
    return encoded if all(fits(lm, prompt, pattern) for prompt in prompts) else None
