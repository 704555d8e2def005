"""Serialization of shared harvests is exact to the bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kgharvest.engine.harvest import harvest, harvest_prepared, prepare, question_of
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts import strategies
from kgharvest.engine.types import HarvestParams, HarvestSpec
from kgharvest.harvests.parts import serialization
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta

SPEC = HarvestSpec(
    relation="capital_of",
    initial_prompts=("<ENT0> is the capital of <ENT1> .",),
    prompts=("<ENT0> is the capital of <ENT1> .", "<ENT1> is a place for <ENT0>"),
    seed_tuples=(("paris", "france"), ("rome", "italy")),
    setting="multi",
    params=HarvestParams(candidates=15, disabled_filters=frozenset({"short", "one_letter_word"})),
)


@pytest.mark.parametrize(
    ("make", "setting", "order"),
    [
        (tiny_roberta, "multi", "mtl"),
        (tiny_bert, "top1", "mtl"),
        (tiny_bert, "soft", "mtl"),
        (tiny_roberta, "multi", "consistency"),
    ],
)
def test_serialized_harvest_gives_identical_results(tmp_path, monkeypatch, make, setting, order):
    monkeypatch.setattr(strategies, "SOFT_PARAMS", replace(strategies.SOFT_PARAMS, epochs=2))
    folder, spec = str(make(tmp_path)), replace(SPEC, setting=setting, params=replace(SPEC.params, order=order))
    lm, other = load(folder), load(folder)
    alone = harvest(spec, lm)
    content = serialization.write_prepared(prepare(spec, lm), spec.params)
    prepared, params = serialization.read_prepared(content)

    def share(stage, parts, do):
        written = [serialization.write_part(part) for part in parts]
        results = [
            serialization.write_result(
                serialization.read_part(part).do(other, question_of(prepared, params), lambda n_done: None)
            )
            for part in written
        ]
        return [serialization.read_result(result) for result in results]

    assert params == spec.params
    shared = harvest_prepared(prepared, params, lm, share)
    assert shared == alone
    assert repr(shared.tuples) == repr(alone.tuples)  # repr shows every bit of a float
