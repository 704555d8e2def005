"""Which paraphraser a harvest gets."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.paraphrase import make_paraphraser
from kgharvest.engine.types import EngineError, ParaphraserSettings
from tests.kgharvest.engine.prompts.fake_lm import FakeLM

LM = FakeLM(["mask", "virus"])


def test_the_default_is_offline() -> None:
    assert make_paraphraser(ParaphraserSettings(), LM).name == "offline"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (ParaphraserSettings("chat", model="gpt-x", base_url="http://127.0.0.1:9/v1"), "chat:gpt-x"),
        (ParaphraserSettings("seq2seq", model="t5", seed=3), "seq2seq:t5"),
    ],
)
def test_settings_choose_the_paraphraser(settings: ParaphraserSettings, name: str) -> None:
    assert make_paraphraser(settings, LM).name == name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ParaphraserSettings("parrot"), "no paraphraser 'parrot'; choose one of offline, chat, seq2seq"),
        (ParaphraserSettings("chat", base_url="http://127.0.0.1/v1"), "The chat paraphraser needs a model"),
        (ParaphraserSettings("chat", model="gpt-x"), "address is no http"),
        (ParaphraserSettings("seq2seq"), "The seq2seq paraphraser needs a model"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: ParaphraserSettings, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        make_paraphraser(settings, LM)
