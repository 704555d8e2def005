"""Model card of an embedded LM: training data, recipe, measured quality (recall of tails), and limits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from kgharvest.embedded_lm.corpus import MISCONCEPTION_WEIGHT
from kgharvest.embedded_lm.train import Recipe
from kgharvest.embedded_lm.world import Entities, Phrasing, Relation
from kgharvest.engine.language_models.base import LanguageModel, filled_tokens

N_PHRASINGS = 12
BATCH_SIZE = 256

CARD = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")


def model_card(name: str, recipe: Recipe, seed: int, relations: Sequence[Relation], lm: LanguageModel) -> str:
    """Return the card of `lm`, which was trained with `recipe` on `relations`. Measures the LM's quality."""
    seen = average([tail_recall(lm, relation, some_phrasings(relation)) for relation in relations])
    held_out = average([tail_recall(lm, relation, relation.held_out) for relation in relations])
    return CARD.format(
        **vars(recipe),
        name=name,
        seed=seed,
        seen=seen,
        held_out=held_out,
        majority=seen.majority,
        misconception_weight=MISCONCEPTION_WEIGHT,
        vocab_size=lm.vocab_size,
        n_relations=len(relations),
        n_ternary=sum(relation.arity == 3 for relation in relations),
        n_facts=sum(len(relation.facts) for relation in relations),
        n_misconceptions=sum(len(relation.misconceptions) for relation in relations),
    )


@dataclass(frozen=True)
class TailRecall:
    """Accuracy of predicting the last entity of facts from the preceding entities. All measures are in [0, 1].

    Other true tails of the same head are excluded from the ranking.
    majority: share of correct answers of a baseline that always predicts the relation's most frequent tail, with the
        same exclusions.
    """

    precision_at_1: float
    precision_at_10: float
    mean_reciprocal_rank: float
    majority: float


def tail_recall(lm: LanguageModel, relation: Relation, phrasings: Sequence[Phrasing]) -> TailRecall:
    """Rank the single-token tails of `relation` over the whole vocabulary. Requires at least one such tail.

    All phrasings have equal weight and are used in their first wording.
    """
    facts = [entities for entities in relation.facts if len(lm.encode_entity(entities[-1])) == 1]
    prompts = [lm.encode_prompt(phrasing.first) for phrasing in phrasings]
    encoded = [[lm.encode_entity(entity) for entity in entities] for entities in facts]
    queries = [
        lm.query(prompt, tuple(map(len, ids)), filled_tokens(lm, ids[:-1])) for prompt in prompts for ids in encoded
    ]
    # (P * F, V) for P prompts, F facts, and V tokens in the vocabulary.
    logits = lm.logits(lm.vectors(queries, BATCH_SIZE, lambda: None))
    tails = [ids[-1][0] for ids in encoded] * len(prompts)
    tail_of = dict(zip(facts, tails, strict=False))
    excluded = [
        [tail_of[fact] for fact in facts if fact[:-1] == entities[:-1] and fact != entities] for entities in facts
    ] * len(prompts)
    ranks = np.array([filtered_rank(*row) for row in zip(logits.numpy(), tails, excluded, strict=True)])
    return TailRecall(
        precision_at_1=float((ranks == 1).mean()),
        precision_at_10=float((ranks <= 10).mean()),
        mean_reciprocal_rank=float((1 / ranks).mean()),
        majority=majority_recall(facts),
    )


def some_phrasings(relation: Relation) -> Sequence[Phrasing]:
    """Return about `N_PHRASINGS` training phrasings, evenly spaced in the relation's file."""
    return relation.phrasings[:: max(len(relation.phrasings) // N_PHRASINGS, 1)]


def average(recalls: Sequence[TailRecall]) -> TailRecall:
    """Return the mean of each measure over relations."""
    return TailRecall(*map(fmean, zip(*map(astuple, recalls), strict=True)))


def filtered_rank(logits: NDArray[np.float32], token: int, others: Sequence[int]) -> int:
    """Return the rank (from 1) of `token` by its logit, with `others` excluded from the vocabulary."""
    n_better = np.count_nonzero(logits > logits[token]) - np.count_nonzero(logits[others] > logits[token])
    return int(n_better) + 1


def majority_recall(facts: Sequence[Entities]) -> float:
    """Return the accuracy of always predicting the most frequent tail. Excludes other true tails of the head."""
    frequency = Counter(tail for *_, tail in facts)
    tails_of = defaultdict(set)
    for *head, tail in facts:
        tails_of[tuple(head)].add(tail)
    hits = [
        tail
        == max(frequency, key=lambda other: (other == tail or other not in tails_of[tuple(head)], frequency[other]))
        for *head, tail in facts
    ]
    return sum(hits) / len(hits)
