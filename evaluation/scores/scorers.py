"""Scorers: how well scores of an LM with different prompts tell known facts from negative samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evaluation.evidence.arrays import CellKey
from evaluation.reports.sections.comparisons import compare_sides
from evaluation.scores.facts import ScoredRelation
from evaluation.scores.negative_sampling import Entities, Sample, with_negatives
from evaluation.scores.rankings import average_precision, precision_recall_curve
from evaluation.statistics.rates import macro_average
from kgharvest.engine.types import HarvestParams, HarvestSpec, ignore
from kgharvest.errors import DomainError

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel
    from kgharvest.engine.prompts.prompt_set import PromptSet

Tick = Callable[[], None]
PARAMS = HarvestParams()
COMPARED = ("a", "b", "n_relations", "difference", "low", "high", "reason", "p_sign_flip", "p_holm", "sentence")

# Scores (E,) of tuples under a relation, higher for what is held to be true; whatever gives these can be compared.
# Calls the tick now and then, which may raise to end the work.
Scorer = Callable[[ScoredRelation, Sequence[Entities], Tick], np.ndarray]


class BadFacts(DomainError):
    """Facts that leave nothing to score."""


# -- scores ------------------------------------------------------------------------------------------------------------


def setting_scorer(lm: LanguageModel, setting: str) -> Scorer:
    """Return the consistency (Eq. 2) with a setting's prompts, weighed or learned on the seeds as in a harvest."""
    from kgharvest.engine.harvest import encode_seeds
    from kgharvest.engine.prompts.strategies import PromptSource, choose_prompts

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        seeds = tuple(tuple(entities) for entities in relation.seed_tuples)
        spec = HarvestSpec(relation.name, tuple(relation.initial_prompts), seeds, setting, tuple(relation.prompts))
        source = PromptSource(spec, lm, encode_seeds(seeds, lm), None, lambda _: tick())
        return _consistency(lm, choose_prompts(source).prompt_set, tuples, tick)

    return score


class StoredPrompt(NamedTuple):
    """A prompt as a finished harvest used it. token_ids: of the texts around the slots, of a prompt without words."""

    text: str
    weight: float
    token_ids: Sequence[Sequence[int]] | None = None

    def encoded(self, lm: LanguageModel) -> EncodedPrompt:
        from kgharvest.engine.prompts.template import PromptTemplate

        encoded = lm.encode_prompt(PromptTemplate.parse(self.text))
        return encoded._replace(segments=tuple(map(tuple, self.token_ids))) if self.token_ids else encoded


def stored_scorer(lm: LanguageModel, prompts: Mapping[str, Sequence[StoredPrompt]]) -> Scorer:
    """Return the consistency with the prompts, and their weights, of one finished harvest per relation."""
    from kgharvest.engine.prompts.prompt_set import PromptSet

    def score(relation: ScoredRelation, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
        own = prompts[relation.name]
        prompt_set = PromptSet(tuple(prompt.encoded(lm) for prompt in own), tuple(prompt.weight for prompt in own))
        return _consistency(lm, prompt_set, tuples, tick)

    return score


def _consistency(lm: LanguageModel, prompt_set: PromptSet, tuples: Sequence[Entities], tick: Tick) -> np.ndarray:
    from kgharvest.engine.scoring import compatibilities, consistency

    encoded = [tuple(lm.encode_entity(entity) for entity in entities) for entities in tuples]
    reader = prompt_set.reader(lm)
    fits = compatibilities(reader, prompt_set.prompts, encoded, PARAMS.alpha, PARAMS.batch_size, tick)  # (E, P)
    return consistency(fits, np.array(prompt_set.weights))


def writable(lm: LanguageModel, relation: ScoredRelation) -> list[Entities]:
    """Return the facts whose entities the LM can write."""
    from kgharvest.engine.types import BadSeed

    def can_write(entities: Entities) -> bool:
        try:
            return all(lm.encode_entity(entity) for entity in entities)
        except BadSeed:
            return False

    return [entities for entities in relation.facts if can_write(entities)]


def evaluate_scores(
    relations: Sequence[ScoredRelation],
    scorers: Mapping[str, Scorer],
    seed: int,
    on_progress: Callable[[int], None] = ignore,
) -> dict[str, Any]:
    """Return what docs/report-json.md describes, but for the names of LM and facts. Raises BadFacts without facts.

    on_progress: is told how many relations are done.
    """
    facts = {relation.name: relation.facts for relation in relations if relation.facts}
    also_true = {relation.name: relation.learned_from for relation in relations}
    samples = with_negatives(facts, np.random.default_rng(seed), also_true)
    is_positive = np.array([sample.replaced is None for sample in samples])
    if not len(samples) or is_positive.all():
        raise BadFacts("There is no fact beside the seed tuples, or none to make false; give more facts.")
    scores = {name: np.full(len(samples), np.nan) for name in scorers}
    names = np.array([sample.relation for sample in samples], dtype=object)
    for done, relation in enumerate(relations):
        own = np.flatnonzero(names == relation.name)
        for name, score in scorers.items():
            if len(own):
                tuples = [samples[index].entities for index in own]
                scores[name][own] = score(relation, tuples, partial(on_progress, done))
        on_progress(done + 1)
    entries = [_scorer_entry(name, scores_of_all, is_positive, names) for name, scores_of_all in scores.items()]
    return {
        "seed": seed,
        "n_relations": len(facts),
        "n_positive": int(is_positive.sum()),
        "n_negative": int((~is_positive).sum()),
        "scorers": entries,
        "comparisons": _comparisons(entries, seed),
        "by_corruption": list(_by_replaced(samples, scores, is_positive)),
    }


def _scorer_entry(name: str, scores: np.ndarray, is_positive: np.ndarray, names: np.ndarray) -> dict[str, Any]:
    relations = []
    for relation in dict.fromkeys(names.tolist()):
        own = names == relation
        relations.append({
            "relation": relation,
            "n_positive": int(is_positive[own].sum()),
            "n_negative": int((~is_positive[own]).sum()),
            "average_precision": average_precision(scores[own], is_positive[own]),
        })  # fmt: skip
    return {
        "scorer": name,
        "average_precision": average_precision(scores, is_positive),
        "macro_average_precision": macro_average(entry["average_precision"] for entry in relations),
        "relations": relations,
        "curve": [point._asdict() for point in precision_recall_curve(scores, is_positive)],
    }


def _comparisons(scorers: Iterable[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Compare the scorers, paired by relation, as a report compares settings; differences are of average precision."""
    precisions = {
        CellKey(entry["relation"], None, scorer["scorer"]): entry["average_precision"]
        for scorer in scorers
        for entry in scorer["relations"]
    }
    return [{key: compared[key] for key in COMPARED} for compared in compare_sides(precisions, {}, seed)]


def _by_replaced(
    samples: Sequence[Sample], scores: Mapping[str, np.ndarray], is_positive: np.ndarray
) -> Iterable[dict[str, Any]]:
    """Yield for each scorer and kind the average precision against the false tuples of that kind alone."""
    kinds = np.array([sample.replaced or "" for sample in samples], dtype=object)
    for name, scores_of_all in scores.items():
        for kind in sorted(set(kinds[~is_positive].tolist())):
            kept = is_positive | (kinds == kind)
            precision = average_precision(scores_of_all[kept], is_positive[kept])
            yield {"scorer": name, "corruption": kind, "average_precision": precision}
