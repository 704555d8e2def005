"""Registry of harvest settings."""

from pkgutil import resolve_name

import pytest

from kgharvest.engine.settings import SETTINGS, WITHOUT_LEARNING, find_setting
from kgharvest.engine.types import EngineError


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_setting_has_a_prompt_strategy(setting):
    assert callable(resolve_name(setting.strategy))


def test_settings_without_learning_are_human_top1_multi():
    assert WITHOUT_LEARNING == ("human", "top1", "multi")


def test_unknown_setting_error_lists_choices():
    with pytest.raises(EngineError, match=r"Unknown setting 'manual'. Choose one of human, top1, multi, lpaqa, "):
        find_setting("manual")
