"""Tiny random LMs of further types, defined by their config. `tiny_models` has types with special tokenizers or sizes.

Sliding windows are shorter than the prompts, logits are capped, and experts, rotations, and grouped heads are enabled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    DebertaV2Tokenizer,
    ElectraTokenizer,
    GemmaTokenizer,
    GPT2Tokenizer,
    LlamaTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizerBase,
    T5Tokenizer,
)

from tests.kgharvest.engine.tiny_models import (
    CASED_WORDS,
    MAX_CAUSAL_TOKENS,
    MAX_TOKENS,
    PRINTABLE,
    SIZE,
    WORDS,
    byte_fallback_bpe,
    byte_level_bpe,
    letters,
    number,
    save,
    unigram_vocab,
    wordpiece_vocab,
)

N_SENTINELS = 4


def wordpiece(words: Sequence[str] = WORDS) -> PreTrainedTokenizerBase:
    return ElectraTokenizer(wordpiece_vocab(words), do_lower_case=True)


def mpnet(words: Sequence[str] = WORDS) -> PreTrainedTokenizerBase:
    pieces = [f"##{letter}" for letter in letters(words)]
    vocab = number(["<s>", "<pad>", "</s>", "[UNK]", *letters(words), *pieces, *words, "<mask>"])
    return MPNetTokenizer(vocab, mask_token=AddedToken("<mask>", lstrip=True))


def deberta(words: Sequence[str] = CASED_WORDS) -> PreTrainedTokenizerBase:
    return DebertaV2Tokenizer(unigram_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], words))


def t5(words: Sequence[str] = CASED_WORDS) -> PreTrainedTokenizerBase:
    return T5Tokenizer(unigram_vocab(["<pad>", "</s>", "<unk>"], words), extra_ids=N_SENTINELS)


def byte_level(words: Sequence[str] = CASED_WORDS) -> PreTrainedTokenizerBase:
    vocab, merges = byte_level_bpe(words, PRINTABLE)
    return GPT2Tokenizer(number([*vocab, "<|endoftext|>"]), merges)


def byte_fallback(words: Sequence[str] = CASED_WORDS) -> PreTrainedTokenizerBase:
    return LlamaTokenizer(*byte_fallback_bpe(words), add_bos_token=True)


def gemma(words: Sequence[str] = CASED_WORDS) -> PreTrainedTokenizerBase:
    """Return a tokenizer that encodes spaces like Gemma: in place, and never before a text."""
    pieces, merges = byte_fallback_bpe(words)
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    vocab = [*specials, *(piece for piece in pieces if piece not in {"<unk>", "<s>", "</s>"}), "\n"]
    return GemmaTokenizer(number(vocab), merges)


class TinyType(NamedTuple):
    """LM type. family: name of the LM class of kgharvest. sizes: config fields that extend or override `SIZE`."""

    model_type: str
    family: str
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    sizes: dict[str, Any] = {}
    auto_class: Any = AutoModelForCausalLM


def masked(model_type: str, tokenizer: Callable[[], PreTrainedTokenizerBase], **sizes: Any) -> TinyType:
    sizes = {"max_position_embeddings": MAX_TOKENS, **sizes}
    return TinyType(model_type, "MaskedLM", tokenizer, sizes, AutoModelForMaskedLM)


def causal(model_type: str, tokenizer: Callable[[], PreTrainedTokenizerBase] = byte_level, **sizes: Any) -> TinyType:
    return TinyType(model_type, "CausalLM", tokenizer, {"max_position_embeddings": MAX_CAUSAL_TOKENS, **sizes})


def filling(model_type: str, **sizes: Any) -> TinyType:
    config = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
    return TinyType(model_type, "SpanFillingLM", t5, config | sizes, AutoModelForSeq2SeqLM)


GROUPED = {"num_key_value_heads": 1, "head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CAPPED = {"final_logit_softcapping": 2.0, "attn_logit_softcapping": 5.0}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SEEN = {"image_size": 28, "patch_size": 14}
QWEN_VISION = {"hidden_size": 16, "depth": 1, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 32}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3], "rope_type": "default"}
TEXT = {**SIZE, **GROUPED, "max_position_embeddings": MAX_CAUSAL_TOKENS}

TYPES = {
    "electra": masked("electra", wordpiece, embedding_size=16),
    "mpnet": masked("mpnet", mpnet, max_position_embeddings=MAX_TOKENS + 2, pad_token_id=1),
    "camembert": masked("camembert", mpnet, max_position_embeddings=MAX_TOKENS + 2, pad_token_id=1, type_vocab_size=1),
    "deberta_v3": masked("deberta-v2", deberta, legacy=False, **DEBERTA),
    "deberta_legacy": masked("deberta-v2", deberta, legacy=True, **DEBERTA),
    "big_bird": masked("big_bird", deberta, attention_type="original_full"),
    "eurobert": masked("eurobert", deberta, **GROUPED),
    "t5": filling("t5"),  # tied embeddings, scaled logits
    "mt5": filling("mt5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "umt5": filling("umt5", tie_word_embeddings=False),
    "qwen2": causal("qwen2", num_key_value_heads=1),
    "qwen2_moe": causal("qwen2_moe", num_key_value_heads=1, shared_expert_intermediate_size=24, **EXPERTS),
    "qwen3": causal("qwen3", **GROUPED),
    "gemma2": causal("gemma2", gemma, sliding_window=8, **CAPPED, **GROUPED),
    "gemma3_text": causal("gemma3_text", gemma, sliding_window=8, **GROUPED),
    "mistral": causal("mistral", byte_fallback, sliding_window=8, num_key_value_heads=1),
    "mixtral": causal("mixtral", byte_fallback, num_local_experts=4, num_key_value_heads=1),
    "gpt_oss": causal("gpt_oss", num_local_experts=4, num_experts_per_tok=2, sliding_window=8, **GROUPED),
    "phi": causal("phi"),
    "phi3": causal("phi3", byte_fallback, sliding_window=8),
    "olmo2": causal("olmo2"),
    "gpt_neox": causal("gpt_neox"),
    "bloom": causal("bloom", n_layer=2, n_head=2),
    "opt": causal("opt", ffn_dim=48, word_embed_proj_dim=16),
    "cohere": causal("cohere", logit_scale=0.25),
    "granite": causal("granite", logits_scaling=4.0),
    "mamba": causal("mamba"),
    "gemma3": TinyType(
        "gemma3", "CausalLM", gemma, {"text_config": {**TEXT, "sliding_window": 8}, "vision_config": VISION | SEEN}
    ),
    "qwen2_5_vl": TinyType(
        *("qwen2_5_vl", "CausalLM", byte_level),
        {"text_config": TEXT | {"rope_scaling": MROPE}, "vision_config": QWEN_VISION | {"fullatt_block_indexes": [0]}},
        AutoModelForImageTextToText,
    ),
}


def tiny_of_type(name: str, folder: Path, seed: int = 0) -> Path:
    """Save a tiny LM of TYPES in `folder` and return the folder."""
    tiny = TYPES[name]
    tokenizer = tiny.tokenizer()
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 0
    special = {"pad_token_id": tokenizer.pad_token_id or 0, "bos_token_id": end, "eos_token_id": end}
    sizes = {**SIZE, **special, "vocab_size": len(tokenizer), **tiny.sizes}
    if "text_config" in sizes:
        text = {**special, "vocab_size": len(tokenizer), **sizes["text_config"]}
        sizes = {"text_config": text, "vision_config": sizes["vision_config"], "image_token_id": len(tokenizer) - 1}
    if tiny.family == "SpanFillingLM":
        sizes = {name: value for name, value in sizes.items() if name not in SIZE}
    model = tiny.auto_class.from_config(AutoConfig.for_model(tiny.model_type, **sizes))
    return save(model, tokenizer, folder, seed)
