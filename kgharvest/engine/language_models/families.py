"""LM families by capability: LMs with a mask token, span-filling LMs, and causal LMs.

Detection uses the config, the tokenizer, and transformers' tables of model types, not a list of supported types.
"""

from collections.abc import Callable
from typing import Any

from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.causal import CausalLM
from kgharvest.engine.language_models.encoder_decoder import InfillingLM, SpanFillingLM, sentinels_in
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.language_models.tokens import CONTINUATION, word_start_mark
from kgharvest.engine.types import UnsupportedModel
from kgharvest.entry_points import LM_FAMILIES, entry_points

Family = Callable[..., LanguageModel]

# Name endings of classes whose head does not output words. Checkpoints of these classes have no LM head.
OTHER_HEADS = (
    *("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
    *("ForImageClassification", "RewardModel", "ForTextEncoding"),
)


def family_of(config: Any, tokenizer: Any, name: str) -> tuple[Any, Family]:
    """Return the transformers class and the family class for a model. Raises UnsupportedModel.

    Tries the entry points of installed distributions first. They are functions of (config, tokenizer) that return both
    classes, or None.
    """
    for find_family in entry_points(LM_FAMILIES).values():
        family: tuple[Any, Family] | None = find_family(config, tokenizer)
        if family:
            return family
    check_head(config, name)
    model_type = config.model_type
    if config.is_encoder_decoder:
        if model_type in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
            if len(sentinels_in(tokenizer.get_vocab())) > 1:
                return AutoModelForSeq2SeqLM, SpanFillingLM
            if tokenizer.mask_token_id is not None:
                return AutoModelForSeq2SeqLM, InfillingLM
    elif model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return AutoModelForMaskedLM, MaskedLM
    elif model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return AutoModelForCausalLM, CausalLM
    elif model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return AutoModelForImageTextToText, CausalLM
    raise UnsupportedModel(
        f"Model {name!r} of type {model_type} has no mask token, no sentinels for blanks, and no causal LM head. "
        "Use an LM with one of these."
    )


def check_head(config: Any, name: str) -> None:
    """Raise UnsupportedModel if the checkpoint was trained with a head that does not output words."""
    architectures = getattr(config, "architectures", None) or ()
    if architectures and all(architecture.endswith(OTHER_HEADS) for architecture in architectures):
        raise UnsupportedModel(
            f"Model {name!r} is a {architectures[0]}, which labels texts and has no LM head. "
            "Use the checkpoint that was pretrained to fill in blanks or to continue a text."
        )


def check_tokenizer(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise UnsupportedModel unless the tokenizer is fast, matches the embeddings, and marks word boundaries."""
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModel(f"The tokenizer of {name!r} has no fast version (tokenizer.json). Use another model.")
    backend = tokenizer.backend_tokenizer
    n_tokens = backend.get_vocab_size(with_added_tokens=False)
    if n_tokens > vocab_size:
        raise UnsupportedModel(
            f"The tokenizer of {name!r} has {n_tokens:,} tokens, but the model has {vocab_size:,} embeddings. "
            "Use the tokenizer that the model was trained with."
        )
    pieces = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), vocab_size)))
    marks_words = word_start_mark(pieces) or any(piece and piece.startswith(CONTINUATION) for piece in pieces)
    if not marks_words and not isinstance(backend.model, WordLevel):
        raise UnsupportedModel(
            f"The tokenizer of {name!r} does not mark word boundaries, like all byte-level and character-level "
            "tokenizers. Use an LM whose tokens are words or parts of words."
        )
