"""The registry of settings."""

from pkgutil import resolve_name

import pytest

from kgharvest.engine.settings import SETTINGS, WITHOUT_LEARNING, find_setting
from kgharvest.engine.types import EngineError


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_setting_names_the_function_that_obtains_its_prompts(setting):
    assert callable(resolve_name(setting.strategy))


def test_settings_that_learn_nothing_work_with_every_lm_and_are_quick():
    assert WITHOUT_LEARNING == ("human", "top1", "multi")


def test_an_unknown_setting_is_refused_with_those_there_are():
    with pytest.raises(EngineError, match=r"Unknown setting 'manual'. Choose one of human, top1, multi, lpaqa, "):
        find_setting("manual")
