"""Compatibility, prompt weights, and consistency, compared with hand computation."""

from math import exp, log

import numpy as np
import pytest
import torch

from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import (
    compatibilities,
    compatibility,
    consistency,
    corrected_compatibilities,
    entity_logprobs,
    prior_logprobs,
    prompt_weights,
)
from tests.kgharvest.engine.fakes import FakeLM

WORDS = ["paris", "france", "new", "york", "usa"]
FACTS = {
    (): {"paris": 0.5, "new": 0.2, "york": 0.1},
    ("paris",): {"france": 0.8},
    ("new",): {"york": 0.9},
    ("new", "york"): {"usa": 0.25},
}


def encode_prompts(lm, *texts):
    return [lm.encode_prompt(PromptTemplate.parse(text)) for text in texts]


def test_compatibility_matches_equation_1():
    # f = 2/3 (log .5 + log .8) + 1/3 min(log .5, log .8)
    lm = FakeLM(WORDS, FACTS)

    value = compatibilities(lm, encode_prompts(lm, "<ENT0> in <ENT1>"), [((0,), (1,))], 2 / 3, 8, lambda: None)

    assert value == pytest.approx(np.array([[2 / 3 * log(0.4) + 1 / 3 * log(0.5)]]), abs=1e-6)


def test_multi_token_entity_probability_is_product():
    # Fig. 6: P(new york | p) = P(new | p) P(york | p, new), then P(usa | p, new york).
    lm = FakeLM(WORDS, FACTS)

    logprobs = entity_logprobs(lm, encode_prompts(lm, "<ENT0> in <ENT1>"), [((2, 3), (4,))], 8, lambda: None)

    assert np.exp(logprobs) == pytest.approx(np.array([[[0.2 * 0.9, 0.25]]]), abs=1e-6)


def test_compatibility_uses_minimum_over_all_entities():
    value = compatibility(torch.tensor([0.5, 0.1, 0.2]).log(), 2 / 3)

    assert value.item() == pytest.approx(2 / 3 * log(0.01) + 1 / 3 * log(0.1))


def test_prompt_weights_are_softmax_of_mean_compatibilities():
    weights = prompt_weights(np.array([-1.0, -2.0, -1001.0]))

    assert weights[:2] == pytest.approx([exp(-1) / (exp(-1) + exp(-2)), exp(-2) / (exp(-1) + exp(-2))])
    assert weights.sum() == pytest.approx(1)


def test_consistency_is_weighted_mean():
    assert consistency(np.array([[-1.0, -3.0]]), np.array([0.75, 0.25])) == pytest.approx([-1.5])


def test_tuples_with_shared_prefix_share_queries():
    lm = FakeLM(WORDS, FACTS)

    entity_logprobs(
        lm, encode_prompts(lm, "<ENT0> in <ENT1>"), [((0,), (1,)), ((0,), (4,)), ((0,), (2,))], 8, lambda: None
    )

    assert len(lm.scored_queries) == 2  # the head, and the tail after "paris"


def test_prompts_are_scored_separately():
    lm = FakeLM(WORDS, FACTS, {"<ENT1> has <ENT0>": {(): {"paris": 0.125}, ("paris",): {"france": 0.5}}})

    logprobs = entity_logprobs(
        lm, encode_prompts(lm, "<ENT0> in <ENT1>", "<ENT1> has <ENT0>"), [((0,), (1,))], 8, lambda: None
    )

    assert np.exp(logprobs) == pytest.approx(np.array([[[0.5, 0.8], [0.125, 0.5]]]), abs=1e-6)


EMPTY = "<ENT0>"
ALONE = {EMPTY: {(): {"paris": 0.25, "france": 0.1}}}


def test_prior_is_entity_probability_without_prompt():
    lm = FakeLM(WORDS, FACTS, ALONE)

    priors = prior_logprobs(lm, [((0,), (1,)), ((1,), (0,))], 8, lambda: None)

    assert np.exp(priors) == pytest.approx(np.array([[0.25, 0.1], [0.1, 0.25]]), abs=1e-6)


def test_corrected_compatibility_is_equation_1_of_pmi():
    # .5 / .25 and .8 / .1: 2/3 (log 2 + log 8) + 1/3 log 2
    lm = FakeLM(WORDS, FACTS, ALONE)
    tuples = [((0,), (1,))]
    priors = prior_logprobs(lm, tuples, 8, lambda: None)

    value = corrected_compatibilities(
        lm, encode_prompts(lm, "<ENT0> in <ENT1>"), tuples, priors, 2 / 3, 8, lambda: None
    )

    assert value == pytest.approx(np.array([[2 / 3 * log(16) + 1 / 3 * log(2)]]), abs=1e-6)


def test_uninformative_prompt_has_zero_corrected_compatibility():
    lm = FakeLM(WORDS, {}, {})  # all words are equally likely everywhere
    tuples = [((0,), (1,)), ((2,), (4,))]
    priors = prior_logprobs(lm, tuples, 8, lambda: None)

    values = corrected_compatibilities(
        lm, encode_prompts(lm, "<ENT0> in <ENT1>"), tuples, priors, 2 / 3, 8, lambda: None
    )

    assert values == pytest.approx(np.zeros((2, 1)), abs=1e-6)
