"""What an LM can do for a harvest, told by its config and its tokenizer: it has a mask, fills in, or goes on.

No type of LM is named: transformers' tables say which head a type has, and the tokenizer says which blanks it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.causal import CausalLM
from kgharvest.engine.language_models.encoder_decoder import InfillingLM
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.language_models.span_filling import SpanFillingLM, sentinels_in
from kgharvest.engine.language_models.tokens import CONTINUATION, word_start_mark
from kgharvest.engine.types import UnsupportedModel
from kgharvest.entry_points import LM_FAMILIES, entry_points

Family = Callable[..., LanguageModel]

# Ends of the names of classes that answer with something else than words, whose language head is gone.
OTHER_HEADS = (
    *("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
    *("ForImageClassification", "RewardModel", "ForTextEncoding"),
)


def family_of(config: Any, tokenizer: Any, name: str) -> tuple[Any, Family]:
    """Return the transformers class to load a model with, and the family of LMs for it. Raises UnsupportedModel.

    Families of installed distributions are asked first: functions of (config, tokenizer) that return both, or None.
    """
    for find_family in entry_points(LM_FAMILIES).values():
        family: tuple[Any, Family] | None = find_family(config, tokenizer)
        if family:
            return family
    check_head(config, name)
    has_mask = tokenizer.mask_token_id is not None
    model_type = config.model_type
    if config.is_encoder_decoder:
        if model_type in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
            if len(sentinels_in(tokenizer.get_vocab())) > 1:
                return AutoModelForSeq2SeqLM, SpanFillingLM
            if has_mask:
                return AutoModelForSeq2SeqLM, InfillingLM
    elif model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return AutoModelForMaskedLM, MaskedLM
    elif model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return AutoModelForCausalLM, CausalLM
    elif model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return AutoModelForImageTextToText, CausalLM
    raise UnsupportedModel(
        f"The model {name!r}, of type {model_type}, has no mask token, no sentinels for blanks and does not go on "
        "with a text; use an LM that does one of these."
    )


def check_head(config: Any, name: str) -> None:
    """Raise UnsupportedModel for a checkpoint that was trained to answer with something else than words."""
    architectures = getattr(config, "architectures", None) or ()
    if architectures and all(architecture.endswith(OTHER_HEADS) for architecture in architectures):
        raise UnsupportedModel(
            f"The model {name!r} is a {architectures[0]}, which judges or labels texts and has lost the head that "
            "writes words; use the checkpoint that was pretrained to fill in blanks or to go on with a text."
        )


def check_tokenizer(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise UnsupportedModel unless the tokenizer is fast, belongs to the embeddings and tells words apart."""
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModel(
            f"The tokenizer of {name!r} has no fast version (tokenizer.json); use a model that has one."
        )
    backend = tokenizer.backend_tokenizer
    n_tokens = backend.get_vocab_size(with_added_tokens=False)
    if n_tokens > vocab_size:
        raise UnsupportedModel(
            f"The tokenizer of {name!r} has {n_tokens:,} tokens and the model embeds {vocab_size:,}; "
            "use the tokenizer that it was trained with."
        )
    pieces = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), vocab_size)))
    marks_words = word_start_mark(pieces) or any(piece and piece.startswith(CONTINUATION) for piece in pieces)
    if not marks_words and not isinstance(backend.model, WordLevel):
        raise UnsupportedModel(
            f"The tokenizer of {name!r} does not show where words begin, as those of bytes and characters do; "
            "use an LM whose tokens are words and their parts."
        )
