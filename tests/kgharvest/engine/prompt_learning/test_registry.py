"""The registry of prompt-learning methods."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import resolve_name

import pytest

from kgharvest.engine.prompt_learning.registry import (
    BUDGET_FIELDS,
    DEFAULT_METHODS,
    METHODS,
    PRESETS,
    LearningBudget,
    preset_values,
    systems_with,
)
from kgharvest.engine.types import EngineError


def test_importing_the_registry_loads_no_torch():
    code = "import kgharvest.engine.prompt_learning.registry, sys; print('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_every_method_names_a_learner_and_parameters_that_there_are(method):
    assert callable(resolve_name(method.learner))
    assert {*method.parameters, *method.needs} <= set(BUDGET_FIELDS)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_every_preset_sets_every_option_of_every_method(method, preset):
    assert set(LearningBudget(preset=preset).of(method)) == set(method.parameters)


def test_what_is_given_takes_the_place_of_a_preset_where_a_method_has_it():
    budget = LearningBudget(preset="paper", batch_size=8, mask_weight=0.0)

    # Haviv et al. (2021), section 4; Qin & Eisner (2021), section 4.
    assert budget.of(METHODS["bertese"]) == {
        "learning_rate": 1e-5,
        "batch_size": 8,
        "epochs": 5,
        "distance_weight": 0.3,
        "mask_weight": 0.0,
        "seed": 0,
    }
    assert budget.of(METHODS["soft"]) == {"learning_rate": 1e-3, "batch_size": 8, "epochs": 16, "seed": 0}
    assert budget.of(METHODS["manual"]) == {}


def test_a_preset_that_there_is_not_gets_a_sentence():
    with pytest.raises(EngineError, match="Choose from small, paper"):
        LearningBudget(preset="large")


def test_systems_and_values_are_named_as_a_phrase():
    assert systems_with("iterations") == "AutoPrompt"
    assert systems_with("epochs") == "soft prompts and BERTese"
    assert systems_with("seed") == "AutoPrompt, soft prompts and BERTese"
    assert preset_values("iterations") == "small: 150; paper: 1000"
    assert preset_values("epochs") == "small: 16 or 48; paper: 16 or 5"
    assert preset_values("seed") == ""


def test_a_probe_that_names_no_methods_compares_the_cheap_ones():
    assert DEFAULT_METHODS == ("majority", "manual", "lpaqa")
