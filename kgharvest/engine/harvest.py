"""The harvest of one relation from one LM, top to bottom: prompts -> weights -> search -> re-scoring."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice, product
from string import capwords

import numpy as np

from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel
from kgharvest.engine.lexicon import Lexicon
from kgharvest.engine.prompts.creation import create_prompts
from kgharvest.engine.prompts.paraphrase import Paraphraser, from_settings
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.scoring import Encoded, compatibilities, consistency, prompt_weights
from kgharvest.engine.search import Candidate, SearchResult, search_tuples
from kgharvest.engine.types import (
    BadPrompt,
    BadSeed,
    EngineError,
    HarvestParams,
    HarvestResult,
    HarvestSpec,
    OnProgress,
    Progress,
    ScoredTuple,
    WeightedPrompt,
    ignore,
)

SETTINGS = ("human", "top1", "multi")
SECONDS_BETWEEN_REPORTS = 0.2
QUESTIONS_AT_ONCE = 20_000  # that re-scoring puts together at most; bounds its memory


def harvest(
    spec: HarvestSpec, lm: LanguageModel, on_progress: OnProgress = ignore, paraphraser: Paraphraser | None = None
) -> HarvestResult:
    """Return the tuples of `spec.relation` that `lm` holds to be true, best first.

    `on_progress` is called at least once a second while forwards last less than that; what it raises ends the harvest.
    `paraphraser` takes the place of the one that the spec describes. Raises an EngineError with a sentence for people.
    """
    seeds = encode_seeds(spec.seed_tuples, lm)
    templates = collect_prompts(spec, lm, paraphraser, on_progress)
    weighted = choose_prompts(spec.setting, weigh_prompts(lm, templates, seeds, spec.params, on_progress))
    ranker = make_ranker(lm, weighted, spec.params)
    found = search(ranker, weighted, spec.params, on_progress)
    tuples = rank(rescore(lm, weighted, found.candidates, spec.params, on_progress), spec.params)
    return HarvestResult(
        prompts=tuple(weighted),
        tuples=tuple(tuples),
        rejected=dict(sorted(found.rejected.items())),
        stats={"states": ranker.n_states, "candidates": len(found.candidates), "tuples": len(tuples)},
        notice=" ".join(filter(None, [left_out(spec, templates), found.notice])) or None,
    )


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


def encode_seeds(seed_tuples: Sequence[Sequence[str]], lm: LanguageModel) -> list[Encoded]:
    """Return the seeds' token ids. Raises BadSeed unless there are two or more, of one arity, that `lm` can write."""
    if len(seed_tuples) < 2:
        raise BadSeed(f"The relation has {len(seed_tuples)} seed tuple(s); give at least two.")
    arity = len(seed_tuples[0])
    for entities in seed_tuples:
        if len(entities) != arity:
            raise BadSeed(
                f"The seed tuple {list(entities)} has {len(entities)} entities but the first one has {arity}; "
                "give every seed tuple the same number."
            )
    return [tuple(lm.encode_entity(entity) for entity in entities) for entities in seed_tuples]


def collect_prompts(
    spec: HarvestSpec, lm: LanguageModel, paraphraser: Paraphraser | None, on_progress: OnProgress
) -> list[PromptTemplate]:
    """Return the prompts of the setting: the initial ones, the ready ones, or paraphrases of the initial ones.

    Ready prompts and paraphrases that are too long for the LM, with the longest entities that are searched or given as
    seeds, are left out; an initial prompt raises BadPrompt.
    """
    if spec.setting not in SETTINGS:
        raise EngineError(f"There is no setting {spec.setting!r}; choose one of {', '.join(SETTINGS)}.")
    arity = len(spec.seed_tuples[0])
    longest = longest_pattern(spec, lm)
    if spec.prompts and spec.setting != "human":
        return that_fit(lm, parse_prompts(spec.prompts, arity), longest)
    initial = parse_prompts(spec.initial_prompts, arity)
    for template in initial:
        check_fits(lm, template, longest)
    if spec.setting == "human":
        return initial
    rng = random.Random(spec.params.seed)
    paraphraser = paraphraser or from_settings(spec.paraphraser, lm)
    return that_fit(lm, create_prompts(initial, spec.seed_tuples, paraphraser, rng, on_progress), longest)


def longest_pattern(spec: HarvestSpec, lm: LanguageModel) -> tuple[int, ...]:
    """Return the numbers of tokens in the entities of the longest tuple that the prompts will be asked with."""
    seeds = [tuple(len(lm.encode_entity(entity)) for entity in entities) for entities in spec.seed_tuples]
    return max([(spec.params.max_entity_tokens,) * len(spec.seed_tuples[0]), *seeds], key=sum)


def that_fit(lm: LanguageModel, templates: Sequence[PromptTemplate], pattern: tuple[int, ...]) -> list[PromptTemplate]:
    """Return the prompts that `lm` can take. Raises BadPrompt if there is none."""
    fitting = [template for template in templates if fits(lm, lm.encode_prompt(template), pattern)]
    if not fitting:
        check_fits(lm, templates[0], pattern)
    return fitting


def check_fits(lm: LanguageModel, template: PromptTemplate, pattern: tuple[int, ...]) -> None:
    """Raise BadPrompt if `lm` cannot take the prompt with entities of so many tokens."""
    if not fits(lm, lm.encode_prompt(template), pattern):
        raise BadPrompt(
            f"The prompt {template.text!r} with {sum(pattern)} tokens of entities exceeds the {lm.max_tokens} tokens "
            "that this LM takes; shorten it."
        )


def fits(lm: LanguageModel, prompt: EncodedPrompt, pattern: tuple[int, ...]) -> bool:
    all_but_the_last = sum(pattern) + len(pattern) * len(lm.entity_end) - 1
    try:
        lm.query(prompt, pattern, (0,) * all_but_the_last)
    except BadPrompt:
        return False
    return True


def left_out(spec: HarvestSpec, templates: Sequence[PromptTemplate]) -> str | None:
    """Return the notice that ready prompts were too long for the LM."""
    n_given = len(set(spec.prompts)) if spec.setting != "human" else 0
    if n_given <= len(templates):
        return None
    return f"{n_given - len(templates)} of {n_given} ready prompts were left out: they are too long for this LM."


def weigh_prompts(
    lm: LanguageModel,
    templates: Sequence[PromptTemplate],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[WeightedPrompt]:
    """Return the prompts with their weights: the softmax of their mean compatibility with the seed tuples."""
    report = Reporter(on_progress, "weights", len(templates))
    prompts = [lm.encode_prompt(template) for template in templates]
    tick = partial(report, 0)
    scores = compatibilities(lm, prompts, seeds, params.alpha, params.batch_size, tick).mean(axis=0)  # (P,)
    report(len(templates))
    return [
        WeightedPrompt(template.text, float(score), float(weight))
        for template, score, weight in zip(templates, scores, prompt_weights(scores), strict=True)
    ]


def choose_prompts(setting: str, weighted: list[WeightedPrompt]) -> list[WeightedPrompt]:
    """Return all prompts, or for the setting `top1` the one with the largest weight."""
    if setting != "top1":
        return weighted
    best = max(weighted, key=lambda prompt: prompt.weight)
    return [replace(best, weight=1.0)]


def encode_prompts(lm: LanguageModel, weighted: Sequence[WeightedPrompt]) -> list[EncodedPrompt]:
    return [lm.encode_prompt(PromptTemplate.parse(prompt.text)) for prompt in weighted]


def make_ranker(lm: LanguageModel, weighted: Sequence[WeightedPrompt], params: HarvestParams) -> TokenRanker:
    weights = [prompt.weight for prompt in weighted]
    return TokenRanker(lm, encode_prompts(lm, weighted), weights, params.batch_size)


def search(
    ranker: TokenRanker, weighted: Sequence[WeightedPrompt], params: HarvestParams, on_progress: OnProgress
) -> SearchResult:
    """Return the candidate tuples, best by MTL."""
    n_patterns = 1 if params.pattern_budget == "shared" else params.max_entity_tokens**ranker.arity
    report = Reporter(on_progress, "search", params.candidates * n_patterns)
    templates = [PromptTemplate.parse(prompt.text) for prompt in weighted]
    lexicon = Lexicon(ranker.lm, EntityFilter(templates, params.disabled_filters))
    return search_tuples(ranker, lexicon, params, report)


def rescore(
    lm: LanguageModel,
    weighted: Sequence[WeightedPrompt],
    candidates: Sequence[Candidate],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[ScoredTuple]:
    """Return the candidates with their consistency, each in its most consistent casing, in no particular order."""
    report = Reporter(on_progress, "rescore", len(candidates))
    prompts = encode_prompts(lm, weighted)
    weights = np.array([prompt.weight for prompt in weighted])
    # Neighbours share beginnings, which are asked once within a chunk.
    waiting = iter(sorted(candidates, key=lambda one: (one.pattern, one.folded)))
    scored: list[ScoredTuple] = []
    while chunk := list(islice(waiting, rescored_at_once(lm, prompts, params))):
        tick = partial(report, len(scored))
        variants = [(one, surface, ids) for one in chunk for surface, ids in casings(lm, prompts, one)]
        ids = [ids for _, _, ids in variants]
        fits = compatibilities(lm, prompts, ids, params.alpha, params.batch_size, tick)  # (E, P)
        scores = consistency(fits, weights).tolist()
        scored += best_casings([(one, surface) for one, surface, _ in variants], scores)
        report(len(scored))
    return scored


def rescored_at_once(lm: LanguageModel, prompts: Sequence[EncodedPrompt], params: HarvestParams) -> int:
    """Return how many tuples to re-score together."""
    arity = len(prompts[0].slots)
    n_variants = 2**arity if lm.is_cased else 1
    n_tokens = arity * (params.max_entity_tokens + len(lm.entity_end))
    return max(1, QUESTIONS_AT_ONCE // (len(prompts) * n_variants * n_tokens))


def casings(
    lm: LanguageModel, prompts: Sequence[EncodedPrompt], candidate: Candidate
) -> list[tuple[tuple[str, ...], Encoded]]:
    """Return the ways that `lm` can write the tuple, each entity in lower or title case; as found if there is none."""
    if lm.is_cased:
        options = [dict.fromkeys((entity.lower(), capwords(entity))) for entity in candidate.surface]
        written = [(surface, try_encode(lm, prompts, surface)) for surface in product(*options)]
        encoded = [(surface, ids) for surface, ids in written if ids is not None]
        if encoded:
            return encoded
    return [(candidate.surface, tuple(lm.encode_entity(entity) for entity in candidate.surface))]


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


def rank(scored: Iterable[ScoredTuple], params: HarvestParams) -> list[ScoredTuple]:
    """Return the tuples by consistency, each once, within the caps of `params`."""
    kept: list[ScoredTuple] = []
    seen: set[tuple[str, ...]] = set()
    repeats: Counter[str] = Counter()
    for scored_tuple in sorted(scored, key=lambda one: (-one.score, one.entities, one.surface)):
        if params.max_tuples is not None and len(kept) == params.max_tuples:
            break
        cap = params.max_entity_repeats
        is_capped = cap is not None and any(repeats[entity] >= cap for entity in scored_tuple.entities)
        if scored_tuple.entities in seen or is_capped:
            continue
        seen.add(scored_tuple.entities)
        repeats.update(set(scored_tuple.entities))
        kept.append(scored_tuple)
    return kept
