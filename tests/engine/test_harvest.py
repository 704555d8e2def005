"""The pipeline from a relation to ranked tuples, and what it says when it cannot."""

from dataclasses import replace

import pytest

from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.loading import load
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
from tests.engine.fakes import FakeLM
from tests.engine.tiny_models import tiny_bert, tiny_roberta

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

    assert [one.entities for one in result.tuples] == [("paris", "france"), ("rome", "italy"), ("berlin", "germany")]
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

    assert sum("paris" in one.entities for one in result.tuples) == 2


def test_max_tuples_keeps_the_best():
    params = replace(SPEC.params, max_tuples=1)

    assert [one.entities for one in harvest(replace(SPEC, params=params), FakeLM(WORDS, KNOWN)).tuples] == [
        ("paris", "france")
    ]


def test_surface_casing_is_chosen_by_score(tmp_path):
    lm = load(str(tiny_roberta(tmp_path)))
    spec = replace(
        SPEC, params=HarvestParams(candidates=20, max_entity_tokens=1, disabled_filters=frozenset({"short"}))
    )

    tuples = harvest(spec, lm).tuples

    surfaces = {word for one in tuples for word in one.surface}
    assert surfaces & {"Paris", "France", "Rome", "Italy", "Dog"}
    assert all(one.entities == tuple(word.casefold() for word in one.surface) for one in tuples)
    assert len({one.entities for one in tuples}) == len(tuples)


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
        ({"setting": "magic"}, EngineError, "no setting 'magic'"),
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

    with pytest.raises(BadPrompt, match="exceeds the 40"):
        harvest(spec, load(str(tiny_bert(tmp_path))))


def test_logits_that_are_nan_get_a_sentence():
    class NaNLM(FakeLM):
        def logits(self, vectors):
            return vectors * float("nan")

    with pytest.raises(BrokenModel, match="NaN"):
        harvest(SPEC, NaNLM(WORDS, KNOWN))


def test_scores_are_nats_and_never_normalised():
    best = harvest(SPEC, FakeLM(WORDS, KNOWN)).tuples[0]

    # 2/3 (log .4 + log .9) + 1/3 log .4
    assert best == ScoredTuple(("paris", "france"), ("paris", "france"), best.score, best.mtl)
    assert best.score == pytest.approx(-0.98654, abs=1e-4)
    assert best.mtl == pytest.approx(-0.91629, abs=1e-4)
