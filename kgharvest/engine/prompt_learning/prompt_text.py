"""Learned prompts in writing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM


def nearest_words(lm: MaskedLM, vectors: torch.Tensor) -> list[str]:
    """Return the text of the word nearest to each of `vectors` (S, d), so that a person can read a soft prompt."""
    return [words[0][0] for words in words_by_distance(lm, vectors, 1)]


def words_by_distance(lm: MaskedLM, vectors: torch.Tensor, n: int) -> list[list[tuple[str, float]]]:
    """Return the texts of the `n` words nearest to each of `vectors` (S, d), with their Euclidean distances."""
    distances, tokens = torch.cdist(vectors.float(), lm.word_embeddings.float()).topk(n, largest=False)  # (S, n)
    texts = lm.tokens.texts()
    return [
        [(texts[token], distance) for token, distance in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), distances.tolist(), strict=True)
    ]


def readable(lm: MaskedLM, prompt: EncodedPrompt, words: Sequence[str]) -> str:
    """Return the prompt as a template, each soft word as the nearest of `words` in angle brackets."""
    special = set(lm.tokens.prefix) | set(lm.tokens.suffix)

    def text(ids: TokenIds) -> str:
        shown = [
            f"‹{words[token - lm.vocab_size]}›" if token >= lm.vocab_size else lm.tokens.texts()[token]
            for token in ids
            if token not in special
        ]
        return " ".join(shown)

    pieces = [text(prompt.segments[0])]
    for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
        pieces += [f"<ENT{slot}>", text(segment)]
    return " ".join(piece for piece in pieces if piece)
