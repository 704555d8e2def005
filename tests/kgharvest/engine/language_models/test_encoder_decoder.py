"""BART: the encoder reads the masked prompt, the decoder reads it shifted right by one token."""

from __future__ import annotations

import pytest
import torch
from transformers import BartForConditionalGeneration

from kgharvest.engine.prompts.template import PromptTemplate

CAPITAL = PromptTemplate.parse("<ENT0> is the capital of <ENT1> .")


@pytest.fixture
def bart(folder_of):
    return BartForConditionalGeneration.from_pretrained(folder_of("bart")).eval()


@pytest.fixture
def lm(tiny):
    return tiny("bart")


def test_query_has_one_mask_per_missing_token(lm):
    encoded = lm.encode_prompt(CAPITAL)
    (rome,) = lm.encode_entity("rome")

    query = lm.query(encoded, (1, 2), (rome,))

    mask = lm.mask_id
    first, second, third = encoded.segments
    assert query.ids == (*first, rome, *second, mask, mask, *third)
    assert query.position == len(first) + 1 + len(second)


def test_decoder_reads_ids_shifted_right(lm, bart):
    query = lm.query(lm.encode_prompt(CAPITAL), (1, 1), ())
    ids = torch.tensor([query.ids])
    shifted = torch.tensor([[bart.config.decoder_start_token_id, *query.ids[:-1]]])

    logits = lm.logits(lm.vectors([query], 1, lambda: None))

    with torch.no_grad():
        expected = bart(input_ids=ids, decoder_input_ids=shifted).logits[:, query.position]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_final_logits_bias_is_added(lm, bart):
    assert bart.final_logits_bias.abs().max() > 0.1
    zero = torch.zeros(1, bart.config.d_model)

    torch.testing.assert_close(lm.logits(zero), bart.final_logits_bias)
