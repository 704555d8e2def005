"""Properties of every LM family: same answers as transformers, and the guarantees of the protocol."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, BadSeed, BrokenModel
from tests.kgharvest.engine.language_models.conftest import CAUSAL
from tests.kgharvest.engine.tiny_models import ENTITIES, tiny_bert
from tests.sampling import only

CAPITAL = PromptTemplate.parse("<ENT0> is the capital of <ENT1> .")
REVERSED = PromptTemplate.parse("in <ENT1> the capital is <ENT0>")
THREE = PromptTemplate.parse("<ENT2> can <ENT0> in the <ENT1>")
AUTO_CLASS = {"bart": AutoModelForSeq2SeqLM, **dict.fromkeys(CAUSAL, AutoModelForCausalLM)}


def ignore_tick() -> None:
    """Ignore progress ticks."""


def questions(lm, prompts=(CAPITAL, REVERSED)):
    """Return queries for every token of (rome fish, italy) in every prompt, from none to all but one token filled."""
    entities = [lm.encode_entity(entity) for entity in ("rome fish", "italy")]
    pattern = tuple(map(len, entities))
    tokens = tuple(token for ids in entities for token in ids + lm.entity_end)
    encoded = [lm.encode_prompt(prompt) for prompt in prompts]
    return [lm.query(prompt, pattern, tokens[:filled]) for prompt in encoded for filled in range(len(tokens))]


def test_logits_match_transformers_forward(family, lm, folder_of):
    reference = AUTO_CLASS.get(family, AutoModelForMaskedLM).from_pretrained(folder_of(family)).eval()
    queries = questions(lm)

    logits = lm.logits(lm.vectors(queries, 4, ignore_tick))

    with torch.no_grad():
        expected = [reference(torch.tensor([query.ids])).logits[0, query.position] for query in queries]
    torch.testing.assert_close(logits, torch.stack(expected), atol=5e-5, rtol=1e-5)


def test_tiny_lm_has_peaked_and_context_dependent_distributions(lm):
    """Guard the other tests, which would prove little on flat or context-independent distributions."""
    logprobs = torch.log_softmax(lm.logits(lm.vectors(questions(lm), 8, ignore_tick)), dim=-1)

    spread = logprobs.max(dim=-1).values - logprobs.min(dim=-1).values
    differences = torch.cdist(logprobs, logprobs, p=float("inf")) + torch.eye(len(logprobs)) * 100
    assert spread.min() > 5
    assert differences.min() > 0.01


@pytest.mark.parametrize("batch_size", only([3], [1, 3, 256]))
def test_answers_do_not_depend_on_the_batch_size(lm, batch_size):
    queries = questions(lm)

    vectors = lm.vectors(queries, batch_size, ignore_tick)

    torch.testing.assert_close(vectors, lm.vectors(queries, 5, ignore_tick), atol=1e-5, rtol=1e-5)


def test_logits_are_linear_in_vectors(lm):
    vectors = lm.vectors(questions(lm)[:3], 8, ignore_tick)
    weights = torch.tensor([0.5, 0.3, 0.2])

    logits = lm.logits((weights @ vectors)[None])

    torch.testing.assert_close(logits[0], weights @ lm.logits(vectors), atol=1e-5, rtol=1e-5)


def test_vectors_and_logits_are_float32_rows(lm):
    queries = questions(lm)

    vectors = lm.vectors(queries, 8, ignore_tick)
    logits = lm.logits(vectors)

    assert vectors.dtype == logits.dtype == torch.float32
    assert vectors.shape[0] == len(queries)
    assert logits.shape == (len(queries), lm.vocab_size)


def test_entity_ids_do_not_depend_on_position(lm):
    encoded = lm.encode_prompt(THREE)
    entities = [lm.encode_entity(entity) for entity in ("swim", "wood", "dog cat")]
    tokens = tuple(token for ids in entities for token in ids + lm.entity_end)

    ids = lm.query(encoded, tuple(map(len, entities)), tokens[:-1]).ids

    assert occurs(entities[0], ids)
    assert occurs(entities[1], ids)
    assert occurs(entities[2][:-1], ids)


def occurs(part, ids):
    return any(ids[at : at + len(part)] == part for at in range(len(ids)))


def test_vocabulary_words_are_single_starting_tokens(lm):
    for word in ENTITIES:
        (token,) = lm.encode_entity(word)
        assert lm.starts_entity[token]


def test_canonical_texts_invert_encode_entity(lm):
    texts = ["paris", "dog cat", "fish in the wood", "parisrome"]

    assert lm.canonical_texts([lm.encode_entity(text) for text in texts]) == texts


def test_every_canonical_pair_of_tokens_encodes_to_itself(lm):
    starts, continues = np.flatnonzero(lm.starts_entity), np.flatnonzero(lm.continues_entity)
    sequences = [(int(first),) for first in starts] + [(int(a), int(b)) for a in starts for b in continues]

    for ids, text in zip(sequences, lm.canonical_texts(sequences), strict=True):
        assert text is None or lm.encode_entity(text) == ids


def test_entity_texts_have_normalized_whitespace(lm):
    starts, continues = np.flatnonzero(lm.starts_entity), np.flatnonzero(lm.continues_entity)
    texts = lm.canonical_texts([(int(first), int(second)) for first in starts for second in continues])

    assert all(text == " ".join(text.split()) for text in texts if text is not None)


def test_special_tokens_are_never_candidates(family, lm, folder_of):
    special = AutoTokenizer.from_pretrained(folder_of(family)).all_special_ids

    assert special
    assert not lm.starts_entity[special].any()
    assert not lm.continues_entity[special].any()


def test_starting_tokens_may_also_continue(lm):
    assert lm.starts_entity.shape == lm.continues_entity.shape == (lm.vocab_size,)
    assert not (lm.starts_entity & ~lm.continues_entity).any()


@pytest.mark.parametrize("entity", ["", "  ", "dog ☃"])
def test_unencodable_entity_raises_bad_seed(tiny, entity):
    with pytest.raises(BadSeed, match="cannot write"):
        tiny("bert").encode_entity(entity)


def test_special_token_in_entity_raises_bad_seed(family, lm, folder_of):
    for token in AutoTokenizer.from_pretrained(folder_of(family)).all_special_tokens:
        with pytest.raises(BadSeed):
            lm.encode_entity(f"dog {token}")


def test_too_long_prompt_raises_bad_prompt(lm):
    encoded = lm.encode_prompt(PromptTemplate.parse("<ENT0> is in <ENT1>" + " in a place" * 200))

    with pytest.raises(BadPrompt, match=r"exceeds the maximum of .* \(\d+\)"):
        lm.query(encoded, (1, 1), ())


def test_prompt_of_maximum_length_is_answered(lm):
    words = lm.max_tokens
    while True:
        encoded = lm.encode_prompt(PromptTemplate.parse("<ENT0>" + " in" * words + "<ENT1>"))
        try:
            query = lm.query(encoded, (1, 1), ())
            break
        except BadPrompt:
            words -= 1

    assert len(query.ids) == lm.max_tokens
    assert lm.vectors([query], 1, ignore_tick).isfinite().all()


def test_nan_weights_are_reported(family, folder_of):
    lm = load(str(folder_of(family)))
    with torch.no_grad():
        for name, weight in lm._network.named_parameters():
            if "norm" in name.lower() or "ln_" in name:
                weight.fill_(float("nan"))

    with pytest.raises(BrokenModel, match="NaN"):
        lm.vectors(questions(lm)[:2], 8, ignore_tick)


def test_padded_vocabulary_offers_no_padding_tokens(tmp_path):
    folder = tiny_bert(tmp_path)
    model = AutoModelForMaskedLM.from_pretrained(folder)
    size = model.config.vocab_size
    model.resize_token_embeddings(size + 7, mean_resizing=False)
    model.save_pretrained(folder)

    lm = load(str(folder))

    assert lm.vocab_size == size + 7
    assert not lm.starts_entity[size:].any()
    assert not lm.continues_entity[size:].any()


def test_bfloat16_is_close_to_float32(family, lm, folder_of):
    half = load(str(folder_of(family)), dtype="bfloat16")
    queries = questions(lm)

    logprobs = torch.log_softmax(half.logits(half.vectors(queries, 8, ignore_tick)), dim=-1)

    expected = torch.log_softmax(lm.logits(lm.vectors(queries, 8, ignore_tick)), dim=-1)
    assert half.dtype == torch.bfloat16
    assert (logprobs - expected).abs().mean() < 0.2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_matches_cpu(family, lm, folder_of):
    cuda = load(str(folder_of(family)), device="cuda")
    queries = questions(lm)

    logits = cuda.logits(cuda.vectors(queries, 8, ignore_tick)).cpu()

    torch.testing.assert_close(logits, lm.logits(lm.vectors(queries, 8, ignore_tick)), atol=1e-3, rtol=1e-3)
