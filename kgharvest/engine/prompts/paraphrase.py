"""Paraphrasers: what prompt creation asks of them, and which one a harvest gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.prompts.paraphrasers.offline import OfflineParaphraser


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
