"""Registry of prompt-learning methods."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import resolve_name

import pytest

from kgharvest.contrib.probing.prompt_learning.registry import (
    BUDGET_FIELDS,
    DEFAULT_METHODS,
    METHODS,
    PRESETS,
    LearningBudget,
    preset_values,
    systems_with,
)
from kgharvest.engine.types import EngineError


def test_registry_import_does_not_load_torch():
    code = "import kgharvest.contrib.probing.prompt_learning.registry, sys; print('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_methods_name_existing_learners_and_parameters(method):
    assert callable(resolve_name(method.learner))
    assert {*method.parameters, *method.needs} <= set(BUDGET_FIELDS)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_presets_set_every_option_of_every_method(method, preset):
    assert set(LearningBudget(preset=preset).of(method)) == set(method.parameters)


def test_explicit_values_override_preset_if_method_has_option():
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


def test_unknown_preset_is_refused():
    with pytest.raises(EngineError, match="Choose from small, paper"):
        LearningBudget(preset="large")


def test_systems_and_preset_values_are_formatted():
    assert systems_with("iterations") == "AutoPrompt"
    assert systems_with("epochs") == "soft prompts, fine-tuning, and BERTese"
    assert systems_with("seed") == "AutoPrompt, soft prompts, fine-tuning, and BERTese"
    assert preset_values("iterations") == "small: 150; paper: 1000"
    assert preset_values("epochs") == "small: 16 or 48; paper: 16 or 5"
    assert preset_values("seed") == ""


def test_default_methods_are_the_cheap_ones():
    assert DEFAULT_METHODS == ("majority", "manual", "lpaqa")


def test_baselines_lead_from_deep_prompts_to_initial_prompts():
    """The rows of Qin & Eisner (2021), Table 5: before learning, soft, deep."""
    chains = {}
    for method in METHODS.values():
        chain = [method.name]
        while chain[-1] != "manual":
            chain.append(METHODS[chain[-1]].baseline)
        chains[method.name] = chain[1:]

    assert chains["soft-deep-mined"] == ["soft-mined", "mixture-mined", "manual"]
    assert chains["soft-deep-manual"] == ["soft-manual", "manual"]
    assert chains["soft-deep"] == ["soft", "mixture", "manual"]
    assert chains["soft-data-dependent"] == ["mixture", "manual"]
    assert chains["bertese"] == ["manual"]
