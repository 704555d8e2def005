"""A paraphraser made of a Hugging Face encoder-decoder model that was trained to paraphrase."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgharvest.engine.language_models.seq2seq import Seq2SeqModel

PARAPHRASES_PER_CALL = 10


class Seq2SeqParaphraser:
    """Rewrites with a model named by hub id or folder, loaded at the first call.

    prefix: what the model expects before the sentence; T5 paraphrasers often want "paraphrase: ".
    seed: draws samples, the same for the same sentence; None takes the best of a beam search.
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

    @cached_property
    def _model(self) -> Seq2SeqModel:
        # Imported here because transformers takes seconds to load and the other paraphrasers do without it.
        from kgharvest.engine.language_models.seq2seq import load_seq2seq

        return load_seq2seq(self._model_name, self._revision, self._device)
