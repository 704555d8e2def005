"""LPAQA: prompt weights from a convex optimization problem, and rankings by accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.base import Query
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.probing import EncodedFact, UsableFacts, probe
from kgharvest.engine.prompt_learning.lpaqa import (
    optimised_ensemble,
    product_nll,
    rank_ensemble,
    ranked_by_accuracy,
    tail_ensemble,
    tail_logprobs,
    top1,
)
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer, prompt_vectors, uniform
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import EngineError, HarvestParams, HarvestSpec
from tests.kgharvest.engine.tiny_models import tiny_gpt2


def nll(relation, prompt_set, facts=None):
    return probe(PromptSetAnswerer(relation.lm, prompt_set), facts or relation.train).nll


@pytest.fixture(scope="module")
def learned(relation):
    return optimised_ensemble(relation.lm, relation.prompts, relation.train)


def test_weights_are_shares(learned):
    assert min(learned.weights) >= 0
    assert sum(learned.weights) == pytest.approx(1, abs=1e-5)


def test_ensemble_is_as_likely_as_best_prompt_and_equal_weights(relation, learned):
    singles = [nll(relation, uniform([prompt])) for prompt in relation.prompts]

    assert nll(relation, learned) <= min(*singles, nll(relation, uniform(relation.prompts))) + 1e-2


def test_loss_is_convex_in_weights(relation):
    vectors = prompt_vectors(relation.lm, relation.prompts, relation.train.heads, 256, lambda: None)
    rng = np.random.default_rng(0)
    for _ in range(30):
        ends = torch.tensor(rng.dirichlet(np.ones(len(relation.prompts)), size=2), dtype=torch.float32)
        share = rng.random()
        along = [product_nll(relation.lm, vectors, weights, relation.train.tails) for weights in ends]
        between = product_nll(relation.lm, vectors, share * ends[0] + (1 - share) * ends[1], relation.train.tails)
        assert between <= share * along[0] + (1 - share) * along[1] + 1e-4


def test_weights_are_optimal(relation, learned):
    """Moving 5 % of the weight to any prompt must not lower the loss."""
    vectors = prompt_vectors(relation.lm, relation.prompts, relation.train.heads, 256, lambda: None)
    weights = torch.tensor(learned.weights)
    least = product_nll(relation.lm, vectors, weights, relation.train.tails)
    for vertex in torch.eye(len(weights)):
        assert product_nll(relation.lm, vectors, 0.95 * weights + 0.05 * vertex, relation.train.tails) >= least - 5e-3


def test_prompts_are_ranked_by_accuracy(relation):
    ranked = ranked_by_accuracy(relation.lm, relation.prompts, relation.train)

    assert [accuracy for accuracy, _ in ranked] == sorted((accuracy for accuracy, _ in ranked), reverse=True)
    assert top1(relation.lm, relation.prompts, relation.train).prompts == (ranked[0][1],)
    ensemble = rank_ensemble(relation.lm, relation.prompts, relation.train, 2)
    assert ensemble.prompts == tuple(prompt for _, prompt in ranked[:2])
    assert (ensemble.combine, ensemble.weights) == ("mean_score", (0.5, 0.5))


@pytest.mark.parametrize("learn", [top1, optimised_ensemble])
def test_learning_without_training_facts_is_refused(relation, learn):
    nothing = UsableFacts((), {"object of several tokens": 3})

    with pytest.raises(EngineError, match="3 object of several tokens"):
        learn(relation.lm, relation.prompts, nothing)


def test_tails_of_one_token_are_learned_and_scored_as_in_probing(relation, learned):
    train, test = ([(fact.head, (fact.tail,)) for fact in part.facts] for part in (relation.train, relation.test))

    prompt_set = tail_ensemble(relation.lm, relation.prompts, train, lambda: None)

    assert prompt_set.weights == pytest.approx(learned.weights, abs=1e-5)
    expected = probe(PromptSetAnswerer(relation.lm, prompt_set), relation.test).logprobs
    assert tail_logprobs(relation.lm, prompt_set, test, lambda: None) == pytest.approx(expected, abs=1e-4)


# Causal LMs


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    return load(str(tiny_gpt2(tmp_path_factory.mktemp("gpt2"))))


@pytest.fixture(scope="module")
def causal_facts(causal):
    words = ["Paris", "France", "Rome", "Italy", "Dog"]
    tokens = {word: causal.encode_entity(word) for word in words}
    single = [word for word in words if len(tokens[word]) == 1]
    return UsableFacts(tuple(EncodedFact(tokens[head], tokens[tail][0]) for head in words for tail in single[:2]), {})


@pytest.fixture(scope="module")
def causal_prompts(causal):
    texts = ("<ENT0> is the capital of <ENT1> .", "<ENT1> has <ENT0> .", "the city of <ENT0> is in <ENT1> .")
    return [causal.encode_prompt(PromptTemplate.parse(text)) for text in texts]


@pytest.mark.parametrize("is_affine", [True, False])
def test_causal_lm_answers_after_subject_line_and_prompts_multiply(
    causal, causal_facts, causal_prompts, is_affine, monkeypatch
):
    monkeypatch.setattr(causal, "is_affine", is_affine)
    learned = optimised_ensemble(causal, causal_prompts, causal_facts)

    def naive(fact):
        logits = [
            causal.logits(causal.vectors([Query(ids, len(ids) - 1)], 1, lambda: None))[0]
            for prompt in causal_prompts
            for ids in [(*prompt.segments[0], *fact.head, *causal.entity_end, *prompt.segments[1])]
        ]
        product = sum(w * one.log_softmax(-1) for w, one in zip(learned.weights, logits, strict=True))
        return float(product.log_softmax(-1)[fact.tail])

    scores = probe(PromptSetAnswerer(causal, learned), causal_facts)
    assert scores.logprobs == pytest.approx([naive(fact) for fact in causal_facts.facts], abs=1e-4)
    equal_weights = probe(PromptSetAnswerer(causal, uniform(causal_prompts)), causal_facts)
    assert scores.nll <= equal_weights.nll + 1e-3


def test_tail_of_several_tokens_is_scored_by_the_chain_rule(causal, causal_prompts):
    weights, tuples = (0.6, 0.3, 0.1), [((5, 6), (7,)), ((8,), (9, 10, 11)), ((5,), (6, 7))]

    def naive(head, tail):
        tokens, total = [*tail, *causal.entity_end], 0.0
        for n, token in enumerate(tokens):
            product = 0
            for prompt, weight in zip(causal_prompts, weights, strict=True):
                ids = (*prompt.segments[0], *head, *causal.entity_end, *prompt.segments[1], *tokens[:n])
                logits = causal.logits(causal.vectors([Query(ids, len(ids) - 1)], 1, lambda: None))[0]
                product = product + weight * logits.log_softmax(-1)
            total += float(product.log_softmax(-1)[token])
        return total

    scores = tail_logprobs(causal, PromptSet(tuple(causal_prompts), weights), tuples, lambda: None)

    assert scores == pytest.approx([naive(*entities) for entities in tuples], abs=1e-4)
    assert not len(tail_logprobs(causal, PromptSet(tuple(causal_prompts), weights), [], lambda: None))


def test_causal_lm_harvests_with_learned_weights(causal):
    texts = ("<ENT0> is the capital of <ENT1> .", "<ENT1> has <ENT0> .")
    seeds = (("Paris", "France"), ("Rome", "Italy"))
    params = HarvestParams(candidates=5, max_entity_tokens=1)

    result = harvest(HarvestSpec("capital", texts[:1], seeds, "lpaqa", texts, params), causal)

    assert sum(prompt.weight for prompt in result.prompts) == pytest.approx(1, abs=1e-5)
    assert result.tuples
