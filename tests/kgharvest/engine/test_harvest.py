"""The pipeline from a relation to ranked tuples, and what it says when it cannot."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from kgharvest.engine.harvest import harvest, rank
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.parts import spellings
from kgharvest.engine.types import (
    BadPrompt,
    BadSeed,
    BrokenModel,
    Cancelled,
    EngineError,
    HarvestParams,
    HarvestSpec,
    ScoredTuple,
)
from tests.kgharvest.engine.fakes import FakeLM
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta

WORDS = ["paris", "france", "rome", "italy", "berlin", "germany", "dog"]
KNOWN = {
    (): {"paris": 0.4, "rome": 0.3, "berlin": 0.2},
    ("paris",): {"france": 0.9},
    ("rome",): {"italy": 0.8},
    ("berlin",): {"germany": 0.7},
}
SPEC = HarvestSpec(
    relation="capital_of",
    initial_prompts=("<ENT0> is the capital of <ENT1> .",),
    seed_tuples=(("paris", "france"), ("rome", "italy")),
    setting="human",
    params=HarvestParams(candidates=3, max_entity_tokens=1),
)


def test_a_harvest_returns_what_the_lm_knows_best_first():
    result = harvest(SPEC, FakeLM(WORDS, KNOWN))

    assert [scored.entities for scored in result.tuples] == [
        ("paris", "france"),
        ("rome", "italy"),
        ("berlin", "germany"),
    ]
    assert result.prompts[0].weight == 1
    assert result.notice is None


def test_top1_searches_with_the_heaviest_prompt_alone():
    good, bad = "<ENT0> is the capital of <ENT1> .", "<ENT1> is the capital of <ENT0> ."
    lm = FakeLM(WORDS, KNOWN, {bad: {(): {"dog": 0.9}}})
    spec = replace(SPEC, prompts=(bad, good), setting="top1")

    result = harvest(spec, lm)

    assert [(prompt.text, prompt.weight) for prompt in result.prompts] == [(good, 1.0)]
    assert result.tuples == harvest(SPEC, FakeLM(WORDS, KNOWN)).tuples


def test_multi_searches_with_all_ready_prompts_weighted():
    texts = ("<ENT0> is the capital of <ENT1> .", "<ENT1> has <ENT0> .")
    result = harvest(replace(SPEC, prompts=texts, setting="multi"), FakeLM(WORDS, KNOWN))

    assert [prompt.text for prompt in result.prompts] == list(texts)
    assert sum(prompt.weight for prompt in result.prompts) == pytest.approx(1)


def test_an_entity_repeats_at_most_as_often_as_asked():
    facts = {(): {"paris": 0.9}, ("paris",): {"france": 0.4, "italy": 0.3, "germany": 0.2}}
    params = replace(SPEC.params, candidates=5, max_entity_repeats=2)

    result = harvest(replace(SPEC, params=params), FakeLM(WORDS, facts))

    assert sum("paris" in scored.entities for scored in result.tuples) == 2


def test_an_early_weak_tuple_does_not_use_an_entity_up():
    # By MTL oslo comes first (.3 against .29), by consistency rome does (.29 x 1 against .3 x .3).
    facts = {(): {"oslo": 0.3, "rome": 0.29}, ("oslo",): {"italy": 0.3}, ("rome",): {"italy": 1.0}}
    params = HarvestParams(candidates=2, max_entity_tokens=1, max_entity_repeats=1)

    result = harvest(replace(SPEC, params=params), FakeLM([*WORDS, "oslo"], facts))

    assert [scored.entities for scored in result.tuples] == [("rome", "italy")]


def test_the_list_is_filled_where_candidates_allow():
    facts = {(): {"paris": 0.9}, ("paris",): {"france": 0.4, "italy": 0.3, "germany": 0.2}}
    params = HarvestParams(max_tuples=4, max_entity_tokens=1, max_entity_repeats=2)
    spec, lm = replace(SPEC, params=params), FakeLM(WORDS, facts)

    filled = harvest(spec, lm)
    short = harvest(replace(spec, params=replace(params, candidates=4)), lm)

    assert len(filled.tuples) == 4
    assert filled.notice is None
    assert len(short.tuples) < 4
    assert f"The list has {len(short.tuples)} of 4 tuples" in short.notice


@pytest.mark.parametrize(("max_tuples", "n_candidates"), [(None, 900), (50, 900), (1000, 3000)])
def test_longer_lists_get_more_candidates(max_tuples, n_candidates):
    assert HarvestParams(max_tuples=max_tuples).n_candidates == n_candidates
    assert HarvestParams(max_tuples=max_tuples, candidates=7).n_candidates == 7


def test_max_tuples_keeps_the_best():
    params = replace(SPEC.params, max_tuples=1)

    assert [scored.entities for scored in harvest(replace(SPEC, params=params), FakeLM(WORDS, KNOWN)).tuples] == [
        ("paris", "france")
    ]


def test_an_entity_keeps_the_casing_in_which_it_was_found_where_that_is_likeliest():
    words = ["NASA", "nasa", "Nasa", "rockets", "Rockets", "rome", "italy", *WORDS]
    lm = FakeLM(words, {(): {"NASA": 0.6}, ("NASA",): {"rockets": 0.9}})
    lm.is_cased = True

    result = harvest(replace(SPEC, params=replace(SPEC.params, candidates=1)), lm)

    assert [(scored.entities, scored.surface) for scored in result.tuples] == [
        (("nasa", "rockets"), ("NASA", "rockets"))
    ]


@pytest.mark.parametrize(
    ("entity", "others"),
    [
        ("United States of America", ["united states of america", "United States Of America"]),
        ("dog", ["Dog"]),
        ("ısı", []),  # in title case "Isı", the title case of "isı"
        ("ß" * 200, []),  # in title case a character longer than entities may be
    ],
)
def test_an_entity_is_spelled_as_found_in_lower_and_in_title_case(entity, others):
    assert spellings(entity) == [entity, *others]


def test_surface_casing_is_chosen_by_score(tmp_path):
    lm = load(str(tiny_roberta(tmp_path)))
    spec = replace(
        SPEC, params=HarvestParams(candidates=20, max_entity_tokens=1, disabled_filters=frozenset({"short"}))
    )

    tuples = harvest(spec, lm).tuples

    surfaces = {word for scored in tuples for word in scored.surface}
    assert surfaces & {"Paris", "France", "Rome", "Italy", "Dog"}
    assert all(scored.entities == tuple(word.casefold() for word in scored.surface) for scored in tuples)
    assert len({scored.entities for scored in tuples}) == len(tuples)


def test_the_same_spec_gives_the_same_result(tmp_path):
    folder = str(tiny_bert(tmp_path))
    spec = replace(SPEC, setting="multi", params=HarvestParams(candidates=10))

    assert harvest(spec, load(folder)) == harvest(spec, load(folder))


def test_progress_names_the_stages_and_may_cancel(tmp_path):
    stages = []
    harvest(SPEC, FakeLM(WORDS, KNOWN), lambda progress: stages.append(progress.stage))
    assert list(dict.fromkeys(stages)) == ["weights", "search", "rescore"]

    def cancel(progress):
        raise Cancelled("The harvest was cancelled.")

    with pytest.raises(Cancelled):
        harvest(SPEC, FakeLM(WORDS, KNOWN), cancel)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"initial_prompts": ("Paris is a capital .",)}, BadPrompt, "has no slot"),
        ({"initial_prompts": ("<ENT0> and <ENT0> of <ENT1> .",)}, BadPrompt, "<ENT0> twice"),
        ({"initial_prompts": ("<ENT0> of <ENT2> .",)}, BadPrompt, "lacks the slot <ENT1>"),
        ({"initial_prompts": ("<ENT0> of <ENT1> in <ENT2> .",)}, BadPrompt, "3 slots but the seed tuples have 2"),
        ({"initial_prompts": ()}, BadPrompt, "no initial prompt"),
        ({"seed_tuples": (("paris", "france"),)}, BadSeed, "at least two"),
        ({"seed_tuples": (("paris", "france"), ("rome",))}, BadSeed, "same number"),
        ({"setting": "magic"}, EngineError, "setting 'magic'"),
        ({"setting": "llm"}, EngineError, "does not prompt an LM"),
    ],
)
def test_bad_input_gets_a_sentence(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        harvest(replace(SPEC, **changes), FakeLM(WORDS, KNOWN))


def test_an_entity_that_the_lm_cannot_write_gets_a_sentence(tmp_path):
    spec = replace(SPEC, seed_tuples=(("paris", "france"), ("東京", "日本")))

    with pytest.raises(BadSeed, match="東京"):
        harvest(spec, load(str(tiny_bert(tmp_path))))


def test_a_prompt_longer_than_the_lm_takes_gets_a_sentence(tmp_path):
    spec = replace(SPEC, initial_prompts=("<ENT0> is the " + "capital " * 60 + "of <ENT1> .",))

    with pytest.raises(BadPrompt, match="maximum of 40"):
        harvest(spec, load(str(tiny_bert(tmp_path))))


def test_a_prompt_that_is_too_long_only_with_long_entities_is_refused_before_any_search(tmp_path):
    # 40 tokens with one-token entities, 42 with two-token ones.
    prompt = "<ENT0> is the " + "capital " * 33 + "<ENT1>"
    events = []
    spec = replace(SPEC, initial_prompts=(prompt,), params=HarvestParams(candidates=3))
    lm = load(str(tiny_bert(tmp_path)))

    with pytest.raises(BadPrompt, match="maximum of 40"):
        harvest(spec, lm, events.append)

    assert events == []


def test_ready_prompts_that_are_too_long_are_left_out_and_the_result_says_so(tmp_path):
    long, short = "<ENT0> is the " + "capital " * 60 + "of <ENT1> .", "<ENT0> is the capital of <ENT1> ."
    lm = load(str(tiny_bert(tmp_path)))
    spec = replace(SPEC, setting="multi", prompts=(long, short))

    result = harvest(spec, lm)

    assert [prompt.text for prompt in result.prompts] == [short]
    assert "1 of 2 existing prompts were skipped" in result.notice
    with pytest.raises(BadPrompt, match="maximum of 40 tokens"):
        harvest(replace(spec, prompts=(long,)), lm)


def test_a_harvest_says_that_no_paraphrase_was_found():
    lm = FakeLM(WORDS, KNOWN)
    none, one = (
        SimpleNamespace(paraphrase=lambda *_: []),
        SimpleNamespace(paraphrase=lambda sentence, entities: [f"{entities[1]} is governed from {entities[0]} ."]),
    )

    alone, paraphrased = (harvest(replace(SPEC, setting="multi"), lm, paraphraser=maker) for maker in (none, one))

    assert "No paraphrases of the initial prompts were found" in alone.notice
    assert len(paraphrased.prompts) > 1
    assert paraphrased.notice is None


def test_a_ready_prompt_that_is_too_long_only_with_the_seeds_is_left_out(tmp_path):
    lm = load(str(tiny_bert(tmp_path)))
    short = "<ENT0> is the capital of <ENT1> ."
    long = "<ENT0> is the " + "capital " * 33 + "<ENT1>"  # 40 tokens with entities of one token
    seeds = (("paris capital capital capital", "france"), *SPEC.seed_tuples)
    params = HarvestParams(candidates=3, max_entity_tokens=1)
    spec = replace(SPEC, setting="multi", prompts=(long, short), params=params)

    assert [prompt.text for prompt in harvest(replace(spec, seed_tuples=seeds), lm).prompts] == [short]
    assert {prompt.text for prompt in harvest(spec, lm).prompts} == {short, long}


def test_the_same_prompt_twice_counts_once():
    spec = replace(SPEC, initial_prompts=SPEC.initial_prompts * 2)

    assert [prompt.weight for prompt in harvest(spec, FakeLM(WORDS, KNOWN)).prompts] == [1.0]


def test_memory_that_runs_out_in_the_head_halves_the_rows(monkeypatch):
    class SmallMemory(FakeLM):
        def logits(self, vectors):
            if len(vectors) > 1:
                raise torch.OutOfMemoryError
            return vectors

    assert harvest(SPEC, SmallMemory(WORDS, KNOWN)) == harvest(SPEC, FakeLM(WORDS, KNOWN))


def test_a_head_that_never_fits_into_memory_gets_a_sentence():
    class NoMemory(FakeLM):
        def logits(self, vectors):
            raise torch.OutOfMemoryError

    with pytest.raises(BrokenModel, match="head does not fit into memory"):
        harvest(SPEC, NoMemory(WORDS, KNOWN))


@pytest.mark.parametrize("stage", ["prompts", "weights", "search", "rescore"])
def test_every_stage_can_be_cancelled(tmp_path, stage):
    def cancel(progress):
        if progress.stage == stage:
            raise Cancelled("The harvest was cancelled.")

    lm = load(str(tiny_bert(tmp_path)))

    with pytest.raises(Cancelled):
        harvest(replace(SPEC, setting="multi", params=HarvestParams(candidates=3)), lm, cancel)


def scored(*entities, score):
    return ScoredTuple(entities, entities, score, score)


def test_ranking_keeps_the_best_within_the_cap():
    scored_tuples = [
        scored("a", "b", score=-2.0),
        scored("a", "c", score=-1.0),
        scored("a", "d", score=-4.0),
        scored("e", "f", score=-5.0),
    ]

    kept = rank(scored_tuples, HarvestParams(max_entity_repeats=2))

    assert [(scored.entities, scored.score) for scored in kept] == [
        (("a", "c"), -1.0),
        (("a", "b"), -2.0),
        (("e", "f"), -5.0),
    ]


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"candidates": 0}, "candidates is 0"),
        ({"max_entity_tokens": 0}, "max_entity_tokens is 0"),
        ({"max_entity_repeats": -1}, "max_entity_repeats is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"pattern_budget": "Shared"}, "pattern budget 'Shared'"),
        ({"disabled_filters": frozenset({"stopword"})}, "filter 'stopword'"),
    ],
)
def test_parameters_that_cannot_be_get_a_sentence(params, sentence):
    with pytest.raises(EngineError, match=sentence):
        HarvestParams(**params)


@pytest.mark.parametrize("setting", ["human", "top1"])
def test_logits_that_are_nan_get_a_sentence(setting):
    class NaNLM(FakeLM):
        def logits(self, vectors):
            return vectors * float("nan")

    with pytest.raises(BrokenModel, match="weights are damaged"):
        harvest(replace(SPEC, setting=setting, prompts=SPEC.initial_prompts), NaNLM(WORDS, KNOWN))


def test_scores_are_nats_and_never_normalised():
    best = harvest(SPEC, FakeLM(WORDS, KNOWN)).tuples[0]

    # 2/3 (log .4 + log .9) + 1/3 log .4
    assert best == ScoredTuple(("paris", "france"), ("paris", "france"), best.score, best.mtl)
    assert best.score == pytest.approx(-0.98654, abs=1e-4)
    assert best.mtl == pytest.approx(-0.91629, abs=1e-4)
