"""DeBERTa-v2 and -v3 in Microsoft's format: SentencePiece file, pickled weights, incomplete config.

Their config.json lacks `legacy: false`, so transformers expects the LM head of its own checkpoints.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from transformers import AutoConfig, AutoModelForMaskedLM

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel
from tests.kgharvest.engine.tiny_models import CASED_WORDS, MAX_TOKENS, SIZE, draw_weights

# From microsoft/deberta-v3-base, except for the sizes. SPECIAL has its special tokens in the original order.
FIELDS = {
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "position_buckets": 16,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
}
SPECIAL = ("pad", "bos", "eos", "unk")
SPECIAL_PIECES = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
UNUSED = 10  # embedding rows beyond the tokenizer's vocabulary; [MASK] uses the first


def sentencepiece_file(words: tuple[str, ...]) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words)] * 20 + [" ".join(words[n:] + words[:n]) for n in range(len(words))]),
        model_writer=written,
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
        **{f"{name}_id": number for number, name in enumerate(SPECIAL)},
        **{f"{name}_piece": piece for name, piece in zip(SPECIAL, SPECIAL_PIECES, strict=True)},
    )
    return written.getvalue()


def save_as_microsoft(folder: Path):
    """Save a tiny random DeBERTa-v3 in `folder`; return its model."""
    pieces = sentencepiece_file(CASED_WORDS)
    n_pieces = sentencepiece.SentencePieceProcessor(model_proto=pieces).vocab_size()
    fields = {**FIELDS, **SIZE, "max_position_embeddings": MAX_TOKENS, "vocab_size": n_pieces + UNUSED}
    model = AutoModelForMaskedLM.from_config(AutoConfig.for_model("deberta-v2", **fields, legacy=False)).eval()
    draw_weights(model, torch.Generator().manual_seed(0))
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    weights["mask_predictions.dense.weight"] = torch.zeros(SIZE["hidden_size"], SIZE["hidden_size"])
    folder.mkdir()
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "spm.model").write_bytes(pieces)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "deberta-v2", **fields}))
    return model


def test_microsoft_lm_head_is_loaded_and_words_are_single_tokens(tmp_path):
    model = save_as_microsoft(tmp_path / "deberta")

    lm = load(str(tmp_path / "deberta"))

    assert {len(lm.encode_entity(word)) for word in CASED_WORDS} == {1}
    assert lm.canonical_texts([lm.encode_entity("Paris")]) == ["Paris"]
    assert lm.is_cased
    assert lm.starts_entity.sum() >= len(CASED_WORDS)
    query = lm.query(lm.encode_prompt(PromptTemplate.parse("<ENT0> is the capital of <ENT1>")), (1, 1), ())
    logits = lm.logits(lm.vectors([query], 1, lambda: None))
    with torch.no_grad():
        expected = model(torch.tensor([query.ids])).logits[:, query.position]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_checkpoint_without_lm_head_is_refused(tmp_path):
    save_as_microsoft(tmp_path / "deberta")
    file = tmp_path / "deberta" / "pytorch_model.bin"
    torch.save({name: w for name, w in torch.load(file).items() if name.startswith("deberta.")}, file)

    with pytest.raises(UnsupportedModel, match=r"lacks .* weights .* pretrained to fill in blanks"):
        load(str(tmp_path / "deberta"))
