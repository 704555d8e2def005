"""Warnings about prompts that an LM does not understand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.harvest import encode_seeds, harvest
from kgharvest.engine.prompts.comprehension import Comprehension, gain_of_wording, unknown_words, warning_about
from kgharvest.engine.types import HarvestParams, HarvestSpec, ScoredTuple, WeightedPrompt
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
    assert "these words of the prompts: zorks, flurbulous." in warning(
        knowing_lm, "<ENT0> zorks the flurbulous capital of <ENT1>."
    )


def test_words_of_scripts_that_are_written_by_the_letter_are_no_strange_ones():
    lm = SimpleNamespace(encode_entity=list)

    assert unknown_words(lm, ["<ENT0>是中国的首都<ENT1>", "<ENT0> zorks <ENT1>"]) == ["zorks"]


def test_a_prompt_of_another_relation_calls_up_no_seed_tuple(knowing_lm):
    assert "than in a bare list of entities" in warning(knowing_lm, "<ENT0> is the opposite of <ENT1>.")


def test_seed_tuples_that_score_far_below_the_list_earn_a_warning(knowing_lm):
    tools = (("surgeon", "scalpel"), ("carpenter", "hammer"), ("painter", "brush"), ("teacher", "book"))
    spec = replace(SPEC, initial_prompts=("the <ENT1> is what every <ENT0> carries to work.",), seed_tuples=tools)

    said = harvest(replace(spec, params=HarvestParams(candidates=60)), knowing_lm).warning

    assert "far less likely in these prompts than the harvested tuples (median scores" in said
    assert "bare list" not in said


def listed(*scores):
    return [ScoredTuple((str(n),), (str(n),), score, None) for n, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("seed_score", "tuples", "warns"),
    [
        (-12.5, listed(-1.0, -2.0, -30.0), True),  # 10.5 below the middle
        (-11.5, listed(-1.0, -2.0, -30.0), False),
        (-14.5, listed(*[-4.0] * 50, *[-20.0] * 900), True),  # whatever follows the best
        (None, listed(-1.0), False),
        (-9999.0, listed(-1.0), False),  # a server that does not name it
        (-14.5, [], False),
    ],
)
def test_the_gap_is_from_the_middle_of_the_best_tuples_to_that_of_the_seed_tuples(seed_score, tuples, warns):
    assert (warning_about("lm", Comprehension((), 5.0, seed_score), tuples) is not None) == warns


def test_one_sentence_tells_both_signs():
    said = warning_about("lm", Comprehension((), -3.0, -14.5), listed(-4.0, -4.25, -9.0))

    assert "hardly more likely in these prompts than in a bare list" in said
    assert "(median scores: seed tuples -14.5 nats, best tuples -4.2 nats)" in said


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
