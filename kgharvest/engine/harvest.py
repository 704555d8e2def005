"""The harvest of one relation from one LM, top to bottom: prompts -> weights -> search -> re-scoring."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from string import capwords
from typing import NamedTuple

import numpy as np

from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.prompts.creation import create_prompts
from kgharvest.engine.prompts.paraphrase import Paraphraser, from_settings
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.scoring import Encoded, compatibilities, consistency, prompt_weights
from kgharvest.engine.search import Candidate, SearchResult, WeighedPrompt, search_tuples
from kgharvest.engine.types import (
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
RESCORED_AT_ONCE = 1000  # tuples; bounds the memory that re-scoring takes


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
    found = search(lm, weighted, spec.params, on_progress)
    tuples = rank(rescore(lm, weighted, found.candidates, spec.params, on_progress), spec.params)
    return HarvestResult(
        prompts=tuple(WeightedPrompt(prompt.template.text, prompt.compatibility, prompt.weight) for prompt in weighted),
        tuples=tuple(tuples),
        rejected=dict(sorted(found.rejected.items())),
        stats={"states": found.n_states, "candidates": len(found.candidates), "tuples": len(tuples)},
        notice=found.notice,
    )


class Weighted(NamedTuple):
    """A prompt with its mean compatibility over the seed tuples (nats) and its weight."""

    template: PromptTemplate
    compatibility: float
    weight: float


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
    """Return the prompts of the setting: the initial ones, the ready ones, or paraphrases of the initial ones."""
    if spec.setting not in SETTINGS:
        raise EngineError(f"There is no setting {spec.setting!r}; choose one of {', '.join(SETTINGS)}.")
    arity = len(spec.seed_tuples[0])
    initial = parse_prompts(spec.initial_prompts, arity)
    if spec.setting == "human":
        return initial
    if spec.prompts:
        return parse_prompts(spec.prompts, arity)
    rng = random.Random(spec.params.seed)
    paraphraser = paraphraser or from_settings(spec.paraphraser, lm)
    return create_prompts(initial, spec.seed_tuples, paraphraser, rng, on_progress)


def weigh_prompts(
    lm: LanguageModel,
    templates: Sequence[PromptTemplate],
    seeds: Sequence[Encoded],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[Weighted]:
    """Return the prompts with their weights: the softmax of their mean compatibility with the seed tuples."""
    report = Reporter(on_progress, "weights", len(templates))
    prompts = [lm.encode_prompt(template) for template in templates]
    scores = compatibilities(lm, prompts, seeds, params.alpha, params.batch_size, lambda: report(0)).mean(
        axis=0
    )  # (P,)
    report(len(templates))
    return [
        Weighted(template, float(score), float(weight))
        for template, score, weight in zip(templates, scores, prompt_weights(scores), strict=True)
    ]


def choose_prompts(setting: str, weighted: list[Weighted]) -> list[Weighted]:
    """Return all prompts, or for the setting `top1` the one with the largest weight."""
    if setting != "top1":
        return weighted
    best = max(weighted, key=lambda prompt: prompt.weight)
    return [best._replace(weight=1.0)]


def search(
    lm: LanguageModel, weighted: Sequence[Weighted], params: HarvestParams, on_progress: OnProgress
) -> SearchResult:
    """Return the candidate tuples, best by MTL."""
    n_patterns = 1 if params.pattern_budget == "shared" else params.max_entity_tokens ** weighted[0].template.arity
    report = Reporter(on_progress, "search", params.candidates * n_patterns)
    prompts = [WeighedPrompt(lm.encode_prompt(prompt.template), prompt.weight) for prompt in weighted]
    entity_filter = EntityFilter([prompt.template for prompt in weighted], params.disabled_filters)
    return search_tuples(lm, prompts, entity_filter, params, report)


def rescore(
    lm: LanguageModel,
    weighted: Sequence[Weighted],
    candidates: Sequence[Candidate],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[ScoredTuple]:
    """Return the candidates with their consistency, each in its most consistent casing."""
    report = Reporter(on_progress, "rescore", len(candidates))
    prompts = [lm.encode_prompt(prompt.template) for prompt in weighted]
    weights = np.array([prompt.weight for prompt in weighted])
    scored: list[ScoredTuple] = []
    for start in range(0, len(candidates), RESCORED_AT_ONCE):
        variants = [
            (candidate, surface, ids)
            for candidate in candidates[start : start + RESCORED_AT_ONCE]
            for surface, ids in casings(lm, candidate)
        ]
        ids = [ids for _, _, ids in variants]
        fits = compatibilities(lm, prompts, ids, params.alpha, params.batch_size, partial(report, start))  # (E, P)
        scores = consistency(fits, weights)
        scored += best_casings([(candidate, surface) for candidate, surface, _ in variants], scores.tolist())
        report(min(start + RESCORED_AT_ONCE, len(candidates)))
    return scored


def casings(lm: LanguageModel, candidate: Candidate) -> list[tuple[tuple[str, ...], Encoded]]:
    """Return the ways that `lm` can write the tuple, each entity in lower or title case; as found if there is none."""
    if lm.is_cased:
        options = [dict.fromkeys((entity.lower(), capwords(entity))) for entity in candidate.surface]
        written = [(surface, try_encode(lm, surface)) for surface in product(*options)]
        encoded = [(surface, ids) for surface, ids in written if ids is not None]
        if encoded:
            return encoded
    return [(candidate.surface, tuple(lm.encode_entity(entity) for entity in candidate.surface))]


def try_encode(lm: LanguageModel, surface: Sequence[str]) -> Encoded | None:
    try:
        return tuple(lm.encode_entity(entity) for entity in surface)
    except BadSeed:
        return None


def best_casings(
    variants: Sequence[tuple[Candidate, tuple[str, ...]]], scores: Sequence[float]
) -> Iterable[ScoredTuple]:
    """Return one scored tuple a candidate: its casing with the largest score, the first one of equals."""
    best: dict[int, ScoredTuple] = {}
    for (candidate, surface), score in zip(variants, scores, strict=True):
        if id(candidate) not in best or score > best[id(candidate)].score:
            best[id(candidate)] = ScoredTuple(candidate.folded, surface, score, candidate.mtl)
    return best.values()


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
