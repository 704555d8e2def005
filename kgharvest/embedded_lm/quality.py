"""Quality of an embedded LM: recall of the tail of a fact, given its head."""

from __future__ import annotations

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
    """How well the last entity of facts is predicted from those before it, each in [0, 1].

    A prediction is right if it completes a fact: the other true tails of the same head are left out of the ranking.
    majority: the share of right answers when always the relation's most frequent tail is given, ranked alike.
    """

    precision_at_1: float
    precision_at_10: float
    mean_reciprocal_rank: float
    majority: float


def tail_recall(lm: LanguageModel, relation: Relation, phrasings: Sequence[Phrasing]) -> TailRecall:
    """Rank the one-token tails of `relation`, which has some, over the whole vocabulary.

    Every phrasing counts equally, in its first wording.
    """
    facts = [entities for entities in relation.facts if len(lm.encode_entity(entities[-1])) == 1]
    prompts = [lm.encode_prompt(phrasing.first) for phrasing in phrasings]
    queries = [tail_query(lm, prompt, entities) for prompt in prompts for entities in facts]
    logits = lm.logits(lm.vectors(queries, BATCH_SIZE, lambda: None))  # (P * F, V): prompts, facts, vocabulary
    tails = [lm.encode_entity(entities[-1])[0] for entities in facts] * len(prompts)
    others = [other_tails(lm, entities, facts) for entities in facts] * len(prompts)
    ranks = np.array([filtered_rank(*row) for row in zip(logits.numpy(), tails, others, strict=True)])
    return TailRecall(
        precision_at_1=float((ranks == 1).mean()),
        precision_at_10=float((ranks <= 10).mean()),
        mean_reciprocal_rank=float((1 / ranks).mean()),
        majority=majority_recall(facts),
    )


def some_phrasings(relation: Relation) -> Sequence[Phrasing]:
    """Return about `N_PHRASINGS` of those trained on, from all over the relation's file."""
    return relation.phrasings[:: max(len(relation.phrasings) // N_PHRASINGS, 1)]


def average(recalls: Sequence[TailRecall]) -> TailRecall:
    """Return the mean of each measure; relations count equally."""
    return TailRecall(*map(fmean, zip(*map(astuple, recalls), strict=True)))


def tail_query(lm: LanguageModel, prompt: EncodedPrompt, entities: Entities) -> Query:
    *head, tail = (lm.encode_entity(entity) for entity in entities)
    return lm.query(prompt, (*map(len, head), len(tail)), filled_tokens(lm, head))


def other_tails(lm: LanguageModel, entities: Entities, facts: Sequence[Entities]) -> list[int]:
    """Return the token ids of the tails that complete a fact as `entities` does."""
    same_head = [fact for fact in facts if fact[:-1] == entities[:-1] and fact != entities]
    return [lm.encode_entity(fact[-1])[0] for fact in same_head]


def filtered_rank(logits: NDArray[np.float32], token: int, others: Sequence[int]) -> int:
    """Return the rank of `token` by its logit, counted from 1, as if `others` were not in the vocabulary."""
    n_better = np.count_nonzero(logits > logits[token]) - np.count_nonzero(logits[others] > logits[token])
    return int(n_better) + 1


def majority_recall(facts: Sequence[Entities]) -> float:
    """Return the share of facts that are right when the most frequent tail not yet known of the head is given."""
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
