"""Which paraphraser a harvest gets."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.creation import TranslationParaphraser, make_paraphraser
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
        (ParaphraserSettings("translation", model="en-de, de-en"), "translation:en-de,de-en"),
    ],
)
def test_settings_choose_the_paraphraser(settings: ParaphraserSettings, name: str) -> None:
    assert make_paraphraser(settings, LM).name == name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ParaphraserSettings("parrot"), "paraphraser 'parrot'. Choose one of offline, chat, seq2seq, translation"),
        (ParaphraserSettings("chat", base_url="http://127.0.0.1/v1"), "The chat paraphraser requires a model"),
        (ParaphraserSettings("chat", model="gpt-x"), "address is not an http"),
        (ParaphraserSettings("translation", model="en-de"), "requires two models, OUT,BACK, but got 'en-de'"),
        (ParaphraserSettings("seq2seq"), "The seq2seq paraphraser requires a model"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: ParaphraserSettings, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        make_paraphraser(settings, LM)


class Dictionary:
    """A translator with some outputs and their log-probabilities."""

    def __init__(self, **outputs: list[tuple[str, float]]):
        self._outputs = outputs

    def beam_with_logprobs(self, text: str, n: int) -> list[tuple[str, float]]:
        return self._outputs[text][:n]


def test_translations_there_and_back_come_by_the_likeliest_way() -> None:
    paraphraser = TranslationParaphraser("en-de,de-en")
    there = Dictionary(cat=[("Katze", -1.0), ("Kater", -2.0)])
    back = Dictionary(Katze=[("cat", -0.1), ("kitty", -3.0), ("puss", -2.5)], Kater=[("tomcat", -0.5), ("kitty", -1.0)])
    paraphraser._models = (there, back)

    # tomcat -2.5; kitty -3 by Kater, where Katze would be -4; puss -3.5; "cat" is what was asked.
    assert paraphraser.paraphrase("cat", []) == ["tomcat", "kitty", "puss"]
