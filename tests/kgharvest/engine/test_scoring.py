"""Compatibility, prompt weights and consistency against values worked out by hand."""

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


def ask(lm, *texts):
    return [lm.encode_prompt(PromptTemplate.parse(text)) for text in texts]


def test_compatibility_is_equation_1_for_two_entities():
    # f = 2/3 (log .5 + log .8) + 1/3 min(log .5, log .8)
    lm = FakeLM(WORDS, FACTS)

    value = compatibilities(lm, ask(lm, "<ENT0> in <ENT1>"), [((0,), (1,))], 2 / 3, 8, lambda: None)

    assert value == pytest.approx(np.array([[2 / 3 * log(0.4) + 1 / 3 * log(0.5)]]), abs=1e-6)


def test_an_entity_of_several_tokens_has_the_product_of_their_probabilities():
    # Fig. 6: P(new york | p) = P(new | p) P(york | p, new), then P(usa | p, new york).
    lm = FakeLM(WORDS, FACTS)

    logprobs = entity_logprobs(lm, ask(lm, "<ENT0> in <ENT1>"), [((2, 3), (4,))], 8, lambda: None)

    assert np.exp(logprobs) == pytest.approx(np.array([[[0.2 * 0.9, 0.25]]]), abs=1e-6)


def test_compatibility_takes_the_minimum_over_all_entities():
    value = compatibility(torch.tensor([0.5, 0.1, 0.2]).log(), 2 / 3)

    assert value.item() == pytest.approx(2 / 3 * log(0.01) + 1 / 3 * log(0.1))


def test_weights_are_the_softmax_of_mean_compatibilities():
    weights = prompt_weights(np.array([-1.0, -2.0, -1001.0]))

    assert weights[:2] == pytest.approx([exp(-1) / (exp(-1) + exp(-2)), exp(-2) / (exp(-1) + exp(-2))])
    assert weights.sum() == pytest.approx(1)


def test_consistency_is_the_weighted_mean_and_no_softmax():
    assert consistency(np.array([[-1.0, -3.0]]), np.array([0.75, 0.25])) == pytest.approx([-1.5])


def test_tuples_that_share_a_beginning_share_its_questions():
    lm = FakeLM(WORDS, FACTS)

    entity_logprobs(lm, ask(lm, "<ENT0> in <ENT1>"), [((0,), (1,)), ((0,), (4,)), ((0,), (2,))], 8, lambda: None)

    assert len(lm.scored_queries) == 2  # the head, and the tail given paris


def test_prompts_are_asked_apart():
    lm = FakeLM(WORDS, FACTS, {"<ENT1> has <ENT0>": {(): {"paris": 0.125}, ("paris",): {"france": 0.5}}})

    logprobs = entity_logprobs(lm, ask(lm, "<ENT0> in <ENT1>", "<ENT1> has <ENT0>"), [((0,), (1,))], 8, lambda: None)

    assert np.exp(logprobs) == pytest.approx(np.array([[[0.5, 0.8], [0.125, 0.5]]]), abs=1e-6)


EMPTY = "<ENT0>"
ALONE = {EMPTY: {(): {"paris": 0.25, "france": 0.1}}}


def test_the_prior_of_an_entity_is_its_probability_without_a_prompt():
    lm = FakeLM(WORDS, FACTS, ALONE)

    priors = prior_logprobs(lm, [((0,), (1,)), ((1,), (0,))], 8, lambda: None)

    assert np.exp(priors) == pytest.approx(np.array([[0.25, 0.1], [0.1, 0.25]]), abs=1e-6)


def test_a_corrected_compatibility_is_equation_1_of_pointwise_mutual_information():
    # .5 / .25 and .8 / .1: 2/3 (log 2 + log 8) + 1/3 log 2
    lm = FakeLM(WORDS, FACTS, ALONE)
    tuples = [((0,), (1,))]
    priors = prior_logprobs(lm, tuples, 8, lambda: None)

    value = corrected_compatibilities(lm, ask(lm, "<ENT0> in <ENT1>"), tuples, priors, 2 / 3, 8, lambda: None)

    assert value == pytest.approx(np.array([[2 / 3 * log(16) + 1 / 3 * log(2)]]), abs=1e-6)


def test_a_prompt_that_tells_nothing_leaves_a_corrected_compatibility_of_zero():
    lm = FakeLM(WORDS, {}, {})  # every word is as likely anywhere
    tuples = [((0,), (1,)), ((2,), (4,))]
    priors = prior_logprobs(lm, tuples, 8, lambda: None)

    values = corrected_compatibilities(lm, ask(lm, "<ENT0> in <ENT1>"), tuples, priors, 2 / 3, 8, lambda: None)

    assert values == pytest.approx(np.zeros((2, 1)), abs=1e-6)
