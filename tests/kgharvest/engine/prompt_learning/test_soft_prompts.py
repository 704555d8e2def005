"""Soft prompts: initialization from words, learning, and selection of the best epoch."""

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
def test_initial_soft_prompts_answer_as_their_words(relation, site):
    soft, vectors = soften(relation.lm, relation.prompts)
    start = _Learner(relation.lm, soft, vectors, SoftPromptParams(site=site)).prompt_set()

    expected = answers(relation.lm, uniform(relation.prompts, "mixture"), relation.dev)

    torch.testing.assert_close(answers(relation.lm, start, relation.dev), expected, atol=1e-4, rtol=0)


def test_soften_keeps_special_tokens_and_readable_words(trained_lm):
    prompt = trained_lm.encode_prompt(PromptTemplate.parse("<ENT0> is the capital of <ENT1> ."))

    soft, vectors = soften(trained_lm, [prompt])

    assert soft[0].segments[0] == prompt.segments[0]
    words = [nearest[0][0] for nearest in nearest_words(trained_lm, vectors, 1)]
    assert prompt_text(trained_lm, soft[0], words) == "<ENT0> ‹is› ‹the› ‹capital› ‹of› <ENT1> ‹.›"


@pytest.mark.parametrize("site", SITES)
def test_learning_raises_likelihood_and_keeps_best_epoch(relation, site):
    soft, _ = soften(relation.lm, relation.prompts[:2])
    vectors = random_vectors(relation.lm, sum(len(ids) for prompt in soft for ids in prompt.segments), seed=0)
    params = SoftPromptParams(site=site, learning_rate=1e-2, epochs=12, patience=12)

    learned = learn_soft_prompts(relation.lm, soft, vectors, relation.train, relation.dev, params)

    assert max(learned.history)[1] > learned.history[0][1] + 0.3
    scores = probe(PromptSetAnswerer(relation.lm, learned.prompt_set), relation.dev)
    assert (scores.precision_at(1), -scores.nll) == pytest.approx(max(learned.history))


@pytest.mark.parametrize(("learned", "n"), [("weights", 4), ("vectors", None), ("both", None)])
def test_only_selected_parameters_are_learned(relation, learned, n):
    soft, vectors = soften(relation.lm, relation.prompts[:4])
    learner = _Learner(relation.lm, soft, vectors, SoftPromptParams(learned=learned, learning_rate=1e-2))

    examples = [Example((fact.head,), (fact.tail,)) for fact in relation.train.facts]
    learner.step(-learner.log_likelihoods(examples).mean())

    after = learner.prompt_set()
    assert torch.equal(after.soft_words.vectors, vectors) == (learned == "weights")
    assert (after.weights == (0.25,) * 4) == (learned == "vectors")
    assert learner.n_parameters == (n or vectors.numel() + 4 * (learned == "both"))


@pytest.mark.parametrize("is_data_dependent", [False, True])
def test_learned_likelihood_matches_probed_likelihood(relation, is_data_dependent):
    soft, vectors = soften(relation.lm, relation.prompts)
    params = SoftPromptParams(site="deep", is_data_dependent=is_data_dependent)
    learner = _Learner(relation.lm, soft, vectors, params)

    learned = learner.log_likelihoods([Example((fact.head,), (fact.tail,)) for fact in relation.dev.facts])

    probed = probe(PromptSetAnswerer(relation.lm, learner.prompt_set()), relation.dev).logprobs
    torch.testing.assert_close(learned.double(), torch.tensor(probed), atol=1e-3, rtol=0)


def test_weight_gradient_matches_expectation_maximization(relation):
    """d/d theta of the marginal log-likelihood is the mean responsibility minus the weight (Qin & Eisner, 3.2)."""
    soft, vectors = soften(relation.lm, relation.prompts)
    learner = _Learner(relation.lm, soft, vectors, SoftPromptParams())
    examples = [Example((fact.head,), (fact.tail,)) for fact in relation.train.facts]

    gradient = torch.autograd.grad(learner.log_likelihoods(examples).mean(), learner._logits)[0]

    answerers = [PromptSetAnswerer(relation.lm, uniform([prompt])) for prompt in relation.prompts]
    singles = torch.stack([torch.tensor(probe(answerer, relation.train).logprobs) for answerer in answerers])  # (K, N)
    responsibilities = singles.softmax(0).mean(1)
    torch.testing.assert_close(gradient.double(), responsibilities - 1 / len(relation.prompts), atol=1e-4, rtol=0)


def test_random_vectors_match_distribution_of_word_embeddings(trained_lm):
    drawn = random_vectors(trained_lm, 4000, seed=0)

    words = trained_lm.word_embeddings
    assert (drawn.mean(0) - words.mean(0)).abs().max() < 0.1 * words.std()
    torch.testing.assert_close(drawn.std(0), words.std(0), rtol=0.1, atol=0)
    assert torch.equal(drawn, random_vectors(trained_lm, 4000, seed=0))


def test_soft_prompts_support_any_tokenizer(tiny_lm):
    prompt = tiny_lm.encode_prompt(PromptTemplate.parse("<ENT0> is the capital of <ENT1> ."))
    soft, vectors = soften(tiny_lm, [prompt])

    start = _Learner(tiny_lm, soft, vectors, SoftPromptParams()).prompt_set()

    heads = UsableFacts((EncodedFact(tiny_lm.encode_entity("paris"), 0),), {})
    hard, softened = (answers(tiny_lm, prompts, heads) for prompts in (uniform([prompt]), start))
    torch.testing.assert_close(hard, softened, atol=1e-4, rtol=0)


def test_invalid_training_input_is_refused(relation):
    soft, vectors = soften(relation.lm, relation.prompts)
    nothing = UsableFacts((), {})

    with pytest.raises(EngineError, match="at least one training"):
        learn_soft_prompts(relation.lm, soft, vectors, nothing, relation.dev, SoftPromptParams())
    with pytest.raises(EngineError, match="no word"):
        soften(relation.lm, [relation.lm.encode_prompt(PromptTemplate.parse("<ENT0> <ENT1>"))])
