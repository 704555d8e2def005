"""The harvest of one relation from one LM, top to bottom: prompts -> weights -> search -> re-scoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice, product
from string import capwords

import numpy as np

from kgharvest.engine.entities import Entity, EntityVocabulary, is_writable
from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, fits
from kgharvest.engine.prompts.comprehension import warning_about
from kgharvest.engine.prompts.paraphrase import Paraphraser
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.strategies import PromptSource, choose_prompts
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.scoring import Encoded, compatibilities, consistency
from kgharvest.engine.search import Candidate, SearchResult, search_tuples
from kgharvest.engine.settings import PROMPT_SETTINGS, find_setting
from kgharvest.engine.types import (
    BadSeed,
    EngineError,
    HarvestParams,
    HarvestResult,
    HarvestSpec,
    OnProgress,
    Reporter,
    ScoredTuple,
    ignore,
)

QUESTIONS_AT_ONCE = 20_000  # put together for re-scoring at most; bounds its memory
SPELLINGS = 3  # of an entity at most
UNSCORED = "unscored"  # given tuples that an LM cannot score


def harvest(
    spec: HarvestSpec, lm: LanguageModel, on_progress: OnProgress = ignore, paraphraser: Paraphraser | None = None
) -> HarvestResult:
    """Return the tuples of `spec.relation` that `lm` holds to be true, best first.

    `on_progress` is called at least once a second while forwards last less than that; what it raises ends the harvest.
    `paraphraser` takes the place of the one that the spec describes. Raises an EngineError with a sentence for people.
    """
    if find_setting(spec.setting).asks_chat:
        raise EngineError(f"The setting {spec.setting} prompts no LM; choose one of {', '.join(PROMPT_SETTINGS)}.")
    seeds = encode_seeds(spec.seed_tuples, lm)
    prompts = choose_prompts(PromptSource(spec, lm, seeds, paraphraser, on_progress))
    asked = Reporter(on_progress, "weights", len(prompts.weighted))
    warning = warning_about(lm, spec.initial_prompts, prompts.weighted, seeds, spec.params, partial(asked, 0))
    reader = prompts.prompt_set.reader(lm)
    ranker = make_ranker(reader, prompts.prompt_set, spec.params)
    candidates, rejected, search_notice = search(ranker, prompts.templates, spec.params, on_progress)
    tuples = rank(rescore(reader, prompts.prompt_set, candidates, spec.params, on_progress), spec.params)
    notice = search_notice or notice_of_short_list(tuples, spec.params)
    return HarvestResult(
        prompts=prompts.weighted,
        tuples=tuple(tuples),
        rejected=dict(sorted(rejected.items())),
        stats={"states": ranker.n_states, "candidates": len(candidates), "tuples": len(tuples)},
        notice=" ".join(filter(None, [prompts.notice, notice])) or None,
        warning=warning,
    )


def score_tuples(
    spec: HarvestSpec, tuples: Sequence[Sequence[Entity]], lm: LanguageModel, on_progress: OnProgress = ignore
) -> HarvestResult:
    """Return given tuples as `harvest` would rank them if its search had proposed them.

    Rejected as "unscored" are those that `lm` cannot write or take in every prompt. Raises EngineError.
    """
    seeds = encode_seeds(spec.seed_tuples, lm)
    prompts = choose_prompts(PromptSource(spec, lm, seeds, None, on_progress))
    reader = prompts.prompt_set.reader(lm)
    encoded = [
        try_encode(reader, prompts.prompt_set.prompts, [entity.surface for entity in entities]) for entities in tuples
    ]
    candidates = [
        Candidate(tuple(map(len, ids)), entities=tuple(entities), is_complete=True)
        for entities, ids in zip(tuples, encoded, strict=True)
        if ids is not None
    ]
    scored = rescore(reader, prompts.prompt_set, candidates, spec.params, on_progress)
    ranked = rank((replace(scored_tuple, mtl=None) for scored_tuple in scored), spec.params)
    n_unscored = len(tuples) - len(candidates)
    return HarvestResult(
        prompts=prompts.weighted,
        tuples=tuple(ranked),
        rejected={UNSCORED: n_unscored} if n_unscored else {},
        stats={"candidates": len(candidates), "tuples": len(ranked)},
        notice=prompts.notice,
    )


def order_tuples(tuples: Sequence[Sequence[Entity]], params: HarvestParams) -> list[ScoredTuple]:
    """Return given tuples in their order, with minus the rank in the place of a score, as many as `rank` would keep."""
    in_order = [
        ScoredTuple(tuple(entity.folded for entity in entities), tuple(entity.surface for entity in entities), -n, None)
        for n, entities in enumerate(tuples)
    ]
    return [replace(kept, score=-float(n)) for n, kept in enumerate(rank(in_order, params), start=1)]


def notice_of_short_list(tuples: Sequence[ScoredTuple], params: HarvestParams) -> str | None:
    """Return the notice that the list has fewer tuples than were asked for, if so."""
    if params.max_tuples is None or len(tuples) == params.max_tuples:
        return None
    cap = "" if params.max_entity_repeats is None else f" with an entity in at most {params.max_entity_repeats} of them"
    return (
        f"The list has {len(tuples):,} of {params.max_tuples:,} tuples, as the candidates hold no more{cap}; "
        "ask for more candidates."
    )


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


def make_ranker(lm: LanguageModel, prompts: PromptSet, params: HarvestParams) -> TokenRanker:
    return TokenRanker(lm, prompts.prompts, prompts.weights, params.batch_size, prompts.combine == "mixture")


def search(
    ranker: TokenRanker, templates: Sequence[PromptTemplate], params: HarvestParams, on_progress: OnProgress
) -> SearchResult:
    """Return the candidate tuples, best by MTL."""
    n_patterns = 1 if params.pattern_budget == "shared" else params.max_entity_tokens**ranker.arity
    report = Reporter(on_progress, "search", params.n_candidates * n_patterns)
    vocabulary = EntityVocabulary(ranker.lm, EntityFilter(templates, params.disabled_filters))
    return search_tuples(ranker, vocabulary, params, report)


def rescore(
    lm: LanguageModel,
    prompt_set: PromptSet,
    candidates: Sequence[Candidate],
    params: HarvestParams,
    on_progress: OnProgress,
) -> list[ScoredTuple]:
    """Return the candidates with their consistency, each in its most consistent casing, in no particular order."""
    report = Reporter(on_progress, "rescore", len(candidates))
    prompts, weights = prompt_set.prompts, np.array(prompt_set.weights)
    # Neighbours share beginnings, which are asked once within a chunk.
    waiting = iter(sorted(candidates, key=lambda candidate: (candidate.pattern, candidate.folded)))
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


def rank(scored: Iterable[ScoredTuple], params: HarvestParams) -> list[ScoredTuple]:
    """Return the tuples by consistency: `params.max_tuples`, or as many as the cap on an entity's repeats leaves."""
    cap = params.max_entity_repeats
    kept: list[ScoredTuple] = []
    repeats: Counter[str] = Counter()
    best_first = sorted(scored, key=lambda candidate: (-candidate.score, candidate.entities, candidate.surface))
    for scored_tuple in best_first:
        if params.max_tuples is not None and len(kept) == params.max_tuples:
            break
        if cap is not None and any(repeats[entity] >= cap for entity in scored_tuple.entities):
            continue
        repeats.update(set(scored_tuple.entities))
        kept.append(scored_tuple)
    return kept
