"""The tokenizer's side of an LM: entity ids, ids of the text around slots, tokens that may stand in an entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadSeed

# How vocabularies write the inside and the beginning of words.
CONTINUATION = "##"  # WordPiece: "##ing" continues a word
WORD_STARTS = ("Ġ", "▁")  # byte-level BPE and SentencePiece: "Ġdog" and "▁dog" begin one


class Tokens:
    """A tokenizer, seen as the engine needs it.

    prefix, suffix: the special tokens around a sequence.
    starts_entity, continues_entity: bool (V,), see `LanguageModel`.
    """

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        pieces = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), vocab_size)))
        self._word_start = word_start_mark(pieces)
        self._lead = " " if self._word_start and not self._starts_word("a") else ""
        self.prefix, self.suffix = self._special_frame()
        self.starts_entity, self.continues_entity = self._admissible(pieces, vocab_size)
        self.is_cased = self._ids("Paris") != self._ids("paris")

    def encode_prompt(self, prompt: PromptTemplate, prefix: TokenIds, suffix: TokenIds) -> EncodedPrompt:
        """Encode the text around the slots; `prefix` and `suffix` join the first and the last segment."""
        segments = [
            self._segment(text, is_first=index == 0, is_last=index == len(prompt.slots))
            for index, text in enumerate(prompt.segments)
        ]
        segments[0] = prefix + segments[0]
        segments[-1] = segments[-1] + suffix
        return EncodedPrompt(tuple(segments), prompt.slots)

    def encode_entity(self, entity: str) -> TokenIds:
        """Return the ids of `entity` alone, space-prefixed where the vocabulary marks word starts.

        Raises BadSeed if the vocabulary cannot write it.
        """
        ids = self._ids(self._lead + " ".join(entity.split()))
        if not ids or self._tokenizer.unk_token_id in ids:
            raise BadSeed(f"The entity {entity!r} cannot be written in this LM's vocabulary; use another one.")
        return ids

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        """Return the text of each sequence, or None where the tokenizer writes that text with other ids."""
        texts = [text.strip() for text in self._backend.decode_batch([list(ids) for ids in sequences])]
        encodings = self._backend.encode_batch_fast([self._lead + text for text in texts], add_special_tokens=False)
        return [
            text if text and tuple(encoding.ids) == ids else None
            for text, encoding, ids in zip(texts, encodings, sequences, strict=True)
        ]

    def _ids(self, text: str) -> TokenIds:
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)

    def _starts_word(self, text: str) -> bool:
        pieces = self._backend.encode(text, add_special_tokens=False).tokens
        return bool(pieces) and pieces[0].startswith(self._word_start)

    def _segment(self, text: str, *, is_first: bool, is_last: bool) -> TokenIds:
        # The space before a slot belongs to the entity; text glued to a slot stays tokens of its own.
        text = text if is_last else text.rstrip()
        return self._ids(text.lstrip() if is_first else text) if text.strip() else ()

    def _special_frame(self) -> tuple[TokenIds, TokenIds]:
        bare = self._ids("a")
        framed = tuple(self._tokenizer("a").input_ids)
        start = next(i for i in range(len(framed)) if framed[i : i + len(bare)] == bare)
        return framed[:start], framed[start + len(bare) :]

    def _admissible(self, pieces: list[str], vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
        continues = np.zeros(vocab_size, dtype=bool)
        continues[: len(pieces)] = True
        continues[[i for i in self._special_ids() if i < vocab_size]] = False
        starts = continues.copy()
        for index, piece in enumerate(pieces):
            starts[index] &= self._begins_word(piece)
        return starts, continues

    def _begins_word(self, piece: str) -> bool:
        if self._word_start:
            return piece.startswith(self._word_start)
        return not piece.startswith(CONTINUATION)

    def _special_ids(self) -> set[int]:
        return set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)


def word_start_mark(pieces: Sequence[str]) -> str:
    """Return the mark that this vocabulary puts before words, or "" (WordPiece marks continuations instead)."""
    counts = {mark: sum(piece.startswith(mark) for piece in pieces) for mark in (CONTINUATION, *WORD_STARTS)}
    most = max(counts, key=lambda mark: counts[mark])
    return most if counts[most] and most != CONTINUATION else ""
