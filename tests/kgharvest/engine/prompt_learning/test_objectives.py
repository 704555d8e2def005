"""Objectives are the engine's own scores, with gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kgharvest.engine.prompt_learning.objectives import (
    Compatibility,
    Example,
    HeadLikelihood,
    Likelihood,
    differentiable_scores,
    scores,
)
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, uniform
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import compatibilities, entity_logprobs

TEXTS = ("<ENT0> is the capital of <ENT1> .", "in <ENT1> the capital is <ENT0>")
TUPLES = (("paris", "france"), ("rome fish", "italy"), ("dog", "cat wood"))


@pytest.fixture
def prompts(tiny_lm):
    return [tiny_lm.encode_prompt(PromptTemplate.parse(text)) for text in TEXTS]


@pytest.fixture
def tuples(tiny_lm):
    return [tuple(tiny_lm.encode_entity(entity) for entity in entities) for entities in TUPLES]


def quiet():
    """Be the tick of a test that does not look at progress."""


def test_the_compatibility_to_learn_is_the_one_that_tuples_are_scored_with(tiny_lm, prompts, tuples):
    expected = compatibilities(tiny_lm, prompts, tuples, 2 / 3, 8, quiet).T  # (P, E)

    learned = scores(tiny_lm, Compatibility(2 / 3), prompts, [Example(entities) for entities in tuples], quiet)

    np.testing.assert_allclose(learned.numpy(), expected, atol=1e-4)


def test_the_likelihood_of_heads_and_of_tails_make_the_likelihood_of_tuples(tiny_lm, prompts, tuples):
    """The chain rule, where the tail is one token, so that its mask is the same whatever is asked."""
    short = [entities for entities in tuples if len(entities[1]) == 1]
    heads = scores(tiny_lm, HeadLikelihood(), prompts, [Example(entities[:1]) for entities in short], quiet)
    facts = [Example(entities[:1], entities[1]) for entities in short]
    tails = scores(tiny_lm, Likelihood(), prompts, facts, quiet)

    whole = entity_logprobs(tiny_lm, prompts, short, 8, quiet).sum(axis=2).T  # (P, E)

    assert short
    np.testing.assert_allclose((heads + tails).numpy(), whole, atol=1e-4)


def test_the_likelihood_of_a_label_is_the_sum_over_its_tokens(tiny_lm, prompts, tuples):
    head, words = tuples[0][:1], (7, 9, 11)
    answers = next(PromptSetAnswerer(tiny_lm, uniform(prompts[:1])).scores([head[0]], quiet))[0]

    label = scores(tiny_lm, Likelihood(), prompts[:1], [Example(head, words), Example(head, words[:1])], quiet)[0]

    assert label[0] == pytest.approx(answers[list(words)].exp().sum().log().item(), abs=1e-4)
    assert label[1] == pytest.approx(answers[7].item(), abs=1e-4)


@pytest.mark.parametrize("objective", [Compatibility(), HeadLikelihood()])
def test_scores_with_gradients_are_those_without(tiny_lm, prompts, tuples, objective):
    examples = [Example(entities) for entities in tuples]

    with_gradients = differentiable_scores(tiny_lm, objective, prompts, examples)

    torch.testing.assert_close(with_gradients, scores(tiny_lm, objective, prompts, examples, quiet), atol=1e-4, rtol=0)
