"""BART: the encoder reads the masked prompt, the decoder reads it shifted right by one token."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from transformers import BartForConditionalGeneration

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.masked import SoftWords
from kgharvest.engine.probing import EncodedFact, UsableFacts
from kgharvest.engine.prompt_learning.soft_prompts import SoftPromptParams, learn_soft_prompts, soften
from kgharvest.engine.prompts.prompt_set import PromptSet, PromptSetAnswerer
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel

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


def test_soft_words_are_read_by_encoder_and_decoder(lm, bart):
    """Compare with the transformers model, called with the same vectors as input embeddings."""
    prompt = lm.encode_prompt(CAPITAL)
    soft, vectors = soften(lm, [prompt])
    vectors = vectors + torch.linspace(-0.5, 0.5, vectors.numel()).view_as(vectors)
    head = lm.encode_entity("paris")

    (logprobs,) = PromptSetAnswerer(lm, PromptSet(tuple(soft), (1.0,), "mixture", SoftWords(vectors))).scores(
        [head], lambda: None
    )

    query = lm.query(prompt, (len(head), 1), head)
    table, numbers = torch.cat([bart.get_input_embeddings().weight, vectors]), iter(range(len(vectors)))
    ids = [
        lm.vocab_size + next(numbers) if token not in (*head, lm.mask_id) and lm.continues_entity[token] else token
        for token in query.ids
    ]
    assert next(numbers, None) is None
    shifted = [bart.config.decoder_start_token_id, *ids[:-1]]
    with torch.no_grad():
        expected = bart(inputs_embeds=table[ids][None], decoder_inputs_embeds=table[shifted][None]).logits
    expected = expected[0, query.position].log_softmax(0)
    torch.testing.assert_close(logprobs[0], expected, atol=1e-4, rtol=1e-4)
    assert (expected - lm.logits(lm.vectors([query], 1, lambda: None))[0].log_softmax(0)).abs().max() > 0.01


@pytest.mark.parametrize("scaled", [False, True])
def test_initial_soft_words_answer_as_their_words(tmp_path, folder_of, scaled):
    """mBART multiplies its word embeddings by a constant."""
    folder = shutil.copytree(folder_of("bart"), tmp_path / "bart")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"scale_embedding": scaled}))
    lm = load(str(folder))
    prompt = lm.encode_prompt(CAPITAL)
    soft, vectors = soften(lm, [prompt])

    answers = [
        next(PromptSetAnswerer(lm, PromptSet((each,), (1.0,), "mixture", words)).scores([(7,)], lambda: None))
        for each, words in ((prompt, None), (soft[0], SoftWords(vectors)))
    ]

    torch.testing.assert_close(*answers, atol=1e-4, rtol=1e-4)


def test_learning_soft_prompts_changes_only_their_vectors(lm):
    soft, vectors = soften(lm, [lm.encode_prompt(CAPITAL)])
    pairs = [("paris", "france"), ("rome", "italy"), ("Paris", "France"), ("Rome", "Italy")]
    facts = UsableFacts(tuple(EncodedFact(lm.encode_entity(x), lm.encode_entity(y)[0]) for x, y in pairs), {})
    before = {name: weights.clone() for name, weights in lm._network.named_parameters()}

    learned = learn_soft_prompts(lm, soft, vectors, facts, facts, SoftPromptParams(learning_rate=0.02, epochs=20))

    assert max(likelihood for _, likelihood in learned.history) > learned.history[0][1] + 0.5
    assert learned.n_parameters == vectors.numel() + 1
    assert not torch.equal(learned.prompt_set.soft_words.vectors, vectors)
    for name, weights in lm._network.named_parameters():
        assert weights.grad is None
        assert torch.equal(weights, before[name])


def test_soft_words_in_all_layers_are_refused(lm):
    _, vectors = soften(lm, [lm.encode_prompt(CAPITAL)])

    with pytest.raises(UnsupportedModel, match=r"Soft prompts in all layers require .*, but .* is bart\."):
        lm.with_soft_words(SoftWords(vectors, torch.zeros(len(vectors), 1, vectors.shape[1])))
