"""Combination of the answers of several prompts."""

from __future__ import annotations

import pytest
import torch

from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer, mean_score, mixture, product, uniform
from kgharvest.engine.prompts.template import PromptTemplate

TEXTS = ("<ENT0> is the capital of <ENT1> .", "in <ENT1> the capital is <ENT0>", "<ENT0> in <ENT1>")
HEADS = ("paris", "rome fish", "italy")
WEIGHTS = (0.5, 0.3, 0.2)


@pytest.fixture
def prompts(tiny_lm):
    return tuple(tiny_lm.encode_prompt(PromptTemplate.parse(text)) for text in TEXTS)


def answers(lm, prompt_set, batch_size=256):
    heads = [lm.encode_entity(head) for head in HEADS]
    return torch.cat(list(PromptSetAnswerer(lm, prompt_set, batch_size).scores(heads, lambda: None)))


def test_combinations_match_their_formulas(tiny_lm, prompts):
    single = torch.stack([answers(tiny_lm, uniform([prompt])) for prompt in prompts], dim=1).double()  # (N, K, V)
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)[None, :, None]
    scores = (weights * single).sum(1)
    expected = {
        "mixture": (weights * single.exp()).sum(1).log(),
        "mean_score": scores,
        "product": scores - scores.exp().sum(1, keepdim=True).log(),
    }

    for combine, values in expected.items():
        combined = answers(tiny_lm, PromptSet(prompts, WEIGHTS, combine)).double()
        torch.testing.assert_close(combined, values, atol=1e-4, rtol=0)


@pytest.mark.parametrize("combine", ["mixture", "product"])
def test_probabilities_sum_to_one(tiny_lm, prompts, combine):
    total = answers(tiny_lm, PromptSet(prompts, WEIGHTS, combine)).exp().sum(1)

    torch.testing.assert_close(total, torch.ones(len(HEADS)), atol=1e-4, rtol=0)


def test_mixture_lies_between_weighted_and_best_prompt(tiny_lm, prompts):
    single = torch.stack([answers(tiny_lm, uniform([prompt])) for prompt in prompts])  # (K, N, V)
    mixed = answers(tiny_lm, PromptSet(prompts, WEIGHTS, "mixture"))

    shares = single + torch.tensor(WEIGHTS).log()[:, None, None]
    assert (mixed >= shares.amax(0) - 1e-4).all()
    assert (mixed <= single.amax(0) + 1e-4).all()


def test_single_prompt_combinations_equal_the_prompt():
    logprobs = torch.log_softmax(torch.randn(4, 1, 7, generator=torch.Generator().manual_seed(0)), dim=-1)

    for combine in (mixture, product, mean_score):
        torch.testing.assert_close(combine(logprobs, torch.zeros(1)), logprobs[:, 0])


@pytest.mark.parametrize("combine", ["mixture", "product", "mean_score"])
def test_prompt_order_and_batch_size_do_not_matter(tiny_lm, prompts, combine):
    forward = answers(tiny_lm, PromptSet(prompts, WEIGHTS, combine))
    backward = answers(tiny_lm, PromptSet(prompts[::-1], WEIGHTS[::-1], combine), batch_size=1)

    torch.testing.assert_close(forward, backward, atol=1e-4, rtol=0)


def test_data_dependent_mixture_prefers_prompts_fitting_the_head(tiny_lm, prompts):
    """A high temperature gives the plain mixture, a low temperature the best-fitting prompt of each head."""
    hot, cold = (
        answers(tiny_lm, PromptSet(prompts, WEIGHTS, "mixture", temperature=temperature)) for temperature in (1e6, 1e-4)
    )
    single = torch.stack([answers(tiny_lm, uniform([prompt])) for prompt in prompts])  # (K, N, V)

    torch.testing.assert_close(hot, answers(tiny_lm, PromptSet(prompts, WEIGHTS, "mixture")), atol=1e-3, rtol=0)
    for head in range(len(HEADS)):
        assert (single[:, head] - cold[head]).abs().amax(dim=1).min() < 1e-3
