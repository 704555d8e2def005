"""Quality of an embedded LM: recall of the tail of a fact, given its head."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from kgharvest.embedded_lm.world import Entities, Phrasing, Relation
from kgharvest.engine.language_models.base import EncodedPrompt, LanguageModel, Query, filled_tokens

N_PHRASINGS = 12
BATCH_SIZE = 256


@dataclass(frozen=True)
class TailRecall:
    """Accuracy of predicting the last entity of facts from the preceding entities. All measures are in [0, 1].

    Other true tails of the same head are excluded from the ranking.
    majority: share of correct answers of a baseline that always predicts the relation's most frequent tail, ranked
        alike.
    """

    precision_at_1: float
    precision_at_10: float
    mean_reciprocal_rank: float
    majority: float


def tail_recall(lm: LanguageModel, relation: Relation, phrasings: Sequence[Phrasing]) -> TailRecall:
    """Rank the single-token tails of `relation` over the whole vocabulary. There must be at least one.

    All phrasings have equal weight and are used in their first wording.
    """
    facts = [entities for entities in relation.facts if len(lm.encode_entity(entities[-1])) == 1]
    prompts = [lm.encode_prompt(phrasing.first) for phrasing in phrasings]
    queries = [tail_query(lm, prompt, entities) for prompt in prompts for entities in facts]
    logits = lm.logits(lm.vectors(queries, BATCH_SIZE, lambda: None))  # (P * F, V): prompts, facts, vocabulary
    tails = [lm.encode_entity(entities[-1])[0] for entities in facts] * len(prompts)
    excluded = [other_tails(lm, entities, facts) for entities in facts] * len(prompts)
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


def tail_query(lm: LanguageModel, prompt: EncodedPrompt, entities: Entities) -> Query:
    *head, tail = (lm.encode_entity(entity) for entity in entities)
    return lm.query(prompt, (*map(len, head), len(tail)), filled_tokens(lm, head))


def other_tails(lm: LanguageModel, entities: Entities, facts: Sequence[Entities]) -> list[int]:
    """Return the token ids of the other tails that form a fact with the same head."""
    same_head = [fact for fact in facts if fact[:-1] == entities[:-1] and fact != entities]
    return [lm.encode_entity(fact[-1])[0] for fact in same_head]


def filtered_rank(logits: NDArray[np.float32], token: int, others: Sequence[int]) -> int:
    """Return the rank of `token` by its logit, from 1, with `others` excluded from the vocabulary."""
    n_better = np.count_nonzero(logits > logits[token]) - np.count_nonzero(logits[others] > logits[token])
    return int(n_better) + 1


def majority_recall(facts: Sequence[Entities]) -> float:
    """Return the accuracy of always predicting the most frequent tail, without other true tails of the head."""
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
