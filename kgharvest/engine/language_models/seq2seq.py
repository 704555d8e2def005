"""Encoder-decoder models that rewrite a text (T5, BART, PEGASUS): for paraphrasing, not for harvesting."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from kgharvest.engine.language_models.devices import check_device, move
from kgharvest.engine.language_models.loading import load_config, load_part
from kgharvest.engine.types import UnsupportedModel

SPARE_TOKENS = 20  # how much longer than twice the input an output may be
TOP_P = 0.95


class Seq2SeqModel:
    """A text-to-text model and its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self.name = name
        self._model, self._tokenizer = model, tokenizer

    def beam(self, text: str, n: int) -> list[str]:
        """Return the `n` best outputs of a beam search, best first."""
        return self._generate(text, num_beams=n, num_return_sequences=n, do_sample=False)

    def sample(self, text: str, n: int, seed: int) -> list[str]:
        """Return `n` outputs drawn with `seed`; torch's own random state is left as it was."""
        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            return self._generate(text, num_beams=1, num_return_sequences=n, do_sample=True, top_p=TOP_P)

    @torch.inference_mode()
    def _generate(self, text: str, **how: Any) -> list[str]:
        inputs = self._tokenizer(text, return_tensors="pt", truncation=True).to(self._model.device)
        most = 2 * inputs.input_ids.shape[1] + SPARE_TOKENS
        outputs = self._model.generate(
            input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=most, **how
        )  # (n, T)
        return [text.strip() for text in self._tokenizer.batch_decode(outputs, skip_special_tokens=True)]


def load_seq2seq(name: str, revision: str | None = None, device: str = "cpu") -> Seq2SeqModel:
    """Return the text-to-text model `name` (a hub id or a local folder).

    Raises ModelNotFound, UnsupportedModel, BrokenModel if it does not fit on the device, or EngineError for a device
    that is not there.
    """
    check_device(device)
    config = load_config(name, revision)
    if not config.is_encoder_decoder:
        raise UnsupportedModel(
            f"The model {name!r} is of type {config.model_type}, which does not rewrite texts; "
            "name an encoder-decoder model trained to paraphrase (T5, BART, PEGASUS)."
        )
    tokenizer = load_part(AutoTokenizer, name, revision)
    model = load_part(AutoModelForSeq2SeqLM, name, revision)
    return Seq2SeqModel(move(model.eval().requires_grad_(False), device, name), tokenizer, name)
