"""Harvests with heads: equal to the exhaustive harvest restricted to them, heads without tuples, and numbers."""

import random
from dataclasses import replace

import pytest
import torch

from kgharvest.engine import parts
from kgharvest.engine.entities import entity_of
from kgharvest.engine.filters import EntityFilter, is_number
from kgharvest.engine.harvest import harvest, harvest_prepared, order_tuples, prepare, score_tuples
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.types import EngineError, HarvestParams, HarvestSpec
from kgharvest.harvests.parts.serialization import read_part, write_part
from tests.kgharvest.engine.fakes import FakeLM
from tests.kgharvest.engine.test_harvest import FACTS, SPEC, WORDS
from tests.kgharvest.engine.tiny_models import WORDS as TINY_WORDS
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_gpt2, tiny_roberta

HEADS = ("paris", "dog", "wood")
BINARY = HarvestSpec(
    relation="capital_of",
    initial_prompts=("<ENT0> is the capital of <ENT1> .", "a place for <ENT0> is in <ENT1>"),
    seed_tuples=(("paris", "france"), ("rome", "italy")),
    setting="human",
    params=HarvestParams(candidates=10**6, max_entity_tokens=1, max_entity_repeats=None),
)


def with_params(spec, **params):
    return replace(spec, params=replace(spec.params, **params))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    return {make: str(make(tmp_path_factory.mktemp("lm"))) for make in (tiny_bert, tiny_roberta, tiny_gpt2)}


@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta, tiny_gpt2])
def test_scores_equal_the_exhaustive_harvest_restricted_to_the_heads(folders, make, monkeypatch):
    monkeypatch.setattr(parts, "HEADS_PER_PART", 2)
    lm = load(folders[make])
    exhaustive = harvest(BINARY, lm)
    restricted = {scored.entities: scored for scored in exhaustive.tuples if scored.entities[0] in HEADS}

    result = harvest(with_params(BINARY, heads=HEADS), lm)

    assert len(restricted) > 10
    assert {scored.entities for scored in result.tuples} == set(restricted)
    for scored in result.tuples:
        assert scored.score == pytest.approx(restricted[scored.entities].score, abs=1e-5)
        assert scored.surface == restricted[scored.entities].surface
    assert [s.score for s in result.tuples] == sorted((s.score for s in result.tuples), reverse=True)


@pytest.mark.parametrize("numbers", [False, True])
def test_order_by_consistency_equals_the_exhaustive_harvest(tmp_path, numbers):
    lm = load(str(tiny_bert(tmp_path, words=(*TINY_WORDS, "1", "10", "200"))))
    exhaustive = harvest(with_params(BINARY, numbers=numbers), lm)
    least = exhaustive.tuples[30].score - 1e-5

    result = harvest(with_params(BINARY, numbers=numbers, order="consistency", min_score=least), lm)

    expected = {scored.entities: scored.score for scored in exhaustive.tuples if scored.score >= least}
    assert {scored.entities: scored.score for scored in result.tuples} == pytest.approx(expected, abs=1e-5)
    entities = {entity for scored in exhaustive.tuples for entity in scored.surface}
    assert any(is_number(entity_of(entity).words) for entity in entities) == numbers


def test_order_by_consistency_refuses_heads():
    with pytest.raises(EngineError, match=r"order consistency does not support heads. Use the order mtl"):
        HarvestParams(heads=("paris",), order="consistency")


@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta, tiny_gpt2])
def test_longer_tails_score_as_if_they_were_scored_directly(folders, make):
    spec = with_params(BINARY, heads=HEADS, candidates=10, max_entity_tokens=2)
    lm = load(folders[make])

    result = harvest(spec, lm)

    tuples = [tuple(map(entity_of, scored.surface)) for scored in result.tuples]
    direct = score_tuples(with_params(spec, heads=()), tuples, lm)
    expected = {scored.entities: scored.score for scored in direct.tuples}
    assert {len(lm.encode_entity(scored.surface[1])) for scored in result.tuples} == {1, 2}
    assert {scored.entities: scored.score for scored in result.tuples} == pytest.approx(expected, abs=1e-5)


def test_parts_in_any_order_give_the_same_result(folders, monkeypatch):
    monkeypatch.setattr(parts, "HEADS_PER_PART", 1)
    lm = load(folders[tiny_bert])
    spec = with_params(BINARY, heads=HEADS, candidates=10, max_entity_tokens=2)
    expected = harvest(spec, lm)
    rng = random.Random(1)

    def shuffled(stage, stage_parts, do):
        order = rng.sample(range(len(stage_parts)), len(stage_parts))
        done = {number: do(read_part(write_part(stage_parts[number])), lambda n: None) for number in order}
        return [done[number] for number in range(len(stage_parts))]

    assert harvest_prepared(prepare(spec, lm), spec.params, lm, shuffled) == expected


def test_limits_apply_to_every_head():
    params = {"heads": ("paris", "rome"), "candidates": 5, "max_tuples": 2, "max_entity_repeats": 1}
    result = harvest(with_params(SPEC, **params), FakeLM(WORDS, FACTS))

    assert sorted(scored.entities[0] for scored in result.tuples) == ["paris", "paris", "rome", "rome"]
    assert result.notice is None


def test_heads_without_tuples_are_listed():
    lm = FakeLM(WORDS, FACTS)
    best = harvest(SPEC, lm).tuples[0]
    heads = ("Rome", "paris", "unwritable-word")

    result = harvest(with_params(SPEC, heads=heads, min_score=best.score), lm)

    assert [scored.entities for scored in result.tuples] == [("paris", "france")]
    assert result.null_heads == ("Rome", "unwritable-word")
    assert result.notice == "No tuple was found for 2 of 3 heads: Rome, unwritable-word."


def test_head_is_not_filtered_and_repeats_are_searched_once(folders):
    lm = load(folders[tiny_bert])
    result = harvest(with_params(BINARY, heads=("the", "The"), candidates=5), lm)

    assert {scored.entities[0] for scored in result.tuples} == {"the"}
    assert len({scored.entities for scored in result.tuples}) == len(result.tuples) == 5
    assert result.null_heads == ()


def test_unwritable_heads_are_counted(folders):
    result = harvest(with_params(BINARY, heads=("paris", "øåæ"), candidates=5), load(folders[tiny_bert]))

    assert result.null_heads == ("øåæ",)
    assert result.rejected["unscored"] == 1


def test_minimum_score_applies_without_heads():
    lm = FakeLM(WORDS, FACTS)
    scores = [scored.score for scored in harvest(SPEC, lm).tuples]

    result = harvest(with_params(SPEC, min_score=scores[1]), lm)

    assert [scored.score for scored in result.tuples] == scores[:2]
    assert result.null_heads == ()


def test_notice_of_short_list_names_minimum_score_only_if_it_removed_tuples():
    lm = FakeLM(WORDS, FACTS)
    scores = [scored.score for scored in harvest(SPEC, lm).tuples]

    def codes(n_missing, min_score):
        result = harvest(with_params(SPEC, max_tuples=len(scores) + n_missing, min_score=min_score), lm)
        return set(result.codes) & {"minimum_score", "short_list"}

    assert codes(0, scores[-1]) == set()
    assert codes(0, scores[-2]) == {"minimum_score"}
    assert codes(5, scores[-1]) == {"short_list"}
    short = harvest(with_params(SPEC, max_tuples=len(scores), min_score=scores[0]), lm)
    assert short.notice.startswith(f"The list has 1 of {len(scores)} tuples because the others score below -")


def test_minimum_score_does_not_apply_to_ranks():
    tuples = [tuple(map(entity_of, pair)) for pair in (("a", "b"), ("c", "d"))]

    assert len(order_tuples(tuples, HarvestParams(min_score=-1.5))) == 2


@pytest.mark.parametrize(
    ("params", "start"),
    [
        ({"heads": "paris"}, "heads is 'paris'"),
        ({"heads": ("paris", " ")}, "heads is"),
        ({"min_score": float("nan")}, "min_score is nan"),
    ],
)
def test_invalid_parameters_are_rejected(params, start):
    with pytest.raises(EngineError, match=start):
        HarvestParams(**params)


def test_number_of_candidates_is_per_head():
    params = HarvestParams(heads=("paris", "rome"), candidates=10)

    assert params.n_candidates_in_all(2) == 2 * 2 * 10
    assert HarvestParams(heads=("paris",)).n_candidates == 100
    assert HarvestParams(heads=("paris",), max_tuples=50).n_candidates == 150


# Numbers


@pytest.mark.parametrize("text", ["7", "1200", "1,200", "1 , 200", "-3.5", "1.000.000", "42"])
def test_numbers_are_admitted_only_on_request(text):
    words = entity_of(text).words

    assert is_number(words)
    assert EntityFilter([]).rejection(words) == "no_letter_or_punctuation"
    assert EntityFilter([], numbers=True).rejection(words) is None


@pytest.mark.parametrize("text", [",", "1,", "b-52", "--1", "10 %"])
def test_other_texts_are_no_numbers(text):
    words = entity_of(text).words

    assert not is_number(words)
    assert EntityFilter([], numbers=True).rejection(words) == EntityFilter([]).rejection(words)


def test_harvest_finds_numbers_of_several_tokens(tmp_path):
    words = ("paris", "france", "two", "1", "2", "10", "of", "has", "people")
    lm = load(str(tiny_bert(tmp_path, words=words)))
    spec = replace(
        BINARY,
        initial_prompts=("<ENT0> has <ENT1> people .",),
        seed_tuples=(("paris", "10"), ("france", "2")),
        params=HarvestParams(heads=("paris",), candidates=100, max_entity_tokens=2, numbers=True),
    )

    tails = [scored.entities[1] for scored in harvest(spec, lm).tuples]

    numbers = [tail for tail in tails if is_number(entity_of(tail).words)]
    assert {"1", "2", "10"} <= set(numbers)
    assert any(len(lm.encode_entity(number)) > 1 for number in numbers)
    no_numbers = harvest(with_params(spec, numbers=False), lm)
    assert not any(is_number(entity_of(scored.entities[1]).words) for scored in no_numbers.tuples)
