"""AutoPrompt: gradient estimates, candidate scoring, and trigger search."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from kgharvest.engine.language_models.masked import SoftWords
from kgharvest.engine.probing import probe
from kgharvest.engine.prompt_learning.autoprompt import (
    TRIGGER,
    AutoPromptParams,
    TriggerTask,
    TriggerTemplate,
    _TriggerSearch,
    allowed_triggers,
    search_from_masks,
    search_trigger,
)
from kgharvest.engine.prompt_learning.objectives import Compatibility, Example, Likelihood, scores
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, uniform
from kgharvest.engine.types import EngineError

PARAMS = AutoPromptParams(iterations=25, batch_size=16, seed=1)


def ignore_tick():
    """Ignore progress ticks."""


def template(lm, n=4):
    return TriggerTemplate((lm.tokens.prefix, (TRIGGER,) * n, lm.tokens.suffix), (0, 1))


def examples(facts):
    return [Example((fact.head,), (fact.tail,)) for fact in facts.facts]


@pytest.fixture(scope="module")
def task(relation):
    gold = {fact.tail for facts in (relation.train, relation.dev, relation.test) for fact in facts.facts}
    allowed = allowed_triggers(relation.lm, gold)
    return TriggerTask(Likelihood(), examples(relation.train), examples(relation.dev), allowed)


@pytest.fixture(scope="module")
def search(relation, task):
    return search_trigger(relation.lm, template(relation.lm), (relation.lm.mask_id,) * 4, task, PARAMS)


@pytest.fixture
def tiny_task(tiny_lm):
    tuples = [tuple(map(tiny_lm.encode_entity, pair)) for pair in (("paris", "france"), ("rome fish", "italy"))]
    everything = np.ones(tiny_lm.vocab_size, dtype=bool)
    return TriggerTask(Compatibility(), [Example(t) for t in tuples], [Example(t) for t in tuples], everything)


def test_gradient_matches_finite_differences(tiny_lm, tiny_task):
    """Check the direction from one word vector to another, for an objective with several forward passes."""
    run = _TriggerSearch(tiny_lm, template(tiny_lm), tiny_task, PARAMS, random.Random(0))
    trigger = (10, 20, 30, 40)
    gradient = run.gradient(trigger, tiny_task.train)
    words = tiny_lm.word_embeddings

    for position, token in [(0, 33), (2, 12)]:
        direction = words[token] - words[trigger[position]]
        values = []
        for step in (2e-3, -2e-3):
            vectors = words[list(trigger)].clone()
            vectors[position] += step * direction
            values.append(scored_with(tiny_lm, tiny_task, vectors))
        assert gradient[position] @ direction == pytest.approx((values[0] - values[1]) / 4e-3, rel=0.03, abs=1e-3)


def scored_with(lm, task, vectors):
    prompt = template(lm).fill(range(lm.vocab_size, lm.vocab_size + len(vectors)))
    reader = lm.with_soft_words(SoftWords(vectors))
    return scores(reader, task.objective, [prompt], task.train, ignore_tick).mean().item()


def test_candidates_scored_together_match_single_scores(relation, task):
    triggers = [(50, 60, 70, 80), (50, 60, 70, 81), (51, 60, 70, 80)]
    prompts = [template(relation.lm).fill(trigger) for trigger in triggers]

    together = scores(relation.lm, task.objective, prompts, task.dev, ignore_tick)

    alone = torch.cat([scores(relation.lm, task.objective, [prompt], task.dev, ignore_tick) for prompt in prompts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_dev_score_never_falls_and_is_score_of_trigger(relation, task, search):
    assert list(search.history) == sorted(search.history)
    prompt = template(relation.lm).fill(search.trigger)
    assert search.prompt == prompt
    assert scores(relation.lm, task.objective, [prompt], task.dev, ignore_tick).mean().item() == pytest.approx(
        search.dev_score, abs=1e-4
    )
    assert search.history[-1] == search.dev_score


def test_same_seed_finds_same_trigger(relation, task, search):
    repeated = search_trigger(relation.lm, template(relation.lm), (relation.lm.mask_id,) * 4, task, PARAMS)

    assert repeated == search


def test_restarts_never_lower_dev_score_and_count_gradients(relation, task):
    start, few = template(relation.lm, 2), replace(PARAMS, iterations=6)

    once, repeated, same = (search_from_masks(relation.lm, start, task, replace(few, restarts=n)) for n in (0, 2, 2))

    assert repeated.dev_score >= once.dev_score
    assert repeated.n_gradients == 3 * once.n_gradients
    assert repeated == same
    assert all(task.allowed[token] for token in repeated.trigger)


def test_trigger_has_no_masks_or_forbidden_tokens(relation, task, search):
    gold = {fact.tail for facts in (relation.train, relation.dev, relation.test) for fact in facts.facts}

    assert relation.lm.mask_id not in search.trigger
    assert not gold & set(search.trigger)
    assert all(task.allowed[token] for token in search.trigger)


def test_good_initial_trigger_is_kept_unless_improved(relation, task, search):
    none = AutoPromptParams(iterations=1, n_candidates=1, batch_size=4)

    kept = search_trigger(relation.lm, template(relation.lm), search.trigger, task, none)

    assert kept.dev_score >= search.dev_score


def test_baseline_prompt_is_kept_unless_a_trigger_beats_it(relation, task):
    lm, masks = relation.lm, (relation.lm.mask_id,) * 4
    few = AutoPromptParams(iterations=4, n_candidates=2, batch_size=4)
    alone = search_trigger(lm, template(lm), masks, task, few)
    baselines = [*relation.prompts, alone.prompt]
    dev_scores = scores(lm, task.objective, baselines, task.dev, ignore_tick).mean(dim=1)

    best = search_trigger(lm, template(lm), masks, replace(task, baselines=baselines), few)

    assert best.dev_score == pytest.approx(dev_scores.max().item(), abs=1e-4)
    assert best.prompt == baselines[int(dev_scores.argmax())]
    assert best.trigger == ()
    assert best.history == alone.history


def test_trigger_beats_masks_and_random_triggers(relation, task, search):
    lm, rng = relation.lm, np.random.default_rng(0)
    n_tried = search.n_forwards // (len(task.dev) * 4)  # a quarter of the forward passes of the search
    drawn = rng.choice(np.flatnonzero(task.allowed), size=(n_tried, 4)).tolist()
    prompts = [template(lm).fill(trigger) for trigger in [(lm.mask_id,) * 4, *drawn]]

    others = scores(lm, task.objective, prompts, task.dev, ignore_tick).mean(dim=1)

    assert search.dev_score > others.max().item() + 0.1
    accuracy = probe(PromptSetAnswerer(lm, uniform([template(lm).fill(search.trigger)])), relation.test).precision_at(1)
    assert accuracy > 0.5


def test_capitalized_and_special_tokens_are_not_triggers(tiny_lm):
    allowed = allowed_triggers(tiny_lm, [7])

    texts = tiny_lm.tokens.texts()
    assert not allowed[7]
    assert not allowed[tiny_lm.mask_id]
    assert not any(allowed[index] for index, text in enumerate(texts) if text[:1].isupper())
    assert allowed.sum() > 10


def test_compatibility_is_learned_with_any_tokenizer(tiny_lm, tiny_task):
    params = AutoPromptParams(iterations=8)

    learned = search_trigger(tiny_lm, template(tiny_lm), (tiny_lm.mask_id,) * 4, tiny_task, params)

    assert learned.history[-1] >= learned.history[4] > -np.inf


def test_invalid_training_input_is_refused(relation, task):
    with pytest.raises(EngineError, match="at least one training"):
        TriggerTask(task.objective, (), task.dev, task.allowed)
    masks = (relation.lm.mask_id,) * 4
    with pytest.raises(EngineError, match="2 iterations cannot fill 4 triggers"):
        search_trigger(relation.lm, template(relation.lm), masks, task, AutoPromptParams(iterations=2))
