"""Prompt learning with low-precision LM weights: results stay close, because learned values are kept in float32."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from kgharvest.contrib.probing.prompt_learning.learners import ProbeTask, learn
from kgharvest.contrib.probing.prompt_learning.registry import METHODS, LearningBudget
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.probing import probe
from kgharvest.engine.types import UnsupportedModel
from tests.sampling import every

LEARNED = [name for name, method in METHODS.items() if method.parameters]
BUDGET = LearningBudget(iterations=4, epochs=2, triggers=3)


FORMATS = ["bfloat16", "float16"]


@pytest.fixture(scope="module", params=FORMATS)
def coarse_lm(request):
    return load_compact(EMBEDDED_LMS["embedded-small"], dtype=request.param)


@pytest.mark.parametrize(("coarse_lm", "method"), every(5, product(FORMATS, LEARNED)), indirect=["coarse_lm"])
@pytest.mark.parametrize("relation", ["made_of"], indirect=True)
def test_methods_learn_nearly_the_same_as_in_float32(relation, coarse_lm, method):
    prompts, parts = tuple(relation.prompts), (relation.train, relation.dev, relation.test)
    origins = {"mined": prompts[:1], "paraphrased": prompts[1:]}
    task = ProbeTask("made_of", prompts[0], prompts, *parts, origins=origins)

    exact, coarse = (
        probe(learn(lm, method, [task], BUDGET)[0].answerer, relation.test) for lm in (relation.lm, coarse_lm)
    )

    assert coarse.nll == pytest.approx(exact.nll, abs=0.02)


def test_trainable_copy_is_float32(coarse_lm):
    assert {weights.dtype for weights in coarse_lm.trainable_encoder().parameters()} == {torch.float32}


def test_quantized_lm_has_no_trainable_copy(coarse_lm, monkeypatch):
    layer = next(module for module in coarse_lm._network.modules() if isinstance(module, torch.nn.Linear))
    monkeypatch.setitem(layer._parameters, "weight", torch.nn.Parameter(torch.zeros(1, dtype=torch.int8), False))

    with pytest.raises(UnsupportedModel, match="are quantized"):
        coarse_lm.trainable_encoder()
