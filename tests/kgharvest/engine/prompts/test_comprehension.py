"""Warnings about prompts that an LM does not understand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.harvest import encode_seeds, harvest
from kgharvest.engine.prompts.comprehension import gain_of_wording, unknown_words
from kgharvest.engine.types import HarvestParams, HarvestSpec, WeightedPrompt
from tests.kgharvest.engine.fakes import FakeLM

CAPITALS = (("paris", "france"), ("rome", "italy"), ("london", "united kingdom"))
SPEC = HarvestSpec("capital_of", ("the capital of <ENT1> is <ENT0>.",), CAPITALS, "human")
PARAMS = HarvestParams(candidates=20, max_entity_tokens=1)


def warning(lm, prompt):
    return harvest(replace(SPEC, initial_prompts=(prompt,), params=PARAMS), lm).warning


def test_a_prompt_that_the_lm_understands_earns_no_warning(knowing_lm):
    assert warning(knowing_lm, SPEC.initial_prompts[0]) is None


def test_words_that_are_spelled_out_in_letters_are_named(knowing_lm):
    assert unknown_words(knowing_lm, ["<ENT0> zorks the flurbulous capital of <ENT1>, it zorks"]) == [
        "zorks",
        "flurbulous",
    ]
    assert "these words of the prompts: zorks, flurbulous;" in warning(
        knowing_lm, "<ENT0> zorks the flurbulous capital of <ENT1>."
    )


def test_words_of_scripts_that_are_written_by_the_letter_are_no_strange_ones():
    lm = SimpleNamespace(encode_entity=list)

    assert unknown_words(lm, ["<ENT0>是中国的首都<ENT1>", "<ENT0> zorks <ENT1>"]) == ["zorks"]


def test_a_prompt_of_another_relation_calls_up_no_seed_tuple(knowing_lm):
    assert "than in a bare list of entities" in warning(knowing_lm, "<ENT0> is the opposite of <ENT1>.")


def test_the_gain_is_the_weighted_compatibility_above_that_of_the_bare_list():
    words = ["paris", "france", "rome", "italy"]
    half, sure = {(): {"paris": 0.5}, ("paris",): {"france": 0.5}}, {(): {"paris": 1.0}, ("paris",): {"france": 1.0}}
    lm = FakeLM(words, half, {"<ENT0> is in <ENT1>": sure})
    seeds = encode_seeds([("paris", "france")] * 2, lm)
    asked = [WeightedPrompt("<ENT0> is in <ENT1>", 0.0, 0.75), WeightedPrompt("<ENT1> of <ENT0>", -4.0, 0.25)]

    gain = gain_of_wording(lm, asked, seeds, HarvestParams(), lambda: None)

    # In the list each entity has log(1/2): 2/3 of their sum and 1/3 of the least, 5/3 log(1/2) = -1.155.
    assert gain == pytest.approx(-1.0 + 5 / 3 * 0.693147, abs=1e-5)


def test_the_prompts_that_come_with_the_embedded_lm_earn_no_warning(knowing_lm):
    for relation in load_world()[:6]:
        spec = HarvestSpec(relation.name, (relation.phrasings[0].text,), relation.facts[:5], "human", params=PARAMS)
        assert harvest(spec, knowing_lm).warning is None, relation.name
