"""The settings that learn prompts: they harvest, on masked LMs, from seed tuples alone."""

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
from tests.kgharvest.engine.tiny_models import tiny_gpt2

PARAMS = HarvestParams(candidates=40, max_entity_tokens=1, max_tuples=20)
LEARNED = ("lpaqa", "autoprompt", "soft")


@pytest.fixture(scope="module")
def languages():
    return next(relation for relation in load_world() if relation.name == "language_of")


def asking(relation, setting):
    texts = tuple(phrasing.text for phrasing in relation.held_out)
    return HarvestSpec(relation.name, texts[:1], relation.facts[:5], setting, texts, PARAMS)


def test_triggers_are_searched_beside_an_initial_prompt_without_words(knowing_lm, languages):
    bare = replace(asking(languages, "autoprompt"), initial_prompts=("<ENT0> <ENT1>",), prompts=())

    assert harvest(bare, knowing_lm).prompts[0].text != "<ENT0> <ENT1>"


@pytest.mark.parametrize("setting", LEARNED)
def test_learned_prompts_harvest_what_the_lm_knows(knowing_lm, languages, setting):
    result = harvest(asking(languages, setting), knowing_lm)

    facts = set(languages.facts)
    assert sum(scored.entities in facts for scored in result.tuples) / len(result.tuples) > 0.4
    assert sum(prompt.weight for prompt in result.prompts) == pytest.approx(1, abs=1e-5)
    assert all(prompt.token_ids for prompt in result.prompts)
    assert result == harvest(asking(languages, setting), knowing_lm)


def test_triggers_hold_no_seed_entity_and_read_as_a_prompt(knowing_lm, languages):
    seeds = encode_seeds(languages.facts[:5], knowing_lm)

    chosen = choose_prompts(PromptSource(asking(languages, "autoprompt"), knowing_lm, seeds, None, ignore))

    seed_tokens = {token for seed in seeds for entity in seed for token in entity}
    assert not seed_tokens & {token for segment in chosen.prompt_set.prompts[0].segments for token in segment}
    assert sorted(PromptTemplate.parse(chosen.weighted[0].text).slots) == [0, 1]
    assert chosen.weighted[0].compatibility > -20
    assert chosen.notice is None  # the ready prompts are not asked, and none was too long


@pytest.mark.parametrize("iterations", [N_TRIGGERS, 2 * N_TRIGGERS])  # just enough to fill the masks, or little more
def test_triggers_are_never_less_compatible_than_the_initial_prompt(knowing_lm, languages, monkeypatch, iterations):
    monkeypatch.setattr(strategies, "TRIGGER_SEARCH", AutoPromptParams(iterations=iterations))
    seeds = encode_seeds(languages.facts[:5], knowing_lm)

    triggers, initial = (
        choose_prompts(PromptSource(asking(languages, setting), knowing_lm, seeds, None, ignore)).weighted[0]
        for setting in ("autoprompt", "human")
    )

    assert triggers.compatibility >= initial.compatibility - 1e-4


def test_learned_weights_make_the_seed_tuples_likelier_than_equal_ones(knowing_lm, languages):
    seeds = encode_seeds(languages.facts[:5], knowing_lm)
    source = PromptSource(asking(languages, "lpaqa"), knowing_lm, seeds, None, ignore)

    chosen = choose_prompts(source)

    equal = PromptSet(chosen.prompt_set.prompts, (1 / len(chosen.weighted),) * len(chosen.weighted))
    learned, plain = (step_nll(knowing_lm, prompt_set, seeds) for prompt_set in (chosen.prompt_set, equal))
    assert learned <= plain + 1e-3


def step_nll(lm, prompt_set, seeds):
    """Return the mean of -log P(token) over the tokens of `seeds` under the product of the prompts."""
    total = []
    for seed in seeds:
        tokens = sum(seed, ())
        for done, token in enumerate(tokens):
            queries = [lm.query(prompt, tuple(map(len, seed)), tokens[:done]) for prompt in prompt_set.prompts]
            vectors = lm.vectors(queries, 8, lambda: None)[None]
            weights = torch.tensor(prompt_set.weights)
            total.append(lpaqa.product_nll(lm, vectors, weights, torch.tensor([token])).item())
    return sum(total) / len(total)


def test_the_search_asks_a_mixture_as_a_mixture(knowing_lm, languages):
    prompts = tuple(knowing_lm.encode_prompt(PromptTemplate.parse(phrasing.text)) for phrasing in languages.held_out)
    weights = (0.7, *(0.3 / (len(prompts) - 1),) * (len(prompts) - 1))
    head = knowing_lm.encode_entity(languages.facts[0][0])
    expected = next(PromptSetAnswerer(knowing_lm, PromptSet(prompts, weights, "mixture")).scores([head], lambda: None))

    ranker = TokenRanker(knowing_lm, prompts, weights, 8, is_mixture=True)
    step = layout((1, 1), ())[1]
    ranked = next(iter(ranker.rank([State((1, 1), head, step)], lambda: None)))

    for token, cost in [next(ranked) for _ in range(100)]:
        assert -cost == pytest.approx(expected[0, token].item(), abs=1e-4)


@pytest.mark.parametrize("setting", ["autoprompt", "soft"])
def test_on_an_lm_that_is_not_masked_learning_is_refused_in_a_sentence(tmp_path, languages, setting):
    spec = HarvestSpec("r", ("<ENT0> is <ENT1>",), (("paris", "france"), ("rome", "italy")), setting, (), PARAMS)

    with pytest.raises(UnsupportedModel, match="masked LM"):
        harvest(spec, load(str(tiny_gpt2(tmp_path))))
