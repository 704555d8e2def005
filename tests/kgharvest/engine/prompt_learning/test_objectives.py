"""Learning objectives, compared with the engine's scores, and their gradients."""

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


def ignore_tick():
    """Ignore progress ticks."""


def test_compatibility_objective_matches_tuple_scoring(tiny_lm, prompts, tuples):
    expected = compatibilities(tiny_lm, prompts, tuples, 2 / 3, 8, ignore_tick).T  # (P, E)

    learned = scores(tiny_lm, Compatibility(2 / 3), prompts, [Example(entities) for entities in tuples], ignore_tick)

    np.testing.assert_allclose(learned.numpy(), expected, atol=1e-4)


def test_head_and_tail_likelihoods_combine_to_tuple_likelihood(tiny_lm, prompts, tuples):
    """Chain rule for one-token tails, for which both queries have the same mask."""
    short = [entities for entities in tuples if len(entities[1]) == 1]
    heads = scores(tiny_lm, HeadLikelihood(), prompts, [Example(entities[:1]) for entities in short], ignore_tick)
    facts = [Example(entities[:1], entities[1]) for entities in short]
    tails = scores(tiny_lm, Likelihood(), prompts, facts, ignore_tick)

    whole = entity_logprobs(tiny_lm, prompts, short, 8, ignore_tick).sum(axis=2).T  # (P, E)

    assert short
    np.testing.assert_allclose((heads + tails).numpy(), whole, atol=1e-4)


def test_label_likelihood_sums_over_its_tokens(tiny_lm, prompts, tuples):
    head, words = tuples[0][:1], (7, 9, 11)
    answers = next(PromptSetAnswerer(tiny_lm, uniform(prompts[:1])).scores([head[0]], ignore_tick))[0]

    label = scores(tiny_lm, Likelihood(), prompts[:1], [Example(head, words), Example(head, words[:1])], ignore_tick)[0]

    assert label[0] == pytest.approx(answers[list(words)].exp().sum().log().item(), abs=1e-4)
    assert label[1] == pytest.approx(answers[7].item(), abs=1e-4)


@pytest.mark.parametrize("objective", [Compatibility(), HeadLikelihood()])
def test_differentiable_scores_match_plain_scores(tiny_lm, prompts, tuples, objective):
    examples = [Example(entities) for entities in tuples]

    with_gradients = differentiable_scores(tiny_lm, objective, prompts, examples)

    torch.testing.assert_close(
        with_gradients, scores(tiny_lm, objective, prompts, examples, ignore_tick), atol=1e-4, rtol=0
    )
