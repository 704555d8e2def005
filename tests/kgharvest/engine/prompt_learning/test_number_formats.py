"""What is learned does not depend much on the number format of the LM's weights, as it is itself kept in float32."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.probing import probe
from kgharvest.engine.prompt_learning.learners import ProbeTask, learn
from kgharvest.engine.prompt_learning.registry import METHODS, LearningBudget
from kgharvest.engine.types import UnsupportedModel
from tests.sampling import every

LEARNED = [name for name, method in METHODS.items() if method.parameters]
BUDGET = LearningBudget(iterations=4, epochs=2, triggers=3)


FORMATS = ["bfloat16", "float16"]


@pytest.fixture(scope="module", params=FORMATS)
def coarse_lm(request):
    return load_compact(EMBEDDED_LMS["embedded-small"], dtype=request.param)


@pytest.mark.parametrize(("coarse_lm", "method"), every(2, product(FORMATS, LEARNED)), indirect=["coarse_lm"])
@pytest.mark.parametrize("known", ["made_of"], indirect=True)
def test_methods_learn_nearly_what_they_learn_in_float32(known, coarse_lm, method):
    task = ProbeTask("made_of", known.prompts[0], tuple(known.prompts), known.train, known.dev, known.test)

    exact, coarse = (probe(learn(lm, method, [task], BUDGET)[0].answerer, known.test) for lm in (known.lm, coarse_lm))

    assert coarse.nll == pytest.approx(exact.nll, abs=0.02)


def test_the_copy_that_is_trained_is_in_float32(coarse_lm):
    assert {weights.dtype for weights in coarse_lm.trainable_encoder().parameters()} == {torch.float32}


def test_no_copy_of_a_quantized_lm_is_trained(coarse_lm, monkeypatch):
    layer = next(module for module in coarse_lm._network.modules() if isinstance(module, torch.nn.Linear))
    monkeypatch.setitem(layer._parameters, "weight", torch.nn.Parameter(torch.zeros(1, dtype=torch.int8), False))

    with pytest.raises(UnsupportedModel, match="are quantized"):
        coarse_lm.trainable_encoder()
