"""Training with the choice of the best weights on dev, and fine-tuning of a copy of an LM."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForMaskedLM

from kgharvest.contrib.probing.prompt_learning.learners import ProbeTask, learn
from kgharvest.contrib.probing.prompt_learning.registry import LearningBudget
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.probing import probe
from kgharvest.engine.prompt_learning.training import TrainingParams, rate_factor, train_best
from kgharvest.engine.prompts.template import PromptTemplate
from tests.kgharvest.engine.tiny_models import tiny_albert, tiny_bert, tiny_distilbert, tiny_roberta


def train(dev_scores, target=1.0, **params):
    weight = torch.zeros(1, requires_grad=True)
    scores, passed = iter(dev_scores), []

    def score():
        passed.append(weight.item())
        return next(scores)

    params = TrainingParams(learning_rate=0.1, epochs=len(dev_scores) - 1, **params)
    history = train_best([weight], lambda rng: [target], lambda goal: (weight - goal).square().sum(), score, params)
    return weight.item(), passed, history


def test_best_weights_on_dev_are_restored():
    weight, passed, history = train([0.1, 0.5, 0.9, 0.2])

    assert weight == passed[2]
    assert history == (0.1, 0.5, 0.9, 0.2)


def test_initial_weights_win_if_training_never_helps():
    assert train([0.5, 0.5, 0.4])[0] == 0


def test_learning_rate_rises_linearly_and_then_falls_to_zero():
    factors = [rate_factor(step, 10, 0.2) for step in range(10)]

    assert factors[:2] == [0.5, 1.0]
    assert factors[2:] == pytest.approx([8 / 9, 7 / 9, 6 / 9, 5 / 9, 4 / 9, 3 / 9, 2 / 9, 1 / 9])
    assert rate_factor(5, 10, None) == 1


@pytest.mark.parametrize("build", [tiny_bert, tiny_roberta, tiny_distilbert, tiny_albert])
def test_trainable_copy_has_the_gradients_of_the_whole_network(build, tmp_path):
    folder = str(build(tmp_path))
    lm, model = load(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    tuned, ids, position = lm.trainable_copy(), torch.arange(6, 14)[None], torch.tensor([3])

    loss = cross_entropy(tuned.logits_at(ids, position), torch.tensor([9]))
    expected = cross_entropy(model(input_ids=ids).logits[:, 3], torch.tensor([9]))
    gradients = torch.autograd.grad(loss, tuned.parameters(), allow_unused=True)
    expected_gradients = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)

    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    norms, expected_norms = (
        sorted(float(gradient.norm()) for gradient in found if gradient is not None)
        for found in (gradients, expected_gradients)
    )
    assert norms == pytest.approx(expected_norms, abs=1e-4)
    assert sum(map(torch.numel, tuned.parameters())) == sum(map(torch.numel, model.parameters()))


@pytest.mark.parametrize("relation", ["made_of"], indirect=True)
def test_fine_tuning_changes_a_copy_and_beats_the_manual_prompt_in_training(relation):
    prompt = relation.lm.encode_prompt(PromptTemplate.parse("<ENT0>, <ENT1>."))
    task = ProbeTask("made_of", prompt, (prompt,), relation.train, relation.dev, relation.test)
    before = [weights.clone() for weights in relation.lm.parameters()]

    [learned] = learn(relation.lm, "fine-tuned", [task], LearningBudget(epochs=3, learning_rate=3e-4))
    [manual] = learn(relation.lm, "manual", [task], LearningBudget())

    assert all(torch.equal(*pair) for pair in zip(before, relation.lm.parameters(), strict=True))
    scores = {
        part: [probe(result.answerer, getattr(relation, part)) for result in (learned, manual)]
        for part in ("train", "dev")
    }
    assert scores["dev"][0].precision_at(1) >= scores["dev"][1].precision_at(1)
    assert scores["train"][0].nll < scores["train"][1].nll
    assert learned.n_parameters == sum(map(torch.numel, relation.lm.parameters()))
