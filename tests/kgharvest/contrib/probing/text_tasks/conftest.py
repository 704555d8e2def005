"""LM fixtures for the tests of text tasks."""

from __future__ import annotations

import pytest

from kgharvest.engine.language_models.loading import load
from tests.kgharvest.contrib.probing.text_tasks import reading_models
from tests.kgharvest.engine.conftest import tiny_lm  # noqa: F401 - a fixture
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_roberta
from tests.made_once import made_once


@pytest.fixture(scope="package", params=["wordpiece", pytest.param("byte-level", marks=pytest.mark.exhaustive)])
def reading_lm(request, shared_folder):
    """Load an LM trained to read (see `reading_models`), one for each kind of tokenizer."""
    build = tiny_bert if request.param == "wordpiece" else tiny_roberta
    folder = made_once(
        shared_folder / f"reading-{request.param}",
        lambda new: reading_models.teach(build(new, words=reading_models.WORDS)),
    )
    return load(str(folder))
