"""Tiny LMs, loaded once per session through the public `load` function. `family` parametrizes most LM tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.loading import load
from tests.kgharvest.engine import tiny_models
from tests.kgharvest.engine.tiny_types import TYPES, tiny_of_type

MASKED = ("bert", "distilbert", "albert", "roberta", "xlm_roberta", "modernbert")
FILLING = (*MASKED, "bart")
CAUSAL = ("gpt2", "llama", "gemma", "qwen3_moe")


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a tiny LM of a family, e.g. `folder_of("bert")`."""

    @cache
    def build(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        return tiny_of_type(family, folder) if family in TYPES else getattr(tiny_models, f"tiny_{family}")(folder)

    return build


@pytest.fixture(scope="session")
def tiny(folder_of: Callable[[str], Path]) -> Callable[[str], LanguageModel]:
    """Return the loaded tiny LM of a family."""
    return cache(lambda family: load(str(folder_of(family))))


@pytest.fixture(params=(*FILLING, *CAUSAL))
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def lm(family: str, tiny: Callable[[str], LanguageModel]) -> LanguageModel:
    return tiny(family)
