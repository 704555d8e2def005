"""Paraphrasers: what prompt creation asks of them, and which one a harvest gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.prompts.paraphrasers.chat import ChatEndpoint, ChatParaphraser
from kgharvest.engine.prompts.paraphrasers.offline import OfflineParaphraser
from kgharvest.engine.prompts.paraphrasers.seq2seq import Seq2SeqParaphraser
from kgharvest.engine.types import EngineError, ParaphraserSettings


class Paraphraser(Protocol):
    """Says a sentence in other words. `name` goes into the harvest's record."""

    name: str

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        """Return other sentences of the same meaning, best first, that should contain each of `entities` once.

        What breaks that promise is dropped by the caller. Raises EngineError when the paraphraser cannot work at all.
        """


def default_paraphraser(lm: LanguageModel) -> Paraphraser:
    """Return the paraphraser that needs nothing but the harvest's own LM."""
    return OfflineParaphraser(lm)


def from_settings(settings: ParaphraserSettings, lm: LanguageModel) -> Paraphraser:
    """Return the paraphraser that `settings` describe. Raises EngineError for an unknown kind or a missing model."""
    if settings.kind not in MAKERS:
        raise EngineError(f"There is no paraphraser {settings.kind!r}; choose one of {', '.join(MAKERS)}.")
    if settings.kind != "offline" and not settings.model:
        raise EngineError(f"The {settings.kind} paraphraser needs a model; name one in its settings.")
    return MAKERS[settings.kind](settings, lm)


def chat_paraphraser(settings: ParaphraserSettings, lm: LanguageModel) -> Paraphraser:
    limits = {"max_calls": settings.max_calls, "max_tokens": settings.max_tokens}
    return ChatParaphraser(ChatEndpoint(settings.base_url, settings.model, **limits))


def seq2seq_paraphraser(settings: ParaphraserSettings, lm: LanguageModel) -> Paraphraser:
    return Seq2SeqParaphraser(settings.model, prefix=settings.prefix, seed=settings.seed)


MAKERS: dict[str, Callable[[ParaphraserSettings, LanguageModel], Paraphraser]] = {
    "offline": lambda settings, lm: default_paraphraser(lm),
    "chat": chat_paraphraser,
    "seq2seq": seq2seq_paraphraser,
}
