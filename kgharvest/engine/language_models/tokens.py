"""Tokenizer wrapper: ids of entities and of the text around slots, and the tokens allowed in an entity."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

from kgharvest.engine.language_models.base import EncodedPrompt, TokenIds
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, BadSeed, BadText, UnsupportedModel

# Marks of word continuations and word starts in vocabularies.
CONTINUATION = "##"  # WordPiece: "##ing" continues a word
BYTE_LEVEL_SPACE, SENTENCEPIECE_SPACE = "Ġ", "▁"  # "Ġdog" and "▁dog" start a word
SPACE = re.compile(r"\s+")
# Fixes the date in Llama's chat templates and disables thinking in Qwen's. Other templates ignore these options.
CHAT_OPTIONS = {"date_string": "1 Jan 2025", "enable_thinking": False}


class Tokens:
    """A tokenizer with the operations that the engine needs.

    prefix, suffix: special tokens around a sequence.
    starts_entity, continues_entity: bool (V,), see `LanguageModel`.
    """

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        # tokenizer.json can contain padding and truncation settings from training.
        self._backend.no_padding()
        self._backend.no_truncation()
        pieces = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), vocab_size)))
        self._word_start = word_start_mark(pieces)
        first_piece, *_ = self._backend.encode("a", add_special_tokens=False).tokens or [""]
        self._prepends_space = bool(self._word_start) and first_piece.startswith(self._word_start)
        self._word_prefix = " " if self._word_start and not self._prepends_space else ""
        self._control_ids = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        bare, framed = self._ids("a"), tuple(tokenizer("a").input_ids)
        start = next(index for index in range(len(framed)) if framed[index : index + len(bare)] == bare)
        self.prefix, self.suffix = framed[:start], framed[start + len(bare) :]
        self.continues_entity = np.arange(vocab_size) < len(pieces)
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        self.continues_entity[[index for index in special if index < vocab_size]] = False
        self.starts_entity = self.continues_entity.copy()
        self.starts_entity[: len(pieces)] &= [
            piece.startswith(self._word_start) if self._word_start else not piece.startswith(CONTINUATION)
            for piece in pieces
        ]
        self.is_cased = self._ids("Paris") != self._ids("paris")

    @property
    def mask_id(self) -> int:
        """Id of the mask token. Raises UnsupportedModel if there is none."""
        mask_id: int | None = self._tokenizer.mask_token_id
        if mask_id is None:
            raise UnsupportedModel("The tokenizer has no mask token. Use the tokenizer that the LM was trained with.")
        return mask_id

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        """Encode the texts around the slots, and add special tokens. Raises BadPrompt if a text contains any."""
        self.check_text(prompt.text)
        # The space before a slot belongs to the entity.
        first, *rest = (SPACE.sub(" ", text).rstrip() for text in prompt.segments)
        segments = [self.prefix + self._ids(first.lstrip()), *map(self.continuing, rest)]
        segments[-1] += self.suffix
        return EncodedPrompt(tuple(segments), prompt.slots)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def encode_conversation(self, turns: Sequence[tuple[str, str]]) -> TokenIds:
        """Encode turns (role, text), of which the last is the start of an answer.

        Uses the LM's chat template if it has one.
        """
        *before, (_, answer) = turns
        if not self.has_chat_template:
            return self.starting("".join(text for _, text in turns))
        chat = [{"role": role, "content": text} for role, text in before]
        text = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **CHAT_OPTIONS)
        return self._ids(text + answer)

    def starting(self, text: str) -> TokenIds:
        """Return the ids of `text` at the start of a sequence, after the special tokens."""
        return self.prefix + self._ids(text)

    def continuing(self, text: str) -> TokenIds:
        """Return the ids of `text` as a continuation: a word starts only after a space in `text`."""
        if not self._prepends_space:
            return self._ids(text)
        first, _, rest = text.partition(" ")
        normalizer, model = self._backend.normalizer, self._backend.model
        if normalizer:
            first = normalizer.normalize_str(first).removeprefix(self._word_start)
        chunks = [first]
        if self._word_start == BYTE_LEVEL_SPACE:
            chunks = [chunk for chunk, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(first)]
        return tuple(token.id for chunk in chunks for token in model.tokenize(chunk)) + self._ids(rest)

    def containing(self, text: str) -> NDArray[np.bool_]:
        """Return bool (V,): True for tokens whose text contains `text`."""
        texts = self._backend.decode_batch([[index] for index in range(len(self.starts_entity))])
        return np.array([text in token for token in texts])

    def texts(self) -> list[str]:
        """Return (V,): the stripped text of each token; "" for special tokens."""
        texts = self._backend.decode_batch([[index] for index in range(len(self.starts_entity))])
        return [text.strip() for text in texts]

    def check_text(self, text: str) -> None:
        """Raise BadPrompt if the tokenizer would read special tokens in `text`."""
        special = self._control_ids & set(self._ids(text))
        if special:
            raise BadPrompt(
                f"The prompt {text!r} contains {self._piece(min(special))}, which is a special token of this LM. "
                "Remove it."
            )

    def encode_entity(self, entity: str) -> TokenIds:
        """Return the ids of `entity` alone, with a leading space if the vocabulary marks word starts.

        Raises BadSeed if the vocabulary cannot write it.
        """
        ids = self._ids(self._word_prefix + " ".join(entity.split()))
        if not ids or set(ids) & (self._control_ids | {self._tokenizer.unk_token_id}):
            raise BadSeed(f"The vocabulary of this LM cannot write the entity {entity!r}. Use another entity.")
        return ids

    def encode_text(self, text: str) -> TokenIds:
        """Return the ids of running text, including unknown words. Raises BadText if it contains special tokens."""
        ids = self._ids(self._word_prefix + " ".join(text.split()))
        if special := set(ids) & self._control_ids:
            raise BadText(
                f"The text {text!r:.100} contains {self._piece(min(special))}, which is a special token of this LM. "
                "Remove it."
            )
        return ids

    def canonical_texts(self, sequences: Sequence[TokenIds]) -> list[str | None]:
        """Return the text of each sequence, or None if the tokenizer encodes that text differently."""
        # For short texts, the thread pool of batch decoding costs more than it saves.
        texts = [" ".join(self._backend.decode(list(ids)).split()) for ids in sequences]
        return [
            text if text and self._ids(self._word_prefix + text) == ids else None
            for text, ids in zip(texts, sequences, strict=True)
        ]

    def _piece(self, index: int) -> str | None:
        """Return the vocabulary entry of a token."""
        piece: str | None = self._tokenizer.convert_ids_to_tokens([index])[0]
        return piece

    def _ids(self, text: str) -> TokenIds:
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)


def word_start_mark(pieces: Sequence[str]) -> str:
    """Return the vocabulary's mark of word starts, or "" (WordPiece marks continuations instead)."""
    counts = {
        mark: sum(piece.startswith(mark) for piece in pieces)
        for mark in (CONTINUATION, BYTE_LEVEL_SPACE, SENTENCEPIECE_SPACE)
    }
    mark = max(counts, key=lambda mark: counts[mark])
    return mark if counts[mark] and mark != CONTINUATION else ""
