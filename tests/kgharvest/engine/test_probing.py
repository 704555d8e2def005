"""Probing: ranks, average measures, and selection of usable facts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.probing import (
    EncodedFact,
    Fact,
    Majority,
    ProbeScores,
    UsableFacts,
    common_words,
    probe,
    ranks_of,
    usable_facts,
)
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta

LOGITS = torch.tensor([[3.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])


class Answers:
    def __init__(self, scores):
        self._scores = scores

    def scores(self, heads, tick):
        yield from torch.split(self._scores, 1)


def facts_with(tails):
    return UsableFacts(tuple(EncodedFact((5,), tail) for tail in tails), {})


def probed(ranks):
    return ProbeScores(np.array(ranks), np.zeros(len(ranks)))


def test_rank_counts_better_tokens_plus_one():
    """Scores 3, 1, 2, 2. Ties do not lower the rank of the correct object."""
    ranks = [ranks_of(LOGITS[:1], torch.tensor([tail]))[0] for tail in range(4)]

    assert ranks == [1, 4, 2, 2]


def test_restricted_vocabulary_never_worsens_rank():
    assert ranks_of(LOGITS[:1], torch.tensor([1]), vocabulary=[1, 2])[0] == 2
    assert ranks_of(LOGITS[:1], torch.tensor([1]), vocabulary=[1])[0] == 1


@given(st.permutations(range(6)), st.integers(0, 5))
def test_ranks_ignore_token_order(order, tail):
    scores = torch.tensor([[0.3, -1.0, 2.0, 0.3, 0.0, 5.0]])
    permuted = scores[:, order]

    assert ranks_of(permuted, torch.tensor([order.index(tail)])) == ranks_of(scores, torch.tensor([tail]))


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=30))
def test_measures_are_ordered(ranks):
    scores = probed(ranks)

    assert 0 <= scores.precision_at(1) <= scores.mrr <= 1
    assert scores.precision_at(1) <= scores.precision_at(10)


def test_reciprocal_ranks_beyond_10000_count_zero_as_in_lama():
    assert probed([1, 2, 10_000, 10_001]).mrr == pytest.approx((1 + 0.5 + 1e-4) / 4)


def test_probe_accepts_answers_in_parts():
    scores = probe(Answers(torch.log_softmax(LOGITS, dim=1)), facts_with([2, 0]))

    assert scores.ranks.tolist() == [2, 1]
    assert scores.logprobs[1] == pytest.approx(np.log(1 / 4))


def test_unnormalized_scores_are_normalized():
    """Averaged log-probabilities, as in a rank ensemble, would otherwise give too small likelihoods."""
    scores = probe(Answers(LOGITS + 7), facts_with([2, 0]))

    assert scores.logprobs == pytest.approx(torch.log_softmax(LOGITS, dim=1)[[0, 1], [2, 0]].numpy())


def test_probe_without_facts_has_no_measures():
    scores = probe(Answers(LOGITS), facts_with([]))

    assert (scores.n, scores.precision_at(1), scores.mrr, scores.nll) == (0, None, None, None)


def test_majority_ranks_most_frequent_objects_first():
    majority = Majority(facts_with([3, 3, 1]), vocab_size=5)

    scores = probe(majority, facts_with([3, 1, 0]))

    assert scores.ranks.tolist() == [1, 2, 3]
    assert next(majority.scores([(1,)], lambda: None)).exp().sum() == pytest.approx(1)


def test_usable_facts_are_unique_and_have_one_token_objects(tmp_path):
    lm = load(str(tiny_bert(tmp_path)))
    facts = [Fact("paris", "france"), Fact("paris", "france"), Fact("paris", "rome fish"), Fact("paris", "☃")]

    usable = usable_facts(lm, facts)

    assert [lm.canonical_texts([fact.head])[0] for fact in usable.facts] == ["paris"]
    assert sum(usable.left_out.values()) == 2
    assert usable_facts(lm, facts, vocabulary=[0]).facts == ()


def test_without_removes_and_counts_facts_of_another_part():
    train = UsableFacts((EncodedFact((1,), 3), EncodedFact((2,), 4)), {})
    test = UsableFacts((EncodedFact((2,), 4),), {})

    assert train.without(test, "held out") == UsableFacts((EncodedFact((1,), 3),), {"held out": 1})
    assert test.without(UsableFacts((), {}), "held out") is test


def test_common_words_are_single_tokens_in_every_lm(tmp_path):
    """The uncased LM lacks "Rome" and the cased LM lacks "cat". The uncased LM reads "Paris" as "paris"."""
    uncased = load(tiny_bert(tmp_path / "uncased", words=("dog", "cat", "paris", "france")))
    cased = load(tiny_roberta(tmp_path / "cased", words=("dog", "Paris", "Rome", "France")))

    words = common_words([uncased, cased])

    assert [word for word in words if len(word) > 1] == ["France", "Paris", "dog"]
    assert words == common_words([cased, uncased])
    assert all(len(lm.encode_entity(word)) == 1 for lm in (uncased, cased) for word in words)


def test_common_words_can_be_chosen_from_a_list(tmp_path):
    lm = load(tiny_bert(tmp_path, words=("dog", "cat", "paris")))

    assert common_words([lm], ["cat", "paris", "elephant", "dog cat", "[MASK]", ""]) == ["cat", "paris"]
