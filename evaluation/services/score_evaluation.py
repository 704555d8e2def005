"""Score known facts and corrupted ones with an LM and different prompts, and see which scores tell them apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.corruption import Entities, Sample, with_corruptions
from evaluation.metrics.intervals import macro_average
from evaluation.metrics.precision_recall import average_precision, precision_recall_curve
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import DomainError
from kgharvest.services.reading import parsed_json
from kgharvest.services.relations import resolve_relation

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import LanguageModel

SETTINGS = ("human", "top1", "multi")
DEMO_SET = Path(__file__).resolve().parents[2] / "kgharvest" / "relation_sets" / "demo.json"


class BadFacts(DomainError):
    """A file of facts that cannot be read, or that leaves nothing to score."""


@dataclass(frozen=True)
class ScoredRelation:
    """A relation with its prompts, its seeds, which weigh them, and the facts, seeds left out."""

    name: str
    initial_prompts: Sequence[str]
    prompts: Sequence[str]
    seed_tuples: Sequence[Entities]
    facts: Sequence[Entities]


# Scores (E,) of tuples under a relation, higher for what is held to be true; whatever gives these can be compared.
Scorer = Callable[[ScoredRelation, Sequence[Entities]], np.ndarray]


# -- facts -------------------------------------------------------------------------------------------------------------


def built_in_facts() -> list[ScoredRelation]:
    """Return the world that the embedded LMs were trained on, with the prompts of the set `demo`."""
    relations = {each["name"]: each for each in json.loads(DEMO_SET.read_text(encoding="utf-8"))["relations"]}
    return [
        _scored_relation(world.name, relations[world.name], world.facts)
        for world in load_world()
        if world.name in relations
    ]


def facts_of_file(path: Path) -> list[ScoredRelation]:
    """Return the facts of a JSONL file, one {"relation", "entities"} a line, with the prompts of stored relations."""
    facts: dict[str, list[Entities]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if line.strip():
            relation, entities = _fact(line, f"{path.name}, line {number}")
            facts.setdefault(relation, []).append(entities)
    return [_stored_relation(name, own) for name, own in facts.items()]


def _fact(line: str, where: str) -> tuple[str, Entities]:
    try:
        fact = parsed_json(line)
        relation, entities = fact["relation"], tuple(fact["entities"])
    except (ValueError, TypeError, KeyError):
        raise BadFacts(f'{where}: write one {{"relation": "...", "entities": ["...", "..."]}} a line.') from None
    if not all(isinstance(entity, str) and entity.strip() for entity in entities):
        raise BadFacts(f"{where}: every entity is a text; correct the line.")
    return relation, entities


def _stored_relation(name: str, facts: Sequence[Entities]) -> ScoredRelation:
    relation = resolve_relation(name)
    for entities in facts:
        if len(entities) != relation.arity:
            raise BadFacts(f"{name} takes {relation.arity} entities, but {list(entities)} has {len(entities)}.")
    fields = ("initial_prompts", "prompts", "seed_tuples")
    return _scored_relation(name, {field: getattr(relation, field) for field in fields}, facts)


def _scored_relation(name: str, relation: Mapping[str, Any], facts: Iterable[Entities]) -> ScoredRelation:
    seeds = [tuple(entities) for entities in relation["seed_tuples"]]
    others = [entities for entities in dict.fromkeys(facts) if entities not in seeds]
    prompts = relation["prompts"] or relation["initial_prompts"]
    return ScoredRelation(name, relation["initial_prompts"], prompts, seeds, others)


# -- scores ------------------------------------------------------------------------------------------------------------


def prompt_scorer(lm: LanguageModel, setting: str) -> Scorer:
    """Return the consistency (Eq. 2) with the setting's prompts, weighted as a harvest weighs them."""
    from kgharvest.engine.harvest import encode_seeds
    from kgharvest.engine.prompts.choosing import Choice, choose_prompts
    from kgharvest.engine.scoring import compatibilities, consistency
    from kgharvest.engine.types import HarvestSpec, ignore

    def score(relation: ScoredRelation, tuples: Sequence[Entities]) -> np.ndarray:
        seeds = tuple(tuple(entities) for entities in relation.seed_tuples)
        spec = HarvestSpec(relation.name, tuple(relation.initial_prompts), seeds, setting, tuple(relation.prompts))
        asked = choose_prompts(Choice(spec, lm, encode_seeds(seeds, lm), None, ignore)).prompt_set
        encoded = [tuple(lm.encode_entity(entity) for entity in entities) for entities in tuples]
        alpha, batch_size = spec.params.alpha, spec.params.batch_size
        fits = compatibilities(lm, asked.prompts, encoded, alpha, batch_size, lambda: None)  # (E, P)
        return consistency(fits, np.array(asked.weights))

    return score


def evaluate_scores(
    relations: Sequence[ScoredRelation],
    scorers: Mapping[str, Scorer],
    seed: int,
    on_relation: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return what docs/report-json.md describes, but for the names of LM and facts. Raises BadFacts without facts."""
    facts = {relation.name: relation.facts for relation in relations if relation.facts}
    samples = with_corruptions(facts, np.random.default_rng(seed))
    is_positive = np.array([sample.corruption is None for sample in samples])
    if not len(samples) or is_positive.all():
        raise BadFacts("There is no fact beside the seed tuples, or none to make false; give more facts.")
    scores = {name: np.full(len(samples), np.nan) for name in scorers}
    names = np.array([sample.relation for sample in samples], dtype=object)
    for relation in relations:
        own = np.flatnonzero(names == relation.name)
        for name, score in scorers.items():
            if len(own):
                scores[name][own] = score(relation, [samples[index].entities for index in own])
        on_relation()
    return {
        "seed": seed,
        "n_relations": len(facts),
        "n_positive": int(is_positive.sum()),
        "n_negative": int((~is_positive).sum()),
        "scorers": [_scorer_entry(name, found, is_positive, names) for name, found in scores.items()],
        "by_corruption": list(_by_corruption(samples, scores, is_positive)),
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
        "macro_average_precision": macro_average(each["average_precision"] for each in relations),
        "relations": relations,
        "curve": [point._asdict() for point in precision_recall_curve(scores, is_positive)],
    }


def _by_corruption(
    samples: Sequence[Sample], scores: Mapping[str, np.ndarray], is_positive: np.ndarray
) -> Iterable[dict[str, Any]]:
    """Yield for each scorer and kind the average precision against the false tuples of that kind alone."""
    kinds = np.array([sample.corruption or "" for sample in samples], dtype=object)
    for name, found in scores.items():
        for kind in sorted(set(kinds[~is_positive].tolist())):
            kept = is_positive | (kinds == kind)
            precision = average_precision(found[kept], is_positive[kept])
            yield {"scorer": name, "corruption": kind, "average_precision": precision}
