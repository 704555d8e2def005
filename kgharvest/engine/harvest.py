"""Harvest of one relation from one LM: prompts -> weights -> search -> re-scoring."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from math import inf

from kgharvest.engine.entities import Entity, entity_of
from kgharvest.engine.filters import EXAMPLE
from kgharvest.engine.language_models.base import GivesLogprobs, LanguageModel
from kgharvest.engine.language_models.threads import suitable_threads
from kgharvest.engine.parts import InTurn, Part, Question, Share, rescore_parts, search_parts, writable_heads
from kgharvest.engine.prompts.comprehension import (
    UNKNOWN_SEEDS,
    Comprehension,
    unknown_seed_tuples,
    unknown_words,
    warnings_about,
)
from kgharvest.engine.prompts.strategies import ChosenPrompts, PromptSource, choose_prompts
from kgharvest.engine.rescoring import rescore, scorable
from kgharvest.engine.scoring import Encoded
from kgharvest.engine.search import Candidate, Report, merge_found
from kgharvest.engine.settings import PROMPT_SETTINGS, find_setting
from kgharvest.engine.types import (
    BadSeed,
    EngineError,
    HarvestParams,
    HarvestResult,
    HarvestSpec,
    Notice,
    OnProgress,
    Paraphraser,
    Reporter,
    ScoredTuple,
    UnsupportedModel,
    ignore,
)

UNSCORED = "unscored"  # tuples that an LM cannot score
HEADS_SHOWN = 10  # in the notice


@dataclass(frozen=True)
class Prepared:
    """Prompts of a harvest and the LM's comprehension of them, determined before the search."""

    prompts: ChosenPrompts
    comprehension: Comprehension


def harvest(
    spec: HarvestSpec, lm: LanguageModel, on_progress: OnProgress = ignore, paraphraser: Paraphraser | None = None
) -> HarvestResult:
    """Return the tuples of `spec.relation` that `lm` considers true, best first.

    `on_progress` is called at least once a second, provided that each forward pass takes less than a second. Exceptions
    that it raises end the harvest. `paraphraser` replaces the paraphraser in the spec. Small LMs and small paraphrasers
    use one thread (kgharvest.engine.language_models.threads). Raises EngineError with a user-facing message.
    """
    with suitable_threads(lm):
        prepared = prepare(spec, lm, on_progress, paraphraser)
        return harvest_prepared(prepared, spec.params, lm, InTurn(on_progress))


def prepare(
    spec: HarvestSpec, lm: LanguageModel, on_progress: OnProgress = ignore, paraphraser: Paraphraser | None = None
) -> Prepared:
    """Return the weighted prompts of a harvest; see `harvest`. Raises EngineError."""
    if find_setting(spec.setting).asks_chat:
        raise EngineError(f"Setting {spec.setting} does not prompt an LM. Choose from {', '.join(PROMPT_SETTINGS)}.")
    if spec.params.order == "consistency" and isinstance(lm, GivesLogprobs):
        raise UnsupportedModel(
            f"{lm.name} is behind a server that lists only some next tokens, so its most consistent tuples cannot be "
            "proved. Use the order mtl."
        )
    seeds = encode_seeds(spec.seed_tuples, lm)
    prompts = choose_prompts(PromptSource(spec, lm, seeds, paraphraser, on_progress))
    tick = partial(Reporter(on_progress, "weights", len(prompts.weighted)), 0)
    seed_scores = tuple(zip(prompts.examples, prompts.example_scores, strict=False))  # negatives, the last, have none
    if not seed_scores:
        reader = prompts.prompt_set.reader(lm)
        by_name = {tuple(entity_of(entity).folded for entity in seed): seed for seed in spec.seed_tuples}
        as_entities = [tuple(map(entity_of, seed)) for seed in by_name.values()]
        candidates = scorable(reader, prompts.prompt_set.prompts, as_entities)
        scored = rescore(reader, prompts.prompt_set, candidates, spec.params, lambda n_done: tick())
        scores = {seed.entities: seed.score for seed in scored}
        seed_scores = tuple((seed, scores[name]) for name, seed in by_name.items() if name in scores)
    words = tuple(unknown_words(lm, spec.initial_prompts))
    comprehension = Comprehension(words, seed_scores, bool(prompts.examples))
    return Prepared(prompts, comprehension)


def harvest_prepared(prepared: Prepared, params: HarvestParams, lm: LanguageModel, share: Share) -> HarvestResult:
    """Run the search and the re-scoring of `harvest` in parts, using `share`. The result is bit-identical to `harvest`.

    Raises EngineError.
    """
    question = question_of(prepared, params)
    heads = writable_heads(lm, question)
    searches = search_parts(question, heads)
    search_result = merge_found(
        [part.patterns for part in searches],
        share("search", searches, lambda part, report: part.do(lm, question, report)),
    )
    candidates, rejected = without_examples(prepared.prompts, search_result.candidates)
    is_scored = params.order == "consistency"
    scored = as_scored(candidates, params) if is_scored else rescored(lm, question, candidates, share)
    tuples = rank(scored, params)
    rejected[UNSCORED] = len({entity_of(head).folded for head in params.heads}) - len(heads)
    answered = {scored_tuple.entities[0] for scored_tuple in tuples}
    null_heads = tuple(head for head in params.heads if entity_of(head).folded not in answered)
    notices = list(prepared.prompts.notices)
    if search_result.notice:
        notices.append(Notice("search_ended", search_result.notice))
    if null_heads:
        names = ", ".join(null_heads[:HEADS_SHOWN]) + ", …" * (len(null_heads) > HEADS_SHOWN)
        text = f"No tuple was found for {len(null_heads):,} of {len(params.heads):,} heads: {names}."
        notices.append(Notice("null_heads", text))
    elif not params.heads and not search_result.notice and len(tuples) < (params.max_tuples or 0):
        if len(rank(scored, replace(params, min_score=None))) > len(tuples):
            code, why = "minimum_score", f"the others score below {params.min_score:g} nats. Decrease the minimum score"
        else:
            code, pool, advice = "short_list", "candidates", "Request more candidates"
            cap = "" if params.max_entity_repeats is None else f" with at most {params.max_entity_repeats} per entity"
            if is_scored:
                pool, advice = "admissible tuples", "Allow longer entities or more repeats"
            if is_scored and params.min_score is not None:  # the search ends at this score
                cap, advice = f"{cap} and a score of at least {params.min_score:g} nats", f"{advice} or a lower score"
            why = f"the {pool} contain no more{cap}. {advice}"
        text = f"The list has {len(tuples):,} of {params.max_tuples:,} tuples because {why}."
        notices.append(Notice(code, text))
    shown, prompt_set = prepared.comprehension, prepared.prompts.prompt_set
    unlimited = replace(params, max_tuples=None, max_entity_repeats=None, min_score=None)
    best = [] if params.heads else rank(as_scored(candidates, params), unlimited)  # the LM did not choose the heads
    heaviest = prompt_set.prompts[prompt_set.weights.index(max(prompt_set.weights))]
    warnings = warnings_about(prompt_set.reader(lm), shown, heaviest, best, params.batch_size)
    if [code for code, _ in warnings] == [UNKNOWN_SEEDS]:
        notices, warnings = notices + warnings, []
    return HarvestResult(
        prompts=prepared.prompts.weighted,
        tuples=tuple(tuples),
        rejected=dict(sorted((search_result.rejected + rejected).items())),
        stats={"states": search_result.n_states, "candidates": len(search_result.candidates), "tuples": len(tuples)},
        notice=" ".join(text for _, text in notices) or None,
        warning=" ".join(text for _, text in warnings) or None,
        null_heads=null_heads,
        codes=tuple(code for code, _ in notices + warnings),
        unknown_seed_tuples=unknown_seed_tuples(shown, best),
    )


def rescored(lm: LanguageModel, question: Question, candidates: Sequence[Candidate], share: Share) -> list[ScoredTuple]:
    """Return the candidates with their consistency, in unspecified order. Omits some that `rank` would not keep.

    If the list is limited, the heads of its likely tuples are re-scored first. The rest is read only while it can still
    reach the score of the last tuple of the list. Re-scored tuples can lower this score, because they use up the
    repeats of an entity. Tuples that were omitted are then read again.
    """

    def do(part: Part[list[ScoredTuple]], report: Report) -> list[ScoredTuple]:
        return part.do(lm, question, report)

    def last_score() -> float:
        ranked = rank(scored, question.params)
        return ranked[-1].score if len(ranked) == question.params.max_tuples else -inf

    first = likely_heads(candidates, question.params)
    likely = [candidate for candidate in candidates if candidate.folded[0] in first]
    others = [candidate for candidate in candidates if candidate.folded[0] not in first]
    runs = share("rescore", rescore_parts(likely), do)
    scored = list(chain.from_iterable(runs))
    floor = inf
    for n in count(2):
        if not others or last_score() >= floor:
            break
        floor = last_score()
        runs = share(f"rescore {n}", rescore_parts(others, floor), do)
        scored += chain.from_iterable(runs)
        names = {scored_tuple.entities for scored_tuple in scored}
        others = [candidate for candidate in others if candidate.folded not in names]
    return scored


def likely_heads(candidates: Sequence[Candidate], params: HarvestParams) -> set[str]:
    """Return the first entities of the tuples that `rank` would keep if the search's log-probabilities were final."""
    if params.max_tuples is None or params.heads:
        return {candidate.folded[0] for candidate in candidates}
    return {scored_tuple.entities[0] for scored_tuple in rank(as_scored(candidates, params), params)}


def as_scored(candidates: Sequence[Candidate], params: HarvestParams) -> list[ScoredTuple]:
    """Return the candidates with the consistency that follows from the search's log-probabilities.

    It is exact if the search is by consistency.
    """

    def score(candidate: Candidate) -> float:
        if params.order == "consistency":
            return candidate.score
        return params.alpha * -sum(candidate.costs) + (1 - params.alpha) * candidate.mtl

    return [
        ScoredTuple(candidate.folded, candidate.surface, score(candidate), candidate.mtl) for candidate in candidates
    ]


def without_examples(prompts: ChosenPrompts, candidates: Sequence[Candidate]) -> tuple[list[Candidate], Counter[str]]:
    """Return the candidates that the prompts do not show as examples, and the number of the others by reason."""
    shown = folded_examples(prompts)
    others = [candidate for candidate in candidates if candidate.folded not in shown]
    n_shown = len(candidates) - len(others)
    return others, Counter({EXAMPLE: n_shown} if n_shown else {})


def folded_examples(prompts: ChosenPrompts) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(entity_of(entity).folded for entity in example) for example in prompts.examples)


def question_of(prepared: Prepared, params: HarvestParams) -> Question:
    prompts = prepared.prompts
    return Question(prompts.prompt_set, prompts.templates, params, folded_examples(prompts))


def score_tuples(
    spec: HarvestSpec, tuples: Sequence[Sequence[Entity]], lm: LanguageModel, on_progress: OnProgress = ignore
) -> HarvestResult:
    """Return `tuples` ranked as if the search of `harvest` had proposed them. Raises EngineError.

    Tuples that `lm` cannot write or that are too long for a prompt are counted as rejected, with reason "unscored".
    """
    seeds = encode_seeds(spec.seed_tuples, lm)
    prompts = choose_prompts(PromptSource(spec, lm, seeds, None, on_progress))
    reader = prompts.prompt_set.reader(lm)
    written = scorable(reader, prompts.prompt_set.prompts, tuples)
    candidates, rejected = without_examples(prompts, written)
    report = Reporter(on_progress, "rescore", len(candidates))
    scored = rescore(reader, prompts.prompt_set, candidates, spec.params, report)
    ranked = rank((replace(scored_tuple, mtl=None) for scored_tuple in scored), spec.params)
    rejected[UNSCORED] = len(tuples) - len(written)
    return HarvestResult(
        prompts=prompts.weighted,
        tuples=tuple(ranked),
        rejected=dict(+rejected),
        stats={"candidates": len(candidates), "tuples": len(ranked)},
        notice=" ".join(text for _, text in prompts.notices) or None,
        codes=tuple(code for code, _ in prompts.notices),
    )


def order_tuples(
    tuples: Sequence[Sequence[Entity]], params: HarvestParams, scores: Sequence[float] | None = None
) -> list[ScoredTuple]:
    """Return `tuples` within the limits of `rank()`, best first.

    Without scores, the tuples stay in the given order, and their scores are the negative ranks.
    """
    if scores is None:
        params = replace(params, min_score=None)  # ranks are not consistencies
    scored = [
        ScoredTuple(tuple(entity.folded for entity in row), tuple(entity.surface for entity in row), score, None)
        for row, score in zip(tuples, scores or range(0, -len(tuples), -1), strict=True)
    ]
    ranked = rank(scored, params)
    return ranked if scores else [replace(found, score=-float(n)) for n, found in enumerate(ranked, start=1)]


def encode_seeds(seed_tuples: Sequence[Sequence[str]], lm: LanguageModel) -> list[Encoded]:
    """Return the token ids of the seeds. Raises BadSeed for fewer than two, unequal arity, or unwritable entities."""
    if len(seed_tuples) < 2:
        raise BadSeed(f"The relation has {len(seed_tuples)} seed tuple(s). Provide at least two.")
    arity = len(seed_tuples[0])
    for entities in seed_tuples:
        if len(entities) != arity:
            raise BadSeed(
                f"The seed tuple {list(entities)} has {len(entities)} entities but the first seed tuple has {arity}. "
                "Use the same number in every seed tuple."
            )
    return [tuple(lm.encode_entity(entity) for entity in entities) for entities in seed_tuples]


def rank(scored: Iterable[ScoredTuple], params: HarvestParams) -> list[ScoredTuple]:
    """Sort by consistency. Keep at most `params.max_tuples` tuples and `params.max_entity_repeats` per entity.

    If `params.heads` is set, keep at most `params.max_tuples` tuples per head, and any number per entity.
    """
    cap = params.max_tuples if params.heads else params.max_entity_repeats
    ranked: list[ScoredTuple] = []
    repeats: Counter[str] = Counter()
    best_first = sorted(scored, key=lambda candidate: (-candidate.score, candidate.entities, candidate.surface))
    for scored_tuple in best_first:
        is_full = not params.heads and params.max_tuples is not None and len(ranked) == params.max_tuples
        if is_full or (params.min_score is not None and scored_tuple.score < params.min_score):
            break
        capped = scored_tuple.entities[:1] if params.heads else scored_tuple.entities
        if cap is not None and any(repeats[entity] >= cap for entity in capped):
            continue
        repeats.update(set(capped))
        ranked.append(scored_tuple)
    return ranked
