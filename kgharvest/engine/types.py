"""Parameters, specification and result of a harvest; errors and progress of the engine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from kgharvest.engine.filters import FILTERS

PatternBudget = Literal["each", "shared"]
ParaphraserKind = Literal["offline", "chat", "seq2seq", "translation"]

# A strict cap in the search would let early weak tuples use an entity up, which re-scoring could not undo.
REPEATS_PROPOSED_PER_KEPT = 4
MIN_CANDIDATES, CANDIDATES_PER_KEPT = 900, 3

HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)  # of a model; a folder is written as a path, ./name

N_TRIGGERS = 5  # of AutoPrompt, between two entities; as in the paper's baseline


class EngineError(Exception):
    """Something the engine cannot do. `str(error)` is one sentence for people: what is wrong, where, what to do."""


class BadPrompt(EngineError):
    """A prompt without a slot, with a slot twice, of another arity than the seeds, or too long for the LM."""


class BadSeed(EngineError):
    """Fewer than two seed tuples, seed tuples of different arity, or an entity the LM cannot express."""


class BadText(EngineError):
    """A text that an LM cannot be given as it is."""


class ModelNotFound(EngineError):
    """Neither a local folder with a model nor a hub id that can be reached."""


class UnsupportedModel(EngineError):
    """A model that loads but is of no family that can fill in blanks."""


class BrokenModel(EngineError):
    """An LM that answers with NaN, or that does not fit into memory even one sequence at a time."""


class Cancelled(EngineError):
    """Raised by a progress callback to stop the work; the engine lets it pass."""


class Progress(NamedTuple):
    """How far a stage is: `done` of `total` units; `total` is None while unknown. note: how it is done, for people."""

    stage: str
    done: int
    total: int | None = None
    note: str = ""


OnProgress = Callable[[Progress], None]
SECONDS_BETWEEN_REPORTS = 0.2


def ignore(progress: Progress) -> None:
    """Report progress to nobody."""


class Reporter:
    """Passes the progress of a stage on, a few times a second."""

    def __init__(self, on_progress: OnProgress, stage: str, total: int) -> None:
        self._on_progress, self._stage, self._total = on_progress, stage, total
        self._next = 0.0

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == self._total:
            self._next = now + SECONDS_BETWEEN_REPORTS
            self._on_progress(Progress(self._stage, done, self._total))


@dataclass(frozen=True)
class HarvestParams:
    """How a harvest is done.

    alpha: weight of the joint log-likelihood in the compatibility (BertNet, Eq. 1).
    candidates: tuples proposed by MTL, per token-count pattern or in all (`pattern_budget`); None is 900, or three for
        each of `max_tuples` where that is more.
    max_tuples: tuples kept after re-scoring; None keeps all.
    max_entity_tokens: longest entity, in tokens of the LM.
    max_entity_repeats: kept tuples that may share an entity; None is no cap. The search proposes four times as many.
    disabled_filters: names from `filters.FILTERS` that do not apply.
    batch_size: sequences per forward at most; changes speed and memory, never the result.
    seed: of the random draws in prompt creation.
    state_budget, memory_budget_mb: a search stops with what is proved when it would need more; each token-count pattern
        is a search of its own, unless they share the candidates.
    """

    alpha: float = 2 / 3
    candidates: int | None = None
    max_tuples: int | None = None
    max_entity_tokens: int = 2
    max_entity_repeats: int | None = 10
    pattern_budget: PatternBudget = "each"
    disabled_filters: frozenset[str] = frozenset()
    batch_size: int = 256
    state_budget: int = 5_000_000
    memory_budget_mb: int = 4096
    seed: int = 0

    @property
    def n_candidates(self) -> int:
        return self.candidates or max(MIN_CANDIDATES, CANDIDATES_PER_KEPT * (self.max_tuples or 0))

    def n_candidates_in_all(self, arity: int) -> int:
        """Return how many tuples are proposed by MTL for a relation of this arity, over all token-count patterns."""
        n_budgets = 1 if self.pattern_budget == "shared" else self.max_entity_tokens**arity
        return n_budgets * self.n_candidates

    @property
    def proposed_entity_repeats(self) -> int | None:
        """Proposed tuples that may share an entity; None is no cap."""
        return None if self.max_entity_repeats is None else REPEATS_PROPOSED_PER_KEPT * self.max_entity_repeats

    def __post_init__(self) -> None:
        for name in ("candidates", "max_tuples", "max_entity_tokens", "max_entity_repeats", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineError(f"{name} is {value}; it has to be 1 or more.")
        if self.pattern_budget not in get_args(PatternBudget):
            raise EngineError(f"There is no pattern budget {self.pattern_budget!r}; choose each or shared.")
        unknown = sorted(self.disabled_filters - set(FILTERS))
        if unknown:
            raise EngineError(f"There is no filter {unknown[0]!r} to switch off; the filters are {', '.join(FILTERS)}.")


@dataclass(frozen=True)
class ParaphraserSettings:
    """Which paraphraser creates prompts.

    model: the chat model's name, or the seq2seq model's hub id or folder; of a translation two, as OUT,BACK.
    base_url: of the chat endpoint, as in `https://api.openai.com/v1`; its key is in KGHARVEST_PARAPHRASER_API_KEY.
    max_calls, max_tokens: the chat endpoint's spend cap per harvest.
    prefix, seed: what a seq2seq model expects before a sentence; draws samples instead of the best of a beam search.
    """

    kind: ParaphraserKind = "offline"
    model: str = ""
    base_url: str = ""
    max_calls: int = 100
    max_tokens: int = 100_000
    prefix: str = ""
    seed: int | None = None


@dataclass(frozen=True)
class HarvestSpec:
    """A relation and how to ask for it.

    initial_prompts: templates with every slot `<ENT0>` .. `<ENTn-1>` exactly once.
    prompts: ready prompts; empty means that the setting creates them where it needs any.
    setting: one of `kgharvest.engine.settings.SETTINGS`.
    """

    relation: str
    initial_prompts: tuple[str, ...]
    seed_tuples: tuple[tuple[str, ...], ...]
    setting: str
    prompts: tuple[str, ...] = ()
    params: HarvestParams = field(default_factory=HarvestParams)
    paraphraser: ParaphraserSettings = field(default_factory=ParaphraserSettings)


@dataclass(frozen=True)
class WeightedPrompt:
    """A prompt with its mean compatibility over the seed tuples (nats, <= 0) and its weight, in [0, 1], of sum 1.

    text: what a person reads; of a learned prompt the tokens, or the words nearest to its vectors. token_ids: of the
    texts around the slots, where `text` may not give them back: of learned tokens.
    """

    text: str
    compatibility: float
    weight: float
    token_ids: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class ScoredTuple:
    """A harvested tuple. `entities` are case-folded, `surface` as written; `score` (consistency) and `mtl` in nats.

    mtl: None of what no search proposed.
    """

    entities: tuple[str, ...]
    surface: tuple[str, ...]
    score: float
    mtl: float | None


@dataclass(frozen=True)
class HarvestResult:
    """`tuples` best first. `rejected` counts by filter name. `notice` says in a sentence why the search ended early.

    warning: why few of the tuples may be true, before anybody has judged them.
    """

    prompts: tuple[WeightedPrompt, ...]
    tuples: tuple[ScoredTuple, ...]
    rejected: Mapping[str, int]
    stats: Mapping[str, float]
    notice: str | None = None
    warning: str | None = None
