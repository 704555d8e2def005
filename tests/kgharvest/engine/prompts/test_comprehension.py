"""Warnings about unknown words, unknown seed tuples, and harvests that are probably noise."""

from dataclasses import replace
from math import inf, isnan, nan
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.harvest import harvest
from kgharvest.engine.prompts.comprehension import (
    SHIFTS,
    STEP,
    Comprehension,
    dependence,
    familiarity,
    is_noise,
    unknown_seed_tuples,
    unknown_words,
    warnings_about,
)
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import HarvestParams, HarvestSpec, ScoredTuple
from tests.kgharvest.engine.fakes import FakeLM

WORLD = {relation.name: relation for relation in load_world()}
HABITATS = WORLD["lives_in"].facts[::19][:5]
SPEC = HarvestSpec("lives_in", (WORLD["lives_in"].phrasings[0].text,), HABITATS, "human")
PARAMS = HarvestParams(candidates=300, max_entity_tokens=1)


def harvested(lm, prompt, seeds=HABITATS):
    return harvest(replace(SPEC, initial_prompts=(prompt,), seed_tuples=seeds, params=PARAMS), lm)


def listed(*tuples, score=0.0):
    return [ScoredTuple(entities, entities, score, None) for entities in tuples]


# Words


def test_warning_names_words_split_into_letters(trained_lm):
    assert unknown_words(trained_lm, ["<ENT0> zorks the flurbulous capital of <ENT1>, it zorks"]) == [
        "zorks",
        "flurbulous",
    ]
    result = harvested(trained_lm, "<ENT0> zorks in the flurbulous <ENT1>.")
    assert "these words of the prompts: zorks, flurbulous." in result.warning
    assert "unknown_words" in result.codes


def test_words_of_character_based_scripts_are_not_reported():
    lm = SimpleNamespace(encode_entity=list)

    assert unknown_words(lm, ["<ENT0>是中国的首都<ENT1>", "<ENT0> zorks <ENT1>"]) == ["zorks"]


# Harvests of an LM whose facts are known


def test_understood_prompt_has_no_warning(trained_lm):
    result = harvested(trained_lm, SPEC.initial_prompts[0])

    assert (result.warning, result.codes, result.unknown_seed_tuples) == (None, (), ())


@pytest.mark.parametrize(
    ("prompt", "seeds"),
    [
        ("<ENT0> is the opposite of <ENT1>.", HABITATS),
        ("<ENT0> was invented by <ENT1>.", (("telephone", "bell"), ("radio", "marconi"), ("lamp", "edison"))),
    ],
)
def test_harvest_of_another_relation_is_probably_noise(trained_lm, prompt, seeds):
    result = harvested(trained_lm, prompt, seeds)

    assert "Few of the harvested tuples may be true" in result.warning
    assert "probably_noise" in result.codes


def test_unknown_seed_tuples_of_a_sensible_list_are_named_without_warning(trained_lm):
    (first, *_), (second, *_) = HABITATS[:2]
    wrong = ((first, "wool"), (second, "bread"))

    result = harvested(trained_lm, SPEC.initial_prompts[0], (*wrong, *HABITATS[2:]))

    assert result.warning is None
    assert result.unknown_seed_tuples == wrong
    assert result.notice.endswith(f"seems not to know these seed tuples: {first}, wool; {second}, bread.")
    assert result.codes == ("unknown_seed_tuples",)


def test_minimum_score_does_not_disable_warnings(trained_lm):
    spec = replace(SPEC, initial_prompts=("<ENT0> is the opposite of <ENT1>.",), params=PARAMS)
    best, *_ = harvest(spec, trained_lm).tuples

    result = harvest(replace(spec, params=replace(PARAMS, min_score=best.score)), trained_lm)

    assert len(result.tuples) == 1
    assert "probably_noise" in result.codes


def test_demo_prompts_of_embedded_lm_have_no_warning(trained_lm):
    for name in ("business", "eats", "is_a", "language_of"):
        relation = WORLD[name]
        spec = HarvestSpec(
            relation.name, (relation.phrasings[0].text,), relation.facts[::19][:5], "human", params=PARAMS
        )
        assert harvest(spec, trained_lm).warning is None, name


# Measures


def test_familiarity_is_mean_share_of_entities_in_the_same_slot():
    candidates = listed(("rome", "norway"), ("oslo", "france"))
    seeds = [("Rome", "italy"), ("paris", "France"), ("norway", "oslo")]

    # Of six entities, Rome is in its slot in the best tuple, and also France in both tuples. Norway is in another slot.
    assert familiarity(seeds, candidates, 1) == pytest.approx((1 / 6 + 2 / 6) / 2)


def test_dependence_is_median_gain_over_last_entities_of_others():
    heads, tails = [f"h{n}" for n in range(12)], [f"t{n}" for n in range(12)]
    likely = {(): dict.fromkeys(heads, 1 / 12)} | {(h,): {t: 0.5} for h, t in zip(heads, tails, strict=True)}
    lm = FakeLM([*heads, *tails], likely)
    prompt = lm.encode_prompt(PromptTemplate.parse("<ENT0> is in <ENT1>"))
    best = listed(*zip(heads, tails, strict=True))

    # The other 23 words share the rest: log(0.5) - log(0.5 / 23) = log(23).
    assert dependence(lm, prompt, best, 8) == pytest.approx(3.135494, abs=1e-5)


@pytest.mark.parametrize("unlisted", [-9999.0, -inf])
def test_dependence_ignores_unlisted_tokens(unlisted):
    """The gain over the second next last entity is 2 nats; the other last entities are not listed."""
    names = [f"w{n}" for n in range(40)]
    best = listed(*zip(names, names, strict=True))[:40]
    heads = range(0, 40, STEP)
    near = {(head, (head + STEP * SHIFTS[0]) % 40) for head in heads}

    def logprob(head, tail):
        return -1.0 if head == tail else -3.0 if (head, tail) in near else unlisted

    def scores(lm, prompts, tuples, *args):
        return np.array([[[0.0, logprob(head, tail)]] for (head,), (tail,) in tuples])

    lm = FakeLM(names, {})
    with patch("kgharvest.engine.prompts.comprehension.entity_logprobs", scores):
        assert dependence(lm, None, best, 8) == 2.0
        near.clear()
        assert isnan(dependence(lm, None, best, 8))


def test_equal_last_entities_have_no_dependence():
    lm = FakeLM(["a", "b", "c"], {})
    prompt = lm.encode_prompt(PromptTemplate.parse("<ENT0> is in <ENT1>"))

    assert dependence(lm, prompt, listed(("a", "c"), ("b", "c")), 8) == 0


@pytest.mark.parametrize(
    ("shows_examples", "familiar", "dependent", "expected"),
    [
        (False, 0.2, 9.0, True),  # more than 6 nats do not compensate unknown entities
        (False, 0.4, 6.0, False),
        (False, 0.4, 2.0, True),
        (False, 0.8, 0.0, False),
        (True, 1.0, 2.0, True),  # worked examples suggest their entities
        (True, 0.0, 6.0, False),
        (False, 0.2, nan, False),  # not measurable
        (True, 0.0, nan, False),
    ],
)
def test_noise_is_unfamiliar_or_independent(shows_examples, familiar, dependent, expected):
    assert is_noise(shows_examples, familiar, dependent) == expected


def test_unknown_seed_tuples_score_far_below_median():
    best = [*listed(("a", "b"), score=-1.0), *listed(("c", "d"), score=-2.0), *listed(("e", "f"), score=-30.0)]
    shown = Comprehension((), ((("x", "y"), -4.9), (("v", "w"), -5.1)))

    assert unknown_seed_tuples(shown, best) == (("v", "w"),)
    assert unknown_seed_tuples(shown, []) == ()


@pytest.mark.parametrize("unlisted", [-9999.0, -inf])
def test_unlisted_tuples_are_ignored_in_search_for_unknown_seed_tuples(unlisted):
    best = [*listed(("a", "b"), score=-1.0), *listed(("c", "d"), ("e", "f"), score=unlisted)]
    shown = Comprehension((), ((("x", "y"), unlisted), (("v", "w"), -5.0)))

    assert unknown_seed_tuples(shown, best) == (("v", "w"),)
    assert unknown_seed_tuples(shown, best[1:]) == ()


def test_short_lists_are_not_assessed():
    lm = FakeLM(["a"], {})
    prompt = lm.encode_prompt(PromptTemplate.parse("<ENT0> is in <ENT1>"))

    assert warnings_about(lm, Comprehension((), ((("x", "y"), 0.0),)), prompt, listed(*[("a", "a")] * 19), 8) == []
