"""The registry of prompt-learning methods."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kgharvest.engine.prompt_learning.registry import BUDGET_FIELDS, DEFAULT_METHODS, METHODS, systems_with


def test_importing_the_registry_loads_no_torch():
    code = "import kgharvest.engine.prompt_learning.registry, sys; print('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_every_method_names_a_learner_and_parameters_that_there_are(method):
    assert callable(method.load_learner())
    assert {*method.parameters, *method.needs} <= set(BUDGET_FIELDS)


def test_systems_are_named_as_a_phrase():
    assert systems_with("iterations") == "AutoPrompt"
    assert systems_with("epochs") == "soft prompts and BERTese"
    assert systems_with("seed") == "AutoPrompt, soft prompts and BERTese"


def test_a_probe_that_names_no_methods_compares_the_cheap_ones():
    assert DEFAULT_METHODS == ("majority", "manual", "lpaqa")
