"""Soft prompts start as their words, learn, and keep the best."""

from __future__ import annotations

import pytest
import torch

from kgharvest.engine.probing import EncodedFact, UsableFacts, probe
from kgharvest.engine.prompt_learning.objectives import Example
from kgharvest.engine.prompt_learning.soft_prompts import (
    SoftPromptParams,
    _Learner,
    learn_soft_prompts,
    random_vectors,
    soften,
)
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, nearest_words, prompt_text, uniform
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import EngineError

SITES = ("word", "hidden0", "deep")


def answers(lm, prompt_set, facts):
    return torch.cat(list(PromptSetAnswerer(lm, prompt_set).scores(facts.heads, lambda: None)))


@pytest.mark.parametrize("site", SITES)
def test_at_the_start_soft_prompts_are_their_words(known, site):
    soft, vectors = soften(known.lm, known.prompts)
    start = _Learner(known.lm, soft, vectors, SoftPromptParams(site=site)).prompt_set()

    expected = answers(known.lm, uniform(known.prompts, "mixture"), known.dev)

    torch.testing.assert_close(answers(known.lm, start, known.dev), expected, atol=1e-4, rtol=0)


def test_special_tokens_stay_and_words_become_readable_again(knowing_lm):
    prompt = knowing_lm.encode_prompt(PromptTemplate.parse("<ENT0> is the capital of <ENT1> ."))

    soft, vectors = soften(knowing_lm, [prompt])

    assert soft[0].segments[0] == prompt.segments[0]
    words = [nearest[0][0] for nearest in nearest_words(knowing_lm, vectors, 1)]
    assert prompt_text(knowing_lm, soft[0], words) == "<ENT0> ‹is› ‹the› ‹capital› ‹of› <ENT1> ‹.›"


@pytest.mark.parametrize("site", SITES)
def test_learning_raises_the_likelihood_and_keeps_the_best(known, site):
    soft, _ = soften(known.lm, known.prompts[:2])
    vectors = random_vectors(known.lm, sum(len(ids) for prompt in soft for ids in prompt.segments), seed=0)
    params = SoftPromptParams(site=site, learning_rate=1e-2, epochs=12, patience=12)

    learned = learn_soft_prompts(known.lm, soft, vectors, known.train, known.dev, params)

    assert max(learned.history)[1] > learned.history[0][1] + 0.3
    scores = probe(PromptSetAnswerer(known.lm, learned.prompt_set), known.dev)
    assert (scores.precision_at(1), -scores.nll) == pytest.approx(max(learned.history))


@pytest.mark.parametrize(("learned", "n"), [("weights", 4), ("vectors", None), ("both", None)])
def test_weights_or_vectors_alone_are_learned(known, learned, n):
    soft, vectors = soften(known.lm, known.prompts[:4])
    learner = _Learner(known.lm, soft, vectors, SoftPromptParams(learned=learned, learning_rate=1e-2))

    examples = [Example((fact.head,), (fact.tail,)) for fact in known.train.facts]
    learner.step(-learner.log_likelihoods(examples).mean())

    after = learner.prompt_set()
    assert torch.equal(after.soft_words.vectors, vectors) == (learned == "weights")
    assert (after.weights == (0.25,) * 4) == (learned == "vectors")
    assert learner.n_parameters == (n or vectors.numel() + 4 * (learned == "both"))


@pytest.mark.parametrize("is_data_dependent", [False, True])
def test_the_likelihood_that_is_learned_is_the_one_that_is_probed(known, is_data_dependent):
    soft, vectors = soften(known.lm, known.prompts)
    params = SoftPromptParams(site="deep", is_data_dependent=is_data_dependent)
    learner = _Learner(known.lm, soft, vectors, params)

    learned = learner.log_likelihoods([Example((fact.head,), (fact.tail,)) for fact in known.dev.facts])

    probed = probe(PromptSetAnswerer(known.lm, learner.prompt_set()), known.dev).logprobs
    torch.testing.assert_close(learned.double(), torch.tensor(probed), atol=1e-3, rtol=0)


def test_the_gradient_of_the_weights_is_that_of_expectation_maximisation(known):
    """d/d theta of the marginal log-likelihood is the mean responsibility less the weight (Qin & Eisner, 3.2)."""
    soft, vectors = soften(known.lm, known.prompts)
    learner = _Learner(known.lm, soft, vectors, SoftPromptParams())
    examples = [Example((fact.head,), (fact.tail,)) for fact in known.train.facts]

    gradient = torch.autograd.grad(learner.log_likelihoods(examples).mean(), learner._logits)[0]

    answerers = [PromptSetAnswerer(known.lm, uniform([prompt])) for prompt in known.prompts]
    singles = torch.stack([torch.tensor(probe(answerer, known.train).logprobs) for answerer in answerers])  # (K, N)
    responsibilities = singles.softmax(0).mean(1)
    torch.testing.assert_close(gradient.double(), responsibilities - 1 / len(known.prompts), atol=1e-4, rtol=0)


def test_random_vectors_are_spread_like_word_embeddings(knowing_lm):
    drawn = random_vectors(knowing_lm, 4000, seed=0)

    words = knowing_lm.word_embeddings
    assert (drawn.mean(0) - words.mean(0)).abs().max() < 0.1 * words.std()
    torch.testing.assert_close(drawn.std(0), words.std(0), rtol=0.1, atol=0)
    assert torch.equal(drawn, random_vectors(knowing_lm, 4000, seed=0))


def test_soft_prompts_work_on_any_tokenizer(tiny_lm):
    prompt = tiny_lm.encode_prompt(PromptTemplate.parse("<ENT0> is the capital of <ENT1> ."))
    soft, vectors = soften(tiny_lm, [prompt])

    start = _Learner(tiny_lm, soft, vectors, SoftPromptParams()).prompt_set()

    heads = UsableFacts((EncodedFact(tiny_lm.encode_entity("paris"), 0),), {})
    hard, softened = (answers(tiny_lm, prompts, heads) for prompts in (uniform([prompt]), start))
    torch.testing.assert_close(hard, softened, atol=1e-4, rtol=0)


def test_what_cannot_be_learned_is_said(known):
    soft, vectors = soften(known.lm, known.prompts)
    nothing = UsableFacts((), {})

    with pytest.raises(EngineError, match="at least one training"):
        learn_soft_prompts(known.lm, soft, vectors, nothing, known.dev, SoftPromptParams())
    with pytest.raises(EngineError, match="no word"):
        soften(known.lm, [known.lm.encode_prompt(PromptTemplate.parse("<ENT0> <ENT1>"))])
