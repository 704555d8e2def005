"""Choice of the paraphraser from settings, and back-translation."""

from __future__ import annotations

import pytest

from kgharvest.engine.prompts.creation import TranslationParaphraser, make_paraphraser
from kgharvest.engine.types import EngineError, ParaphraserSettings
from tests.kgharvest.engine.prompts.fake_lm import FakeLM

LM = FakeLM(["mask", "virus"])


def test_default_paraphraser_is_offline() -> None:
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
    ("settings", "message"),
    [
        (ParaphraserSettings("parrot"), "paraphraser 'parrot'. Choose one of offline, chat, seq2seq, translation"),
        (ParaphraserSettings("chat", base_url="http://127.0.0.1/v1"), "The chat paraphraser requires a model"),
        (ParaphraserSettings("chat", model="gpt-x"), "address is not an http"),
        (ParaphraserSettings("translation", model="en-de"), "requires two models, OUT,BACK, but got 'en-de'"),
        (ParaphraserSettings("seq2seq"), "The seq2seq paraphraser requires a model"),
    ],
)
def test_invalid_paraphraser_settings_are_refused(settings: ParaphraserSettings, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        make_paraphraser(settings, LM)


class Dictionary:
    """Fake translator with predefined outputs and log-probabilities."""

    def __init__(self, **outputs: list[tuple[str, float]]):
        self._outputs = outputs

    def beam_with_logprobs(self, text: str, n: int) -> list[tuple[str, float]]:
        return self._outputs[text][:n]


def test_back_translations_are_ranked_by_likeliest_path() -> None:
    paraphraser = TranslationParaphraser("en-de,de-en")
    outward = Dictionary(cat=[("Katze", -1.0), ("Kater", -2.0)])
    back = Dictionary(Katze=[("cat", -0.1), ("kitty", -3.0), ("puss", -2.5)], Kater=[("tomcat", -0.5), ("kitty", -1.0)])
    paraphraser._models = (outward, back)

    # tomcat -2.5; kitty -3 through Kater (-4 through Katze); puss -3.5; "cat" is the input.
    assert paraphraser.paraphrase("cat", []) == ["tomcat", "kitty", "puss"]
