"""Prompt sets in a form that can be stored, and back."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.language_models.soft_words import SoftWords
from kgharvest.engine.prompts.prompt_set import Combine, PromptSet


class KeptPrompt(NamedTuple):
    """One prompt of a set. segments: -1 - i stands for its soft word i.

    vectors: empty without soft words, else float32 (s, 1 + L, d) in numpy's .npy format: of each soft word its vector,
    then what is added to it at each of L levels.
    """

    segments: tuple[TokenIds, ...]
    slots: tuple[int, ...]
    weight: float
    vectors: bytes


def kept(lm: MaskedLM, prompt_set: PromptSet) -> list[KeptPrompt]:
    """Return the prompts in their order. The inverse is `restored`."""
    return [
        _kept(lm, prompt, weight, prompt_set.soft_words)
        for prompt, weight in zip(prompt_set.prompts, prompt_set.weights, strict=True)
    ]


def _kept(lm: MaskedLM, prompt: EncodedPrompt, weight: float, soft_words: SoftWords | None) -> KeptPrompt:
    soft = [token for segment in prompt.segments for token in segment if token >= lm.vocab_size]
    own = {token: -1 - place for place, token in enumerate(dict.fromkeys(soft))}
    segments = tuple(tuple(own.get(token, token) for token in segment) for segment in prompt.segments)
    vectors = b"" if soft_words is None else _packed(soft_words, [token - lm.vocab_size for token in own])
    return KeptPrompt(segments, prompt.slots, weight, vectors)


def _packed(soft_words: SoftWords, places: list[int]) -> bytes:
    levels = [soft_words.vectors[places, None]]  # (s, 1, d)
    if soft_words.deltas is not None:
        levels.append(soft_words.deltas[places])  # (s, L, d)
    buffer = io.BytesIO()
    np.save(buffer, torch.cat(levels, dim=1).float().cpu().numpy(), allow_pickle=False)
    return buffer.getvalue()


def unpacked(vectors: bytes) -> NDArray[np.float32]:
    """Return (s, 1 + L, d), see `KeptPrompt`."""
    array: NDArray[np.float32] = np.load(io.BytesIO(vectors), allow_pickle=False)
    return array


def restored(
    lm: MaskedLM, prompts: Sequence[KeptPrompt], combine: Combine, temperature: float | None = None
) -> PromptSet:
    """Return the prompt set that `kept` took apart; `lm` is the one that it was learned for."""
    vectors = [unpacked(prompt.vectors) for prompt in prompts if prompt.vectors]
    places = count(lm.vocab_size)
    encoded = []
    for prompt in prompts:
        soft = sorted({token for segment in prompt.segments for token in segment if token < 0}, reverse=True)
        ids = {token: next(places) for token in soft}
        segments = tuple(tuple(ids.get(token, token) for token in segment) for segment in prompt.segments)
        encoded.append(EncodedPrompt(segments, prompt.slots))
    weights = tuple(prompt.weight for prompt in prompts)
    soft_words = _soft_words(torch.from_numpy(np.concatenate(vectors)).to(lm.device)) if vectors else None
    return PromptSet(tuple(encoded), weights, combine, soft_words, temperature)


def _soft_words(levels: torch.Tensor) -> SoftWords:
    """Return the soft words of `levels` (S, 1 + L, d)."""
    return SoftWords(levels[:, 0], levels[:, 1:] if levels.shape[1] > 1 else None)
