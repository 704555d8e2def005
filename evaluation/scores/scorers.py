"""Scorers, and how well their scores separate known facts from negative samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evaluation.reports.sections.comparisons import compare_sides
from evaluation.scores.facts import ScoredRelation
from evaluation.scores.negative_sampling import Entities, Sample, with_negatives
from evaluation.scores.rankings import average_precision, precision_recall_curve
from kgharvest.engine.types import BadSeed, EngineError, HarvestParams, HarvestSpec, UnsupportedModel, ignore
from kgharvest.errors import DomainError
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.rates import macro_average

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import LanguageModel
    from kgharvest.engine.prompts.prompt_set import PromptSet

LPAQA = "lpaqa-tail"
Tick = Callable[[], None]
PARAMS = HarvestParams()
COMPARED = ("a", "b", "n_relations", "difference", "low", "high", "reason", "p_sign_flip", "p_holm", "sentence")

# Returns scores (E,) of a relation's tuples, higher for tuples that are more likely true. A scorer regularly calls the
# tick function. This function may raise an exception to stop the work.
Scorer = Callable[[ScoredRelation, Sequence[Entities], Tick], np.ndarray]
# Scores tuples with a set of prompts: (LM, prompts, tuples, tick) -> (E,).
PromptScore = Callable[["LanguageModel", "PromptSet", Sequence[Entities], Tick], np.ndarray]


def setting_scorer(lm: LanguageModel, setting: str, score_with: PromptScore | None = None) -> Scorer:
    """Return a scorer with a setting's prompts, weighted or learned on the seed tuples as in a harvest.

    score_with: function that scores tuples with these prompts. Default: consistency (Eq. 2).
    """
    from kgharvest.engine.harvest import encode_seeds
    from kgharvest.engine.prompts.strategies import PromptSource, choose_prompts

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        seeds = tuple(tuple(entities) for entities in relation.seed_tuples)
        spec = HarvestSpec(relation.name, tuple(relation.initial_prompts), seeds, setting, tuple(relation.prompts))
        source = PromptSource(spec, lm, encode_seeds(seeds, lm), None, lambda _: tick())
        return (score_with or consistency_scores)(lm, choose_prompts(source).prompt_set, tuples, tick)

    return score


class StoredPrompt(NamedTuple):
    """A prompt of a finished harvest. token_ids: segments around the slots, for learned prompts without text."""

    text: str
    weight: float
    token_ids: Sequence[Sequence[int]] | None = None


def stored_scorer(
    lm: LanguageModel, prompts: Mapping[str, Sequence[StoredPrompt]], score_with: PromptScore | None = None
) -> Scorer:
    """Return a scorer with the weighted prompts of one finished harvest per relation.

    score_with: function that scores tuples with these prompts. Default: consistency (Eq. 2).
    """
    from kgharvest.engine.prompts.prompt_set import PromptSet
    from kgharvest.engine.prompts.template import PromptTemplate

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        encoded = []
        for prompt in prompts[relation.name]:
            parsed = lm.encode_prompt(PromptTemplate.parse(prompt.text))
            learned = tuple(map(tuple, prompt.token_ids or ())) or parsed.segments
            encoded.append(parsed._replace(segments=learned))
        prompt_set = PromptSet(tuple(encoded), tuple(prompt.weight for prompt in prompts[relation.name]))
        return (score_with or consistency_scores)(lm, prompt_set, tuples, tick)

    return score


def consistency_scores(lm: LanguageModel, prompt_set: PromptSet, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
    from kgharvest.engine.scoring import compatibilities, consistency

    encoded = _encoded(lm, tuples)
    reader = prompt_set.reader(lm)
    fits = compatibilities(reader, prompt_set.prompts, encoded, PARAMS.alpha, PARAMS.batch_size, tick)  # (E, P)
    return consistency(fits, np.array(prompt_set.weights))


def corrected_scores(lm: LanguageModel, prompt_set: PromptSet, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
    """Return the consistency of prior-corrected compatibilities (kgharvest.engine.scoring)."""
    from kgharvest.engine.scoring import consistency, corrected_compatibilities, prior_logprobs

    encoded = _encoded(lm, tuples)
    priors = prior_logprobs(lm, encoded, PARAMS.batch_size, tick)
    fits = corrected_compatibilities(
        prompt_set.reader(lm), prompt_set.prompts, encoded, priors, PARAMS.alpha, PARAMS.batch_size, tick
    )
    return consistency(fits, np.array(prompt_set.weights))


def prior_scorer(lm: LanguageModel) -> Scorer:
    """Return a scorer of the entities' general likelihood: Eq. 1 on their log-probabilities in the empty prompt."""
    from kgharvest.engine.scoring import prior_logprobs

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        priors = prior_logprobs(lm, _encoded(lm, tuples), PARAMS.batch_size, tick)
        return PARAMS.alpha * priors.sum(axis=1) + (1 - PARAMS.alpha) * priors.min(axis=1)

    return score


def lpaqa_scorer(lm: LanguageModel) -> Scorer:
    """Return a scorer log P(last entity | other entities), with LPAQA's prompt weights, learned from training facts.

    Relations without training facts use their seed tuples. Relations without training prompts use their prompts.
    Raises UnsupportedModel if the LM is behind a server. The scorer raises EngineError if no training fact is usable.
    """
    from kgharvest.engine.language_models.base import fits
    from kgharvest.engine.language_models.pretrained import PretrainedLM
    from kgharvest.engine.prompt_learning.lpaqa import tail_ensemble, tail_logprobs
    from kgharvest.engine.prompts.template import parse_prompts

    if not isinstance(lm, PretrainedLM):
        raise UnsupportedModel(f"LPAQA requires a local LM, but {lm.name} is behind a server. Omit {LPAQA}.")

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        encoded = _encoded(lm, tuples)
        train = _encoded(lm, writable(lm, relation.train or relation.seed_tuples))
        if not train:
            raise EngineError(f"No training fact of {relation.name} can be written by {lm.name}. Add other facts.")
        texts = [*relation.initial_prompts, *(relation.train_prompts or relation.prompts)]
        longest = max((tuple(map(len, entities)) for entities in [*encoded, *train]), key=sum)
        prompts = list(map(lm.encode_prompt, parse_prompts(texts, len(longest))))
        fitting = [prompt for prompt in prompts if fits(lm, prompt, longest)]
        return tail_logprobs(lm, tail_ensemble(lm, fitting or prompts, train, tick), encoded, tick)

    return score


def _encoded(lm: LanguageModel, tuples: Sequence[Entities]) -> list[tuple[tuple[int, ...], ...]]:
    return [tuple(lm.encode_entity(entity) for entity in entities) for entities in tuples]


def writable(lm: LanguageModel, facts: Iterable[Entities]) -> list[Entities]:
    """Return the facts whose entities the LM can encode."""
    encodable = []
    for entities in facts:
        with suppress(BadSeed):
            if all(lm.encode_entity(entity) for entity in entities):
                encodable.append(entities)
    return encodable


class ScoredSamples(NamedTuple):
    """Samples with their scores: an array (E,) by scorer name. Missing scores are NaN and rank last."""

    samples: Sequence[Sample]
    scores: Mapping[str, np.ndarray]
    n_relations: int

    def rows(self) -> list[dict[str, Any]]:
        """Return each sample with its scores as a JSON-serializable dictionary."""
        names = list(self.scores)
        columns = [[float(value) if np.isfinite(value) else None for value in self.scores[name]] for name in names]
        return [
            {**sample._asdict(), "scores": dict(zip(names, values, strict=True))}
            for sample, *values in zip(self.samples, *columns, strict=True)
        ]


def score_samples(
    relations: Sequence[ScoredRelation],
    scorers: Mapping[str, Scorer],
    seed: int,
    on_progress: Callable[[int], None] = ignore,
) -> ScoredSamples:
    """Return the facts and an equal number of false tuples with their scores. Raises BadFacts if no fact is usable.

    on_progress: called with the number of finished relations.
    """
    facts = {relation.name: relation.facts for relation in relations if relation.facts}
    also_true = {relation.name: relation.learned_from for relation in relations}
    samples = with_negatives(facts, np.random.default_rng(seed), also_true)
    if all(sample.replaced is None for sample in samples):
        raise DomainError(
            "BadFacts",
            "Not enough facts: all are seed tuples, or none can be corrupted into a false tuple. Add more facts.",
        )
    scores = {name: np.full(len(samples), np.nan) for name in scorers}
    names = np.array([sample.relation for sample in samples], dtype=object)
    for done, relation in enumerate(relations):
        rows = np.flatnonzero(names == relation.name)
        for name, score in scorers.items():
            if len(rows):
                tuples = [samples[row].entities for row in rows]
                scores[name][rows] = score(relation, tuples, partial(on_progress, done))
        on_progress(done + 1)
    return ScoredSamples(samples, scores, len(facts))


def document_of(scored: ScoredSamples, seed: int) -> dict[str, Any]:
    samples = scored.samples
    is_positive = np.array([sample.replaced is None for sample in samples])
    names = np.array([sample.relation for sample in samples], dtype=object)
    # Tuples without a score rank last.
    ranked = {name: np.nan_to_num(values, nan=-np.inf, neginf=-np.inf) for name, values in scored.scores.items()}
    entries = [
        {**_scorer_entry(name, values, is_positive, names), "n_unscored": int(np.isnan(scored.scores[name]).sum())}
        for name, values in ranked.items()
    ]
    kinds = np.array([sample.replaced or "" for sample in samples], dtype=object)
    by_corruption = []  # all facts against the false tuples of one kind
    for name, values in ranked.items():
        for kind in sorted(set(kinds[~is_positive].tolist())):
            rows = is_positive | (kinds == kind)
            precision = average_precision(values[rows], is_positive[rows])
            by_corruption.append({"scorer": name, "corruption": kind, "average_precision": precision})
    precisions = {  # for paired comparisons by relation, as reports compare settings
        CellKey(entry["relation"], None, scorer["scorer"]): entry["average_precision"]
        for scorer in entries
        for entry in scorer["relations"]
    }
    return {
        "seed": seed,
        "n_relations": scored.n_relations,
        "n_positive": int(is_positive.sum()),
        "n_negative": int((~is_positive).sum()),
        "scorers": entries,
        "comparisons": [{key: row[key] for key in COMPARED} for row in compare_sides(precisions, {}, seed)],
        "by_corruption": by_corruption,
    }


def _scorer_entry(name: str, scores: np.ndarray, is_positive: np.ndarray, names: np.ndarray) -> dict[str, Any]:
    relations = []
    for relation in dict.fromkeys(names.tolist()):
        rows = names == relation
        relations.append({
            "relation": relation,
            "n_positive": int(is_positive[rows].sum()),
            "n_negative": int((~is_positive[rows]).sum()),
            "average_precision": average_precision(scores[rows], is_positive[rows]),
        })  # fmt: skip
    return {
        "scorer": name,
        "average_precision": average_precision(scores, is_positive),
        "macro_average_precision": macro_average(entry["average_precision"] for entry in relations),
        "relations": relations,
        "curve": [point._asdict() for point in precision_recall_curve(scores, is_positive)],
    }
