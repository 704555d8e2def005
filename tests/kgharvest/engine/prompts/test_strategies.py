"""Settings that learn prompts from seed tuples, used for harvests from LMs with a mask token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.harvest import encode_seeds, harvest
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompt_learning import lpaqa
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.prompts import strategies
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer
from kgharvest.engine.prompts.strategies import PromptSource, choose_prompts
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import State, TokenRanker, layout
from kgharvest.engine.types import N_TRIGGERS, HarvestParams, HarvestSpec, UnsupportedModel, ignore
from tests.kgharvest.engine.tiny_models import tiny_bart, tiny_gpt2

PARAMS = HarvestParams(candidates=40, max_entity_tokens=1, max_tuples=20)
LEARNED = ("lpaqa", "autoprompt", "soft")


@pytest.fixture(scope="module")
def languages():
    return next(relation for relation in load_world() if relation.name == "language_of")


def make_spec(relation, setting):
    texts = tuple(phrasing.text for phrasing in relation.held_out)
    return HarvestSpec(relation.name, texts[:1], relation.facts[:5], setting, texts, PARAMS)


def test_trigger_search_supports_initial_prompt_without_words(trained_lm, languages):
    bare = replace(make_spec(languages, "autoprompt"), initial_prompts=("<ENT0> <ENT1>",), prompts=())

    assert harvest(bare, trained_lm).prompts[0].text != "<ENT0> <ENT1>"


@pytest.mark.parametrize("setting", LEARNED)
def test_learned_prompts_harvest_facts_of_lm(trained_lm, languages, setting):
    result = harvest(make_spec(languages, setting), trained_lm)

    facts = set(languages.facts)
    assert sum(scored.entities in facts for scored in result.tuples) / len(result.tuples) > 0.4
    assert sum(prompt.weight for prompt in result.prompts) == pytest.approx(1, abs=1e-5)
    assert all(prompt.token_ids for prompt in result.prompts)
    assert result == harvest(make_spec(languages, setting), trained_lm)


def test_triggers_exclude_seed_tokens_and_form_a_prompt(trained_lm, languages):
    seeds = encode_seeds(languages.facts[:5], trained_lm)

    chosen = choose_prompts(PromptSource(make_spec(languages, "autoprompt"), trained_lm, seeds, None, ignore))

    seed_tokens = {token for seed in seeds for entity in seed for token in entity}
    assert not seed_tokens & {token for segment in chosen.prompt_set.prompts[0].segments for token in segment}
    assert sorted(PromptTemplate.parse(chosen.weighted[0].text).slots) == [0, 1]
    assert chosen.weighted[0].compatibility > -20
    assert chosen.notices == ()  # existing prompts are not used, and none was too long


@pytest.mark.parametrize("iterations", [N_TRIGGERS, 2 * N_TRIGGERS])  # the minimum to fill the masks, and twice as many
def test_triggers_are_at_least_as_compatible_as_initial_prompt(trained_lm, languages, monkeypatch, iterations):
    monkeypatch.setattr(strategies, "TRIGGER_SEARCH", AutoPromptParams(iterations=iterations))
    seeds = encode_seeds(languages.facts[:5], trained_lm)

    triggers, initial = (
        choose_prompts(PromptSource(make_spec(languages, setting), trained_lm, seeds, None, ignore)).weighted[0]
        for setting in ("autoprompt", "human")
    )

    assert triggers.compatibility >= initial.compatibility - 1e-4


def test_learned_weights_raise_seed_likelihood_over_equal_weights(trained_lm, languages):
    seeds = encode_seeds(languages.facts[:5], trained_lm)
    source = PromptSource(make_spec(languages, "lpaqa"), trained_lm, seeds, None, ignore)

    chosen = choose_prompts(source)

    equal = PromptSet(chosen.prompt_set.prompts, (1 / len(chosen.weighted),) * len(chosen.weighted))
    learned, plain = (step_nll(trained_lm, prompt_set, seeds) for prompt_set in (chosen.prompt_set, equal))
    assert learned <= plain + 1e-3


def step_nll(lm, prompt_set, seeds):
    """Return the mean of -log P(token) over the tokens of `seeds` for the product of the prompts."""
    total = []
    for seed in seeds:
        tokens = sum(seed, ())
        for done, token in enumerate(tokens):
            queries = [lm.query(prompt, tuple(map(len, seed)), tokens[:done]) for prompt in prompt_set.prompts]
            vectors = lm.vectors(queries, 8, lambda: None)[None]
            weights = torch.tensor(prompt_set.weights)
            total.append(lpaqa.product_nll(lm, vectors, weights, torch.tensor([token])).item())
    return sum(total) / len(total)


def test_ranker_ranks_mixture_as_mixture(trained_lm, languages):
    prompts = tuple(trained_lm.encode_prompt(PromptTemplate.parse(phrasing.text)) for phrasing in languages.held_out)
    weights = (0.7, *(0.3 / (len(prompts) - 1),) * (len(prompts) - 1))
    head = trained_lm.encode_entity(languages.facts[0][0])
    expected = next(PromptSetAnswerer(trained_lm, PromptSet(prompts, weights, "mixture")).scores([head], lambda: None))

    ranker = TokenRanker(trained_lm, prompts, weights, 8, is_mixture=True)
    step = layout((1, 1), ())[1]
    ranked = next(iter(ranker.rank([State((1, 1), head, step)], lambda: None)))

    for token, cost in [next(ranked) for _ in range(100)]:
        assert -cost == pytest.approx(expected[0, token].item(), abs=1e-4)


@pytest.mark.parametrize("setting", ["autoprompt", "soft"])
def test_learning_settings_refuse_lm_without_mask(tmp_path, languages, setting):
    spec = HarvestSpec("r", ("<ENT0> is <ENT1>",), (("paris", "france"), ("rome", "italy")), setting, (), PARAMS)

    with pytest.raises(UnsupportedModel, match="mask token"):
        harvest(spec, load(str(tiny_gpt2(tmp_path))))


@pytest.mark.parametrize("setting", ["autoprompt", "soft"])
def test_learning_settings_support_bart(tmp_path, setting):
    seeds = (("paris", "france"), ("rome", "italy"))
    spec = HarvestSpec("r", ("<ENT0> is <ENT1> .",), seeds, setting, (), replace(PARAMS, max_tuples=3))

    result = harvest(spec, load(str(tiny_bart(tmp_path))))

    assert 0 < len(result.tuples) <= 3
    assert sum(prompt.weight for prompt in result.prompts) == pytest.approx(1)
