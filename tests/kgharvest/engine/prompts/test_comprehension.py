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


def test_understood_prompt_has_no_warning(trained_lm):
    assert warning(trained_lm, SPEC.initial_prompts[0]) is None


def test_warning_names_words_split_into_letters(trained_lm):
    assert unknown_words(trained_lm, ["<ENT0> zorks the flurbulous capital of <ENT1>, it zorks"]) == [
        "zorks",
        "flurbulous",
    ]
    assert "these words of the prompts: zorks, flurbulous." in warning(
        trained_lm, "<ENT0> zorks the flurbulous capital of <ENT1>."
    )


def test_words_of_character_based_scripts_are_not_reported():
    lm = SimpleNamespace(encode_entity=list)

    assert unknown_words(lm, ["<ENT0>是中国的首都<ENT1>", "<ENT0> zorks <ENT1>"]) == ["zorks"]


def test_warning_reports_prompt_of_another_relation(trained_lm):
    assert "than in a bare list of entities" in warning(trained_lm, "<ENT0> is the opposite of <ENT1>.")


def test_warning_reports_seed_tuples_scoring_far_below_list(trained_lm):
    tools = (("surgeon", "scalpel"), ("carpenter", "hammer"), ("painter", "brush"), ("teacher", "book"))
    spec = replace(SPEC, initial_prompts=("the <ENT1> is what every <ENT0> carries to work.",), seed_tuples=tools)

    message = harvest(replace(spec, params=HarvestParams(candidates=60)), trained_lm).warning

    assert "far less likely in these prompts than the harvested tuples (median scores" in message
    assert "bare list" not in message


def listed(*scores):
    return [ScoredTuple((str(n),), (str(n),), score, None) for n, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("seed_score", "tuples", "warns"),
    [
        (-12.5, listed(-1.0, -2.0, -30.0), True),  # 10.5 below the median
        (-11.5, listed(-1.0, -2.0, -30.0), False),
        (-14.5, listed(*[-4.0] * 50, *[-20.0] * 900), True),  # tuples below the best are ignored
        (None, listed(-1.0), False),
        (-9999.0, listed(-1.0), False),  # a server that does not rank it
        (-14.5, [], False),
    ],
)
def test_score_gap_compares_medians_of_best_and_seed_tuples(seed_score, tuples, warns):
    assert (warning_about("lm", Comprehension((), 5.0, seed_score), tuples) is not None) == warns


def test_warning_combines_both_signs_in_one_sentence():
    message = warning_about("lm", Comprehension((), -3.0, -14.5), listed(-4.0, -4.25, -9.0))

    assert "hardly more likely in these prompts than in a bare list" in message
    assert "(median scores: seed tuples -14.5 nats, best tuples -4.2 nats)" in message


def test_gain_is_weighted_compatibility_minus_bare_list_compatibility():
    words = ["paris", "france", "rome", "italy"]
    half, sure = {(): {"paris": 0.5}, ("paris",): {"france": 0.5}}, {(): {"paris": 1.0}, ("paris",): {"france": 1.0}}
    lm = FakeLM(words, half, {"<ENT0> is in <ENT1>": sure})
    seeds = encode_seeds([("paris", "france")] * 2, lm)
    prompts = [WeightedPrompt("<ENT0> is in <ENT1>", 0.0, 0.75), WeightedPrompt("<ENT1> of <ENT0>", -4.0, 0.25)]

    gain = gain_of_wording(lm, prompts, seeds, HarvestParams(), lambda: None)

    # In the bare list each entity has log(1/2): 2/3 of the sum plus 1/3 of the minimum = 5/3 log(1/2) = -1.155.
    assert gain == pytest.approx(-1.0 + 5 / 3 * 0.693147, abs=1e-5)


def test_demo_prompts_of_embedded_lm_have_no_warning(trained_lm):
    for relation in load_world()[:6]:
        spec = HarvestSpec(relation.name, (relation.phrasings[0].text,), relation.facts[:5], "human", params=PARAMS)
        assert harvest(spec, trained_lm).warning is None, relation.name
