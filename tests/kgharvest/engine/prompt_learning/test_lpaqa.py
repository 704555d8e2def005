"""Weights of prompts: the value of a convex problem, never that of a linear one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kgharvest.engine.probing import UsableFacts, probe
from kgharvest.engine.prompt_learning.lpaqa import (
    optimised_ensemble,
    product_nll,
    rank_ensemble,
    ranked_by_accuracy,
    top1,
)
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, prompt_vectors, uniform
from kgharvest.engine.types import EngineError


def nll(known, prompt_set, facts=None):
    return probe(PromptSetAnswerer(known.lm, prompt_set), facts or known.train).nll


@pytest.fixture(scope="module")
def learned(known):
    return optimised_ensemble(known.lm, known.prompts, known.train)


def test_the_weights_are_shares(learned):
    assert min(learned.weights) >= 0
    assert sum(learned.weights) == pytest.approx(1, abs=1e-5)


def test_the_ensemble_is_as_likely_as_the_best_prompt_and_as_equal_weights(known, learned):
    singles = [nll(known, uniform([prompt])) for prompt in known.prompts]

    assert nll(known, learned) <= min(*singles, nll(known, uniform(known.prompts))) + 1e-2


def test_the_loss_is_convex_in_the_weights(known):
    vectors = prompt_vectors(known.lm, known.prompts, known.train.heads, 256, lambda: None)
    rng = np.random.default_rng(0)
    for _ in range(30):
        ends = torch.tensor(rng.dirichlet(np.ones(len(known.prompts)), size=2), dtype=torch.float32)
        share = rng.random()
        along = [product_nll(known.lm, vectors, weights, known.train.tails) for weights in ends]
        between = product_nll(known.lm, vectors, share * ends[0] + (1 - share) * ends[1], known.train.tails)
        assert between <= share * along[0] + (1 - share) * along[1] + 1e-4


def test_no_weights_nearby_are_better(known, learned):
    """The optimum, checked by moving a twentieth of the weight to each prompt in turn."""
    vectors = prompt_vectors(known.lm, known.prompts, known.train.heads, 256, lambda: None)
    weights = torch.tensor(learned.weights)
    least = product_nll(known.lm, vectors, weights, known.train.tails)
    for vertex in torch.eye(len(weights)):
        assert product_nll(known.lm, vectors, 0.95 * weights + 0.05 * vertex, known.train.tails) >= least - 5e-3


def test_the_best_prompt_comes_first(known):
    ranked = ranked_by_accuracy(known.lm, known.prompts, known.train)

    assert [accuracy for accuracy, _ in ranked] == sorted((accuracy for accuracy, _ in ranked), reverse=True)
    assert top1(known.lm, known.prompts, known.train).prompts == (ranked[0][1],)
    ensemble = rank_ensemble(known.lm, known.prompts, known.train, 2)
    assert ensemble.prompts == tuple(prompt for _, prompt in ranked[:2])
    assert (ensemble.combine, ensemble.weights) == ("mean_score", (0.5, 0.5))


@pytest.mark.parametrize("learn", [top1, optimised_ensemble])
def test_without_training_facts_there_is_a_sentence(known, learn):
    nothing = UsableFacts((), {"object of several tokens": 3})

    with pytest.raises(EngineError, match="3 object of several tokens"):
        learn(known.lm, known.prompts, nothing)
