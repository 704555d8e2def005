"""Parameters, specification, and result of a harvest; engine errors and progress reports."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from typing import Literal, NamedTuple, Protocol, get_args

from kgharvest.engine.filters import FILTERS

PatternBudget = Literal["each", "shared"]
TupleOrder = Literal["mtl", "consistency"]
ORDER_HELP = (
    "mtl: re-score the candidates that the search proposes by MTL. consistency: search for the tuples with the largest "
    "consistency among all admissible tuples"
)
ParaphraserKind = Literal["offline", "chat", "seq2seq", "translation"]

# Slack for re-scoring. With a strict cap, tuples with low consistency could use up an entity's repeats in the search.
REPEATS_PROPOSED_PER_KEPT = 4
MIN_CANDIDATES, CANDIDATES_PER_KEPT = 900, 3
MIN_CANDIDATES_PER_HEAD = 100

HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)  # model id on the hub; a folder is a path such as ./name

N_TRIGGERS = 5  # AutoPrompt trigger tokens between two entities, as in the paper's baseline


class EngineError(Exception):
    """Base class of engine errors. `str(error)` is a user-facing message with the problem, its location, and a fix."""


class BadPrompt(EngineError):
    """Raised if a prompt lacks or repeats a slot, has another arity than the seeds, or is too long for the LM."""


class BadSeed(EngineError):
    """Raised for fewer than two seed tuples, seed tuples of different arity, or an entity that the LM cannot write."""


class BadText(EngineError):
    """Raised for a text that an LM cannot read unchanged."""


class ModelNotFound(EngineError):
    """Raised if a name is neither a local model folder nor a reachable hub id."""


class UnsupportedModel(EngineError):
    """Raised if a model cannot fill in blanks or lacks a feature that the caller requires."""


class BrokenModel(EngineError):
    """Raised if an LM returns NaN or does not fit into memory even for one sequence."""


class Cancelled(EngineError):
    """Raised by a progress callback to stop the work. The engine does not catch it."""


class Progress(NamedTuple):
    """Progress of a stage: `done` of `total` units (None if unknown). note: user-facing detail."""

    stage: str
    done: int
    total: int | None = None
    note: str = ""


OnProgress = Callable[[Progress], None]
SECONDS_BETWEEN_REPORTS = 0.2


def ignore(progress: Progress) -> None:
    """Discard a progress report."""


class Reporter:
    """Progress callback for one stage. Sends at most one report per SECONDS_BETWEEN_REPORTS, plus the final report."""

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
    """Harvest parameters.

    alpha: weight of the joint log-likelihood in the compatibility (BertNet, Eq. 1).
    candidates: tuples proposed by MTL, per token-count pattern or in total (see `pattern_budget`). None: 900 or three
        times `max_tuples`, whichever is larger.
    max_tuples: maximum number of tuples after re-scoring. None: no limit.
    max_entity_tokens: maximum entity length in tokens of the LM.
    max_entity_repeats: maximum number of result tuples that share an entity. None: no limit. During the search, four
        times as many are allowed.
    disabled_filters: names from `filters.FILTERS`.
    heads: entities of the first slot, as written. If there are any, only tuples with these heads are harvested, and
        `candidates` and `max_tuples` apply to every head. The default of `candidates` is then at least 100. Tuples may
        share any number of entities.
    numbers: if true, numbers such as "1,200" are entities. Other filters of single entities do not apply to them.
    min_score: minimum consistency of result tuples, in nats. None: no limit.
    batch_size: maximum number of sequences per forward pass. Affects speed and memory, never the result.
    seed: random seed for prompt creation.
    state_budget, memory_budget_mb: limits of a search. When a search reaches a limit, it returns the tuples proved so
        far. Each token-count pattern is searched separately unless `pattern_budget` is "shared".
    order: "mtl" re-scores the `candidates` with the largest MTL. "consistency" searches for the `max_tuples` (or else
        `candidates`) tuples with the largest consistency among all admissible tuples, over all token-count patterns.
    """

    alpha: float = 2 / 3
    candidates: int | None = None
    max_tuples: int | None = None
    max_entity_tokens: int = 2
    max_entity_repeats: int | None = 10
    pattern_budget: PatternBudget = "each"
    disabled_filters: frozenset[str] = frozenset()
    heads: tuple[str, ...] = ()
    numbers: bool = False
    min_score: float | None = None
    batch_size: int = 256
    state_budget: int = 5_000_000
    memory_budget_mb: int = 4096
    seed: int = 0
    order: TupleOrder = "mtl"

    @property
    def n_candidates(self) -> int:
        """Number of tuples that a search returns, per head if there are heads."""
        if self.order == "consistency" and self.max_tuples:
            return self.max_tuples
        least = MIN_CANDIDATES_PER_HEAD if self.heads else MIN_CANDIDATES
        return self.candidates or max(least, CANDIDATES_PER_KEPT * (self.max_tuples or 0))

    @property
    def is_one_search(self) -> bool:
        """Whether all token-count patterns are searched together."""
        return self.pattern_budget == "shared" or self.order == "consistency"

    def n_candidates_in_all(self, arity: int) -> int:
        """Return the number of tuples that the searches of all token-count patterns return."""
        n_slots = arity - 1 if self.heads else arity
        n_budgets = 1 if self.is_one_search else self.max_entity_tokens**n_slots
        return n_budgets * self.n_candidates * max(1, len(self.heads))

    @property
    def proposed_entity_repeats(self) -> int | None:
        """Maximum number of proposed tuples that share an entity. None: no limit."""
        if self.heads or self.max_entity_repeats is None:
            return None
        if self.order == "consistency":
            return self.max_entity_repeats
        return REPEATS_PROPOSED_PER_KEPT * self.max_entity_repeats

    def __post_init__(self) -> None:
        for name in ("candidates", "max_tuples", "max_entity_tokens", "max_entity_repeats", "batch_size"):
            value = getattr(self, name)
            is_unlimited = value is None and name in ("candidates", "max_tuples", "max_entity_repeats")
            if not is_unlimited and (not isinstance(value, Integral) or value < 1):
                raise EngineError(f"{name} is {value!r:.80}. Set it to an integer of 1 or more.")
        if not isinstance(self.alpha, Real) or not 0 <= self.alpha <= 1:
            raise EngineError(f"alpha is {self.alpha!r:.80}. Set it to a number from 0 to 1.")
        if self.pattern_budget not in get_args(PatternBudget):
            raise EngineError(f"Unknown pattern budget {self.pattern_budget!r}. Choose each or shared.")
        is_list = isinstance(self.heads, Iterable) and not isinstance(self.heads, str)
        if not is_list or not all(isinstance(head, str) and head.strip() for head in self.heads):
            raise EngineError(f"heads is {self.heads!r:.80}. Set it to a list of entities without blank entries.")
        object.__setattr__(self, "heads", tuple(self.heads))
        if self.min_score is not None and not (isinstance(self.min_score, Real) and isfinite(self.min_score)):
            raise EngineError(f"min_score is {self.min_score!r:.80}. Set it to a finite number of nats, or None.")
        if self.order not in get_args(TupleOrder):
            raise EngineError(f"Unknown order {self.order!r}. Choose mtl or consistency.")
        if self.heads and self.order == "consistency":
            raise EngineError("The order consistency does not support heads. Use the order mtl or remove the heads.")
        if unknown_names := sorted(self.disabled_filters - set(FILTERS)):
            raise EngineError(f"Cannot disable unknown filter {unknown_names[0]!r}. Choose from {', '.join(FILTERS)}.")


@dataclass(frozen=True)
class ParaphraserSettings:
    """Options of the paraphraser that creates prompts.

    model: chat model name, seq2seq hub id or folder, or, for translation, two models as OUT,BACK.
    base_url: chat endpoint, for example `https://api.openai.com/v1`. Its key is in KGHARVEST_PARAPHRASER_API_KEY.
    max_calls, max_tokens: spending caps for the chat endpoint, per harvest.
    prefix: text that a seq2seq model expects before the sentence.
    seed: if set, the seq2seq model draws samples with this seed instead of using beam search.
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
    """Relation, prompts, setting, and parameters of a harvest.

    initial_prompts: templates that contain every slot `<ENT0>` .. `<ENTn-1>` exactly once.
    prompts: existing prompts. If empty, the setting creates prompts when it needs them.
    setting: a key of `kgharvest.engine.settings.SETTINGS`.
    negative_seed_tuples: false tuples that worked examples and chat questions contrast with `seed_tuples`.
    """

    relation: str
    initial_prompts: tuple[str, ...]
    seed_tuples: tuple[tuple[str, ...], ...]
    setting: str
    prompts: tuple[str, ...] = ()
    params: HarvestParams = field(default_factory=HarvestParams)
    paraphraser: ParaphraserSettings = field(default_factory=ParaphraserSettings)
    negative_seed_tuples: tuple[tuple[str, ...], ...] = ()


class Paraphraser(Protocol):
    """Rewords a sentence. `name` is stored with the harvest."""

    name: str

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return other sentences with the same meaning, best first.

        Each sentence should contain each of `entities` once; the caller discards sentences that do not. Raises
        EngineError if the paraphraser fails.
        """

    def restate(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return wordings of `sentence` from general patterns, best first. Called if there are too few paraphrases."""
        return []

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return sentences that contain `sentence` unchanged, best first. Called if wordings are missing."""
        return []


@dataclass(frozen=True)
class WeightedPrompt:
    """A prompt with its mean compatibility over the seed tuples (nats, <= 0) and its weight (in [0, 1], sum 1).

    text: human-readable text. For a learned prompt: its tokens, or the words nearest to its vectors.
    token_ids: ids of the texts around the slots. Set for learned tokens because encoding `text` may not restore them.
    """

    text: str
    compatibility: float
    weight: float
    token_ids: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class ScoredTuple:
    """A harvested tuple.

    entities: case-folded. surface: as written. score: consistency in nats. mtl: in nats; None for tuples that were not
        proposed by a search.
    """

    entities: tuple[str, ...]
    surface: tuple[str, ...]
    score: float
    mtl: float | None


PROBABLY_NOISE = "probably_noise"  # code of the warning that few of the harvested tuples may be true
MOST_NAMED = 5  # unknown words and unknown seed tuples in a sentence


class Notice(NamedTuple):
    """A sentence for users. code: stable identifier of its topic."""

    code: str
    text: str


@dataclass(frozen=True)
class HarvestResult:
    """Harvest result. tuples: sorted, best first. rejected: number of rejections by filter name.

    notice: reason why the search ended early. warning: reason to expect few true tuples, known before any judgment.
    codes: stable identifiers of the topics of notice and warning. unknown_seed_tuples: seed tuples that the LM does not
        know. null_heads: those of the params' `heads` for which the result has no tuple, as written.
    """

    prompts: tuple[WeightedPrompt, ...]
    tuples: tuple[ScoredTuple, ...]
    rejected: Mapping[str, int]
    stats: Mapping[str, float]
    notice: str | None = None
    warning: str | None = None
    null_heads: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    unknown_seed_tuples: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class AutoPromptParams:
    """Search parameters. The defaults are the values in Shin et al.'s code.

    n_candidates: replacements tried per iteration. batch_size: examples per gradient and per comparison.
    patience: number of iterations without a better dev score after which the search ends.
    restarts: number of additional searches in `search_from_masks`.
    """

    n_candidates: int = 10
    batch_size: int = 56
    iterations: int = 1000
    patience: int = 100
    seed: int = 0
    restarts: int = 0

    def check(self, n_triggers: int, n_masks: int) -> None:
        """Raise EngineError if there is no trigger, or if there are too few iterations to fill `n_masks` triggers."""
        if not n_triggers:
            raise EngineError("The template has no trigger. Add at least one [T].")
        if n_masks > self.iterations:
            raise EngineError(f"{self.iterations} iterations cannot fill {n_masks} triggers. Use more iterations.")
