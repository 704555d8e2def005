"""Independent parts of a harvest: searches of token-count patterns and re-scoring of candidates.

The LM batches of a part depend only on that part. On the same kind of hardware, floating-point results are therefore
bit-identical, regardless of the other parts and of the process that runs the part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol, TypeVar

from kgharvest.engine.entities import EntityVocabulary
from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.base import GivesLogprobs, LanguageModel, Pattern
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.rescoring import MIN_TOGETHER, rescore, with_common_heads
from kgharvest.engine.search import BestFirstSearch, Candidate, Found, Report, pattern_groups
from kgharvest.engine.types import HarvestParams, OnProgress, Reporter, ScoredTuple

MOST_RESCORE_PARTS = 32

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
