"""Independent parts of a harvest: searches of token-count patterns and re-scoring of candidates.

The LM batches of a part depend only on that part. On the same kind of hardware, floating-point results are therefore
bit-identical, regardless of the other parts and of the process that runs the part.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol, TypeVar

from kgharvest.engine.consistency_search import ConsistencySearch, PromptRanker
from kgharvest.engine.entities import EntityVocabulary, entity_of
from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.base import GivesLogprobs, LanguageModel, Pattern, fits
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.rescoring import MIN_TOGETHER, rescore, with_common_heads
from kgharvest.engine.search import BestFirstSearch, Candidate, Found, Report, merge_found, pattern_groups
from kgharvest.engine.types import BadSeed, HarvestParams, OnProgress, Reporter, ScoredTuple

MOST_RESCORE_PARTS = 32
HEADS_PER_PART = 20

ResultT = TypeVar("ResultT")
ResultCo = TypeVar("ResultCo", covariant=True)


@dataclass(frozen=True)
class Question:
    """Prompts and parameters shared by all parts of a harvest.

    templates: prompts whose words must not be entities. examples: case-folded tuples that the prompts show.
    """

    prompt_set: PromptSet
    templates: tuple[PromptTemplate, ...]
    params: HarvestParams
    examples: frozenset[tuple[str, ...]] = frozenset()


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
    """A joint search of `patterns`, for every head in turn if there are heads. size: number of candidates requested."""

    patterns: tuple[Pattern, ...]
    size: int
    heads: tuple[str, ...] = ()

    def do(self, lm: LanguageModel, question: Question, report: Report) -> Found:
        params, prompts = question.params, question.prompt_set
        vocabulary = EntityVocabulary(lm, EntityFilter(question.templates, params.disabled_filters, params.numbers))
        if params.order == "consistency":
            by_prompt = PromptRanker(prompts.reader(lm), prompts, params.batch_size)
            return ConsistencySearch(by_prompt, vocabulary, params, report, question.examples).run(self.patterns)
        found: list[Found] = []
        for head in self.heads or (None,):

            def report_part(n: int, n_before: int = sum(len(part.candidates) for part in found)) -> None:
                report(n_before + n)

            ranker = make_ranker(prompts.reader(lm), prompts, params)
            found.append(BestFirstSearch(ranker, vocabulary, params, report_part).run(self.patterns, head))
        return merge_found([self.patterns] * len(found), found)


def search_parts(question: Question, heads: Sequence[str] = ()) -> list[SearchPart]:
    """Return the searches of a harvest, longest first. heads: `writable_heads`, if the params have heads."""
    arity, params = len(question.prompt_set.prompts[0].slots), question.params
    if not params.heads:
        return [SearchPart(group, params.n_candidates) for group in pattern_groups(arity, params)]
    parts = [tuple(heads[start : start + HEADS_PER_PART]) for start in range(0, len(heads), HEADS_PER_PART)]
    groups = pattern_groups(arity - 1, params)
    return [SearchPart(group, params.n_candidates * len(part), part) for group in groups for part in parts]


def writable_heads(lm: LanguageModel, question: Question) -> list[str]:
    """Return the params' heads that `lm` can write in every prompt, without heads that differ only in case."""
    heads: dict[str, str] = {}
    prompts = question.prompt_set.prompts
    longest = (question.params.max_entity_tokens,) * (len(prompts[0].slots) - 1)
    for head in question.params.heads:
        with suppress(BadSeed):
            pattern = (len(lm.encode_entity(head)), *longest)
            if all(fits(lm, prompt, pattern) for prompt in prompts):
                heads.setdefault(entity_of(head).folded, head)
    return list(heads.values())


def make_ranker(lm: LanguageModel, prompts: PromptSet, params: HarvestParams) -> TokenRanker:
    if isinstance(lm, GivesLogprobs):
        ranker: TokenRanker = lm.ranker(prompts.prompts, prompts.weights, params.batch_size)
        return ranker
    return TokenRanker(lm, prompts.prompts, prompts.weights, params.batch_size, prompts.combine == "mixture")


# Re-scoring


@dataclass(frozen=True)
class RescorePart:
    """Re-scoring of `candidates`. All candidates with a common head are in one part, because they share LM queries.

    floor: candidates with a lower consistency can be missing from the result.
    """

    candidates: tuple[Candidate, ...]
    floor: float = -inf

    @property
    def size(self) -> int:
        return len(self.candidates)

    def do(self, lm: LanguageModel, question: Question, report: Report) -> list[ScoredTuple]:
        reader = question.prompt_set.reader(lm)
        return rescore(reader, question.prompt_set, self.candidates, question.params, report, self.floor)


def rescore_parts(candidates: Sequence[Candidate], floor: float = -inf) -> list[RescorePart]:
    """Return at most MOST_RESCORE_PARTS parts."""
    size = max(MIN_TOGETHER, ceil(len(candidates) / MOST_RESCORE_PARTS))
    return [RescorePart(tuple(together), floor) for together in with_common_heads(candidates, size)]
