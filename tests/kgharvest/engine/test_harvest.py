"""Harvest pipeline from a relation to ranked tuples, and its error messages."""

from dataclasses import replace
from math import log

import pytest
import torch

from kgharvest.engine.harvest import harvest, rank
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.rescoring import spellings
from kgharvest.engine.types import (
    BadPrompt,
    BadSeed,
    BrokenModel,
    Cancelled,
    EngineError,
    HarvestParams,
    HarvestSpec,
    Paraphraser,
    ScoredTuple,
)
from tests.kgharvest.engine.fakes import FakeLM
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta

WORDS = ["paris", "france", "rome", "italy", "berlin", "germany", "dog"]
FACTS = {
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


def test_harvest_returns_tuples_best_first():
    result = harvest(SPEC, FakeLM(WORDS, FACTS))

    assert [scored.entities for scored in result.tuples] == [
        ("paris", "france"),
        ("rome", "italy"),
        ("berlin", "germany"),
    ]
    assert result.prompts[0].weight == 1
    assert result.notice is None


def test_top1_searches_with_heaviest_prompt_only():
    good, bad = "<ENT0> is the capital of <ENT1> .", "<ENT1> is the capital of <ENT0> ."
    lm = FakeLM(WORDS, FACTS, {bad: {(): {"dog": 0.9}}})
    spec = replace(SPEC, prompts=(bad, good), setting="top1")

    result = harvest(spec, lm)

    assert [(prompt.text, prompt.weight) for prompt in result.prompts] == [(good, 1.0)]
    assert result.tuples == harvest(SPEC, FakeLM(WORDS, FACTS)).tuples


def test_multi_searches_with_all_existing_prompts():
    texts = ("<ENT0> is the capital of <ENT1> .", "<ENT1> has <ENT0> .")
    result = harvest(replace(SPEC, prompts=texts, setting="multi"), FakeLM(WORDS, FACTS))

    assert [prompt.text for prompt in result.prompts] == list(texts)
    assert sum(prompt.weight for prompt in result.prompts) == pytest.approx(1)


def test_entity_repeats_at_most_as_configured():
    facts = {(): {"paris": 0.9}, ("paris",): {"france": 0.4, "italy": 0.3, "germany": 0.2}}
    params = replace(SPEC.params, candidates=5, max_entity_repeats=2)

    result = harvest(replace(SPEC, params=params), FakeLM(WORDS, facts))

    assert sum("paris" in scored.entities for scored in result.tuples) == 2


def test_weak_tuple_does_not_exhaust_entity_cap():
    # By MTL oslo ranks first (.3 > .29). By consistency rome does (.29 x 1 > .3 x .3).
    facts = {(): {"oslo": 0.3, "rome": 0.29}, ("oslo",): {"italy": 0.3}, ("rome",): {"italy": 1.0}}
    params = HarvestParams(candidates=2, max_entity_tokens=1, max_entity_repeats=1)

    result = harvest(replace(SPEC, params=params), FakeLM([*WORDS, "oslo"], facts))

    assert [scored.entities for scored in result.tuples] == [("rome", "italy")]


def test_order_by_consistency_needs_no_candidates():
    # One candidate by MTL is oslo (.3 > .29), but rome is more consistent (.29 x 1 > .3 x .3).
    facts = {(): {"oslo": 0.3, "rome": 0.29}, ("oslo",): {"italy": 0.3}, ("rome",): {"italy": 1.0}}
    params = HarvestParams(candidates=1, max_tuples=1, max_entity_tokens=1)
    spec, lm = replace(SPEC, params=params), FakeLM([*WORDS, "oslo"], facts)

    by_mtl = harvest(spec, lm)
    by_consistency = harvest(replace(spec, params=replace(params, order="consistency")), lm)

    assert [scored.entities for scored in by_mtl.tuples] == [("oslo", "italy")]
    [best] = by_consistency.tuples
    assert best.entities == ("rome", "italy")
    assert best.score == pytest.approx(log(0.29), abs=1e-6)
    assert best.mtl == pytest.approx(log(0.29), abs=1e-6)
    assert by_consistency.notice is None


def test_order_by_consistency_names_the_end_of_admissible_tuples():
    params = HarvestParams(max_tuples=100, max_entity_tokens=1, max_entity_repeats=1, order="consistency")

    result = harvest(replace(SPEC, params=params), FakeLM(WORDS, FACTS))

    assert len(result.tuples) < 100
    assert "because the admissible tuples contain no more with at most 1 per entity" in result.notice


def test_list_is_filled_if_candidates_suffice():
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

    assert [scored.entities for scored in harvest(replace(SPEC, params=params), FakeLM(WORDS, FACTS)).tuples] == [
        ("paris", "france")
    ]


def test_entity_keeps_likeliest_casing():
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
        ("ısı", []),  # title case "Isı" is also the title case of "isı"
        ("ß" * 200, []),  # title case exceeds the maximum entity length by one character
    ],
)
def test_spellings_are_original_lower_and_title_case(entity, others):
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


def test_same_spec_gives_same_result(tmp_path):
    folder = str(tiny_bert(tmp_path))
    spec = replace(SPEC, setting="multi", params=HarvestParams(candidates=10))

    assert harvest(spec, load(folder)) == harvest(spec, load(folder))


def test_progress_reports_stages_and_may_cancel(tmp_path):
    stages = []
    harvest(SPEC, FakeLM(WORDS, FACTS), lambda progress: stages.append(progress.stage))
    assert list(dict.fromkeys(stages)) == ["weights", "search", "rescore"]

    def cancel(progress):
        raise Cancelled("The harvest was cancelled.")

    with pytest.raises(Cancelled):
        harvest(SPEC, FakeLM(WORDS, FACTS), cancel)


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
def test_bad_input_raises_descriptive_error(changes, error, sentence):
    with pytest.raises(error, match=sentence):
        harvest(replace(SPEC, **changes), FakeLM(WORDS, FACTS))


def test_unencodable_seed_entity_raises_bad_seed(tmp_path):
    spec = replace(SPEC, seed_tuples=(("paris", "france"), ("東京", "日本")))

    with pytest.raises(BadSeed, match="東京"):
        harvest(spec, load(str(tiny_bert(tmp_path))))


def test_too_long_prompt_raises_bad_prompt(tmp_path):
    spec = replace(SPEC, initial_prompts=("<ENT0> is the " + "capital " * 60 + "of <ENT1> .",))

    with pytest.raises(BadPrompt, match="maximum of 40"):
        harvest(spec, load(str(tiny_bert(tmp_path))))


def test_prompt_too_long_with_long_entities_is_refused_before_search(tmp_path):
    # 40 tokens with one-token entities, 42 with two-token entities.
    prompt = "<ENT0> is the " + "capital " * 33 + "<ENT1>"
    events = []
    spec = replace(SPEC, initial_prompts=(prompt,), params=HarvestParams(candidates=3))
    lm = load(str(tiny_bert(tmp_path)))

    with pytest.raises(BadPrompt, match="maximum of 40"):
        harvest(spec, lm, events.append)

    assert events == []


def test_too_long_existing_prompts_are_skipped_with_notice(tmp_path):
    long, short = "<ENT0> is the " + "capital " * 60 + "of <ENT1> .", "<ENT0> is the capital of <ENT1> ."
    lm = load(str(tiny_bert(tmp_path)))
    spec = replace(SPEC, setting="multi", prompts=(long, short))

    result = harvest(spec, lm)

    assert [prompt.text for prompt in result.prompts] == [short]
    assert "1 of 2 existing prompts were skipped" in result.notice
    with pytest.raises(BadPrompt, match="maximum of 40 tokens"):
        harvest(replace(spec, prompts=(long,)), lm)


def test_notice_reports_missing_paraphrases():
    lm = FakeLM(WORDS, FACTS)
    openings = (
        "sits",
        "rules from there:",
        "governs",
        "has a seat named after",
        "depends upon",
        "reports",
        "k",
        "w",
        "x",
    )

    class Scripted(Paraphraser):
        def __init__(self, n):
            self._n = n

        def paraphrase(self, sentence, entities):
            return [f"{entities[1]} {opening * 9} {entities[0]} ." for opening in openings[: self._n]]

    alone, few, enough = (
        harvest(replace(SPEC, setting="multi"), lm, paraphraser=Scripted(n)) for n in (0, 1, len(openings))
    )

    assert "No paraphrases of the initial prompts were found" in alone.notice
    assert "are missing: 2 of 10 prompts were used" in few.notice
    assert alone.codes[0] == few.codes[0] == "few_paraphrases"
    assert len(enough.prompts) == 10
    assert enough.notice is None
    assert "few_paraphrases" not in enough.codes


def test_existing_prompt_too_long_with_seeds_is_skipped(tmp_path):
    lm = load(str(tiny_bert(tmp_path)))
    short = "<ENT0> is the capital of <ENT1> ."
    long = "<ENT0> is the " + "capital " * 33 + "<ENT1>"  # 40 tokens with one-token entities
    seeds = (("paris capital capital capital", "france"), *SPEC.seed_tuples)
    params = HarvestParams(candidates=3, max_entity_tokens=1)
    spec = replace(SPEC, setting="multi", prompts=(long, short), params=params)

    assert [prompt.text for prompt in harvest(replace(spec, seed_tuples=seeds), lm).prompts] == [short]
    assert {prompt.text for prompt in harvest(spec, lm).prompts} == {short, long}


def test_duplicate_prompt_counts_once():
    spec = replace(SPEC, initial_prompts=SPEC.initial_prompts * 2)

    assert [prompt.weight for prompt in harvest(spec, FakeLM(WORDS, FACTS)).prompts] == [1.0]


def test_out_of_memory_in_head_halves_rows(monkeypatch):
    class SmallMemory(FakeLM):
        def logits(self, vectors):
            if len(vectors) > 1:
                raise torch.OutOfMemoryError
            return vectors

    assert harvest(SPEC, SmallMemory(WORDS, FACTS)) == harvest(SPEC, FakeLM(WORDS, FACTS))


def test_head_exceeding_memory_raises_broken_model():
    class NoMemory(FakeLM):
        def logits(self, vectors):
            raise torch.OutOfMemoryError

    with pytest.raises(BrokenModel, match="head does not fit into memory"):
        harvest(SPEC, NoMemory(WORDS, FACTS))


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


def test_rank_keeps_best_tuples_within_cap():
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
        ({"order": "score"}, "Unknown order 'score'. Choose mtl or consistency."),
        ({"disabled_filters": frozenset({"stopword"})}, "filter 'stopword'"),
    ],
)
def test_invalid_parameters_raise_descriptive_error(params, sentence):
    with pytest.raises(EngineError, match=sentence):
        HarvestParams(**params)


@pytest.mark.parametrize("setting", ["human", "top1"])
def test_nan_logits_raise_broken_model(setting):
    class NaNLM(FakeLM):
        def logits(self, vectors):
            return vectors * float("nan")

    with pytest.raises(BrokenModel, match="weights are damaged"):
        harvest(replace(SPEC, setting=setting, prompts=SPEC.initial_prompts), NaNLM(WORDS, FACTS))


def test_scores_are_unnormalized_nats():
    best = harvest(SPEC, FakeLM(WORDS, FACTS)).tuples[0]

    # 2/3 (log .4 + log .9) + 1/3 log .4
    assert best == ScoredTuple(("paris", "france"), ("paris", "france"), best.score, best.mtl)
    assert best.score == pytest.approx(-0.98654, abs=1e-4)
    assert best.mtl == pytest.approx(-0.91629, abs=1e-4)
