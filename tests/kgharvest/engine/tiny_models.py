"""Tiny random LMs of every family, saved as folders: real architectures and tokenizer types, 2 layers of width 32.

Each function saves a model and its tokenizer in `folder` and returns the folder, so that tests use the normal loading
code. Each of `words` becomes one token, with a leading space if the tokenizer has such tokens. Other words over the
same letters are split into letters; words with other letters are unknown. All weights and biases are drawn with
`seed`, with a spread that makes distributions peaked and context-dependent.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertTokenizer,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaTokenizer,
)

ENTITIES = ("paris", "france", "rome", "italy", "dog", "cat", "fish", "wood", "swim", "sing")
WORDS = (*ENTITIES, "is", "the", "a", "capital", "of", "in", "for", "place", "can")
CASED_WORDS = (*WORDS, "Paris", "France", "Rome", "Italy", "Dog")
PUNCTUATION = ".,"
# Causal LMs must be able to encode their instruction.
PRINTABLE = string.ascii_letters + string.digits + PUNCTUATION + ":()_'\n"

HIDDEN = 32
MAX_TOKENS = 40
MAX_CAUSAL_TOKENS = 512
SIZE = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def tiny_bert(
    folder: Path, seed: int = 0, words: Sequence[str] = WORDS, *, lower_case: bool = True, max_tokens: int = MAX_TOKENS
) -> Path:
    tokenizer = BertTokenizer(wordpiece_vocab(words), do_lower_case=lower_case)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=max_tokens, **SIZE)
    return save(BertForMaskedLM(config), tokenizer, folder, seed)


def tiny_distilbert(folder: Path, seed: int = 0, words: Sequence[str] = WORDS) -> Path:
    tokenizer = DistilBertTokenizer(wordpiece_vocab(words), do_lower_case=True)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=MAX_TOKENS, dim=HIDDEN, n_layers=2, n_heads=2, hidden_dim=48
    )
    return save(DistilBertForMaskedLM(config), tokenizer, folder, seed)


def tiny_albert(folder: Path, seed: int = 0, words: Sequence[str] = WORDS) -> Path:
    tokenizer = AlbertTokenizer(unigram_vocab(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], words))
    config = AlbertConfig(vocab_size=len(tokenizer), max_position_embeddings=MAX_TOKENS, embedding_size=16, **SIZE)
    return save(AlbertForMaskedLM(config), tokenizer, folder, seed)


def tiny_roberta(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    tokenizer = roberta_tokenizer(RobertaTokenizer, words)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=MAX_TOKENS + 2,  # positions start after pad_token_id = 1
        type_vocab_size=1,
        **SIZE,
    )
    return save(RobertaForMaskedLM(config), tokenizer, folder, seed)


def tiny_xlm_roberta(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    vocab = unigram_vocab(["<s>", "<pad>", "</s>", "<unk>"], words)
    tokenizer = XLMRobertaTokenizer([*vocab, ("<mask>", 0.0)], mask_token=AddedToken("<mask>", lstrip=True))
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=MAX_TOKENS + 2, type_vocab_size=1, **SIZE
    )
    return save(XLMRobertaForMaskedLM(config), tokenizer, folder, seed)


def tiny_modernbert(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    tokenizer = modernbert_tokenizer(words)
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=MAX_TOKENS,
        local_attention=8,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        **SIZE,
    )
    return save(ModernBertForMaskedLM(config), tokenizer, folder, seed)


def tiny_bart(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    tokenizer = roberta_tokenizer(BartTokenizer, words)
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in BART_SIDE.items()}
    config = BartConfig(vocab_size=len(tokenizer), max_position_embeddings=MAX_TOKENS, d_model=HIDDEN, **sides)
    return save(BartForConditionalGeneration(config), tokenizer, folder, seed)


BART_SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 48}


def tiny_gpt2(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    vocab, merges = byte_level_bpe(words, PRINTABLE)
    tokenizer = GPT2Tokenizer(number([*vocab, "<|endoftext|>"]), merges)
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=MAX_CAUSAL_TOKENS,
        n_embd=HIDDEN,
        n_layer=2,
        n_head=2,
        bos_token_id=end,
        eos_token_id=end,
    )
    return save(GPT2LMHeadModel(config), tokenizer, folder, seed)


def tiny_llama(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    tokenizer = LlamaTokenizer(*byte_fallback_bpe(words), add_bos_token=True)
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=MAX_CAUSAL_TOKENS, num_key_value_heads=1, **SIZE
    )
    return save(LlamaForCausalLM(config), tokenizer, folder, seed)


def tiny_gemma(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    tokenizer = LlamaTokenizer(*byte_fallback_bpe(words), add_bos_token=True)
    config = GemmaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=MAX_CAUSAL_TOKENS,
        num_key_value_heads=1,
        head_dim=HIDDEN // 2,
        pad_token_id=tokenizer.unk_token_id,
        **SIZE,
    )
    return save(GemmaForCausalLM(config), tokenizer, folder, seed)


def tiny_qwen3_moe(folder: Path, seed: int = 0, words: Sequence[str] = CASED_WORDS) -> Path:
    """Save a mixture of experts."""
    tokenizer = LlamaTokenizer(*byte_fallback_bpe(words), add_bos_token=True)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=MAX_CAUSAL_TOKENS,
        num_key_value_heads=1,
        head_dim=HIDDEN // 2,
        moe_intermediate_size=24,
        num_experts=4,
        num_experts_per_tok=2,
        **SIZE,
    )
    return save(Qwen3MoeForCausalLM(config), tokenizer, folder, seed)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, seed: int) -> Path:
    draw_weights(model, torch.Generator().manual_seed(seed))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
def draw_weights(model: PreTrainedModel, rng: torch.Generator) -> None:
    """Draw gains around 1 and all other weights around 0. Includes buffers such as BART's `final_logits_bias`."""
    for name, weight in model.state_dict().items():
        weight.normal_(is_gain(name, weight), spread(name, weight), generator=rng)


def is_gain(name: str, weight: torch.Tensor) -> bool:
    return weight.dim() == 1 and name.endswith("weight")


def spread(name: str, weight: torch.Tensor) -> float:
    """Return the standard deviation. It is smaller in the layers to keep attention from saturating."""
    if is_gain(name, weight):
        return 0.1
    return 0.5 if "embed" in name or "head" in name else 0.35


def letters(words: Iterable[str]) -> list[str]:
    """Return the letters of the words, punctuation, and the letter a."""
    return sorted({*"".join(words), *PUNCTUATION, "a"})


def number(tokens: Iterable[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}


def wordpiece_vocab(words: Sequence[str]) -> dict[str, int]:
    pieces = [f"##{letter}" for letter in letters(words) if letter not in PUNCTUATION]
    return number(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters(words), *pieces, *words])


def unigram_vocab(specials: Sequence[str], words: Sequence[str]) -> list[tuple[str, float]]:
    """Return pieces with log-probabilities that prefer whole words to letters."""
    pieces = ["▁", *letters(words)]
    return [(token, 0.0) for token in specials] + [(p, -9.0) for p in pieces] + [(f"▁{word}", -3.0) for word in words]


def byte_level_bpe(words: Sequence[str], alphabet: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Train BPE until every word with a leading space is one token. Bytes outside `alphabet` have no token."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return train_bpe(bpe, [f" {token}" for token in (*words, *PUNCTUATION)] + [*alphabet])


def byte_fallback_bpe(words: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Train Llama-style BPE: `▁` for the space, and byte tokens (here for a newline and e with acute accent)."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    vocab, merges = train_bpe(bpe, words, alphabet=sorted(set(PRINTABLE) - {"\n"}))
    return number(["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xA9>", *vocab]), merges


def train_bpe(
    bpe: Tokenizer, corpus: Sequence[str], alphabet: Sequence[str] = ()
) -> tuple[list[str], list[tuple[str, str]]]:
    trainer = trainers.BpeTrainer(vocab_size=100_000, initial_alphabet=list(alphabet), show_progress=False)
    bpe.train_from_iterator(corpus, trainer)
    trained = json.loads(bpe.to_str())["model"]
    vocab = sorted(trained["vocab"], key=trained["vocab"].get)
    return vocab, [tuple(merge) for merge in trained["merges"]]


def roberta_tokenizer(kind: type[RobertaTokenizer], words: Sequence[str]) -> RobertaTokenizer:
    vocab, merges = byte_level_bpe(words, letters(words))
    ids = number(["<s>", "<pad>", "</s>", "<unk>", *vocab, "<mask>"])
    return kind(ids, merges, mask_token=AddedToken("<mask>", lstrip=True))


def modernbert_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    vocab, merges = byte_level_bpe(words, letters(words))
    ids = number([*vocab, "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    bpe = Tokenizer(models.BPE(ids, merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token=AddedToken("[MASK]", lstrip=True),
    )
