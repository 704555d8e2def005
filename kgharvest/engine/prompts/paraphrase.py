"""Paraphrasers: their interface, registry, and the implementations based on encoder-decoder models."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Protocol

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.prompts.paraphrasers.chat import ChatEndpoint, ChatParaphraser
from kgharvest.engine.prompts.paraphrasers.offline import OfflineParaphraser
from kgharvest.engine.types import EngineError, ParaphraserKind, ParaphraserSettings

if TYPE_CHECKING:
    from kgharvest.engine.language_models.encoder_decoder import Seq2SeqModel

PARAPHRASES_PER_CALL = 10


class Paraphraser(Protocol):
    """Rewords a sentence. `name` is stored with the harvest."""

    name: str

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return other sentences of the same meaning, best first.

        Each should contain each of `entities` once; the caller discards other sentences. Raises EngineError if the
        paraphraser fails.
        """

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return sentences that contain this one unchanged, best first. Used if there are too few paraphrases."""


class Seq2SeqParaphraser:
    """Paraphraser based on an encoder-decoder model, given by hub id or folder and loaded at the first call.

    prefix: text that the model expects before the sentence, such as "paraphrase: " for T5 paraphrasers.
    seed: sampling seed; equal sentences get equal samples. None: the best results of a beam search.
    """

    def __init__(
        self,
        model: str,
        revision: str | None = None,
        prefix: str = "",
        seed: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.name = f"seq2seq:{model}"
        self._model_name, self._revision, self._device = model, revision, device
        self._prefix, self._seed = prefix, seed

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        text = self._prefix + sentence
        if self._seed is None:
            outputs = self._model.beam(text, PARAPHRASES_PER_CALL)
        else:
            outputs = self._model.sample(text, PARAPHRASES_PER_CALL, zlib.crc32(text.encode()) ^ self._seed)
        return [output for output in dict.fromkeys(outputs) if output and output != sentence]

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        return []

    @cached_property
    def _model(self) -> Seq2SeqModel:
        # transformers takes seconds to import, and the other paraphrasers do not need it.
        from kgharvest.engine.language_models.loading import load_seq2seq

        return load_seq2seq(self._model_name, self._revision, self._device)


class TranslationParaphraser:
    """Paraphraser that translates a sentence to another language and back (LPAQA: Jiang et al. 2020, section 3.2).

    models: hub ids or folders of two encoder-decoders, OUT,BACK, loaded at the first call. Each of BEAM translations is
        translated back in BEAM ways. The most likely round trips come first.
    """

    BEAM = 7  # as in LPAQA's code

    def __init__(self, models: str, device: str = "cpu") -> None:
        out_name, _, back_name = (name.strip() for name in models.partition(","))
        if not out_name or not back_name:
            raise EngineError(f"The translation paraphraser requires two models, OUT,BACK, but got {models!r:.80}.")
        self.name = f"translation:{out_name},{back_name}"
        self._names, self._device = (out_name, back_name), device

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        out_model, back_model = self._models
        likeliest: dict[str, float] = {}
        for translation, out in out_model.beam_with_logprobs(sentence, self.BEAM):
            for text, home in back_model.beam_with_logprobs(translation, self.BEAM):
                likeliest[text] = max(out + home, likeliest.get(text, -inf))
        return sorted(likeliest.keys() - {"", sentence}, key=lambda text: (-likeliest[text], text))

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        return []

    @cached_property
    def _models(self) -> tuple[Seq2SeqModel, Seq2SeqModel]:
        from kgharvest.engine.language_models.loading import load_seq2seq

        out_name, back_name = self._names
        return load_seq2seq(out_name, None, self._device), load_seq2seq(back_name, None, self._device)


PARAPHRASERS: dict[ParaphraserKind, Callable[[ParaphraserSettings, LanguageModel], Paraphraser]] = {
    "offline": lambda settings, lm: OfflineParaphraser(lm),
    "chat": lambda settings, lm: ChatParaphraser(
        ChatEndpoint(settings.base_url, settings.model, max_calls=settings.max_calls, max_tokens=settings.max_tokens)
    ),
    "seq2seq": lambda settings, lm: Seq2SeqParaphraser(settings.model, prefix=settings.prefix, seed=settings.seed),
    "translation": lambda settings, lm: TranslationParaphraser(settings.model),
}


def make_paraphraser(settings: ParaphraserSettings, lm: LanguageModel) -> Paraphraser:
    """Return the paraphraser of `settings`. Raises EngineError for an unknown kind or a missing model."""
    if settings.kind not in PARAPHRASERS:
        raise EngineError(f"Unknown paraphraser {settings.kind!r}. Choose one of {', '.join(PARAPHRASERS)}.")
    if settings.kind != "offline" and not settings.model:
        raise EngineError(f"The {settings.kind} paraphraser requires a model. Set it in the paraphraser settings.")
    return PARAPHRASERS[settings.kind](settings, lm)
