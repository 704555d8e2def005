"""Serialization of prompt sets and their soft words, and the text of prompts for display."""

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


class SerializedPrompt(NamedTuple):
    """One prompt of a set. In segments, -1 - i is its soft word i.

    vectors: empty without soft words, otherwise float32 (s, 1 + L, d) in numpy's .npy format: the vector of each soft
    word and its change at each of L levels.
    """

    segments: tuple[TokenIds, ...]
    slots: tuple[int, ...]
    weight: float
    vectors: bytes


def serialize(lm: MaskedLM, prompt_set: PromptSet) -> list[SerializedPrompt]:
    """Return the prompts in order. The inverse is `deserialize`."""
    serialized = []
    for prompt, weight in zip(prompt_set.prompts, prompt_set.weights, strict=True):
        soft = dict.fromkeys(token for segment in prompt.segments for token in segment if token >= lm.vocab_size)
        number = {token: -1 - index for index, token in enumerate(soft)}
        segments = tuple(tuple(number.get(token, token) for token in segment) for segment in prompt.segments)
        vectors = b""
        if prompt_set.soft_words is not None:
            vectors = _packed(prompt_set.soft_words, [token - lm.vocab_size for token in soft])
        serialized.append(SerializedPrompt(segments, prompt.slots, weight, vectors))
    return serialized


def _packed(soft_words: SoftWords, rows: list[int]) -> bytes:
    levels = [soft_words.vectors[rows, None]]  # (s, 1, d)
    if soft_words.deltas is not None:
        levels.append(soft_words.deltas[rows])  # (s, L, d)
    buffer = io.BytesIO()
    np.save(buffer, torch.cat(levels, dim=1).float().cpu().numpy(), allow_pickle=False)
    return buffer.getvalue()


def deserialize(
    lm: MaskedLM, prompts: Sequence[SerializedPrompt], combine: Combine, temperature: float | None = None
) -> PromptSet:
    """Return the prompt set of serialized prompts; `lm` is the LM that it was learned for."""
    arrays: list[NDArray[np.float32]] = [
        np.load(io.BytesIO(prompt.vectors), allow_pickle=False) for prompt in prompts if prompt.vectors
    ]
    soft_words = None
    if arrays:
        levels = torch.from_numpy(np.concatenate(arrays)).to(lm.device)  # (S, 1 + L, d)
        soft_words = SoftWords(levels[:, 0], levels[:, 1:] if levels.shape[1] > 1 else None)
    tokens = count(lm.vocab_size)
    encoded = []
    for prompt in prompts:
        numbers = sorted({token for segment in prompt.segments for token in segment if token < 0}, reverse=True)
        soft = {number: next(tokens) for number in numbers}
        segments = tuple(tuple(soft.get(token, token) for token in segment) for segment in prompt.segments)
        encoded.append(EncodedPrompt(segments, prompt.slots))
    return PromptSet(tuple(encoded), tuple(prompt.weight for prompt in prompts), combine, soft_words, temperature)


# -- Prompt text -------------------------------------------------------------------------------------------------------


def nearest_words(lm: MaskedLM, vectors: torch.Tensor, n: int) -> list[list[tuple[str, float]]]:
    """Return the texts of the `n` words nearest to each of `vectors` (S, d), with their Euclidean distances."""
    distances, tokens = torch.cdist(vectors.float(), lm.word_embeddings.float()).topk(n, largest=False)  # (S, n)
    texts = lm.tokens.texts()
    return [
        [(texts[token], distance) for token, distance in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), distances.tolist(), strict=True)
    ]


def prompt_text(lm: MaskedLM, prompt: EncodedPrompt, words: Sequence[str] = ()) -> str:
    """Return the prompt as a template, with ‹word› for each soft word, by its index in `words`."""
    special, texts = set(lm.tokens.prefix) | set(lm.tokens.suffix), lm.tokens.texts()

    def segment_text(ids: TokenIds) -> str:
        return " ".join(
            f"‹{words[token - lm.vocab_size]}›" if token >= lm.vocab_size else texts[token]
            for token in ids
            if token not in special
        )

    pieces = [segment_text(prompt.segments[0])]
    for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
        pieces += [f"<ENT{slot}>", segment_text(segment)]
    return " ".join(piece for piece in pieces if piece)
