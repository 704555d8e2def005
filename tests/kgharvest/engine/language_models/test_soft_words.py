"""Soft words: learned word vectors that affect only the sequences containing them."""

from __future__ import annotations

import pytest
import torch

from kgharvest.engine.language_models.base import Query
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.masked import SoftWords
from kgharvest.engine.types import UnsupportedModel
from tests.kgharvest.engine.tiny_models import tiny_albert, tiny_bert, tiny_distilbert, tiny_roberta

BUILD = {"bert": tiny_bert, "roberta": tiny_roberta, "distilbert": tiny_distilbert}


@pytest.fixture(scope="module", params=BUILD)
def lm(request, tmp_path_factory):
    return load(str(BUILD[request.param](tmp_path_factory.mktemp(request.param))))


@pytest.fixture
def sentence(lm):
    """Return the ids of [CLS] + six words + [SEP], with the fifth word masked."""
    words = lm.encode_entity("paris is the capital of france")
    frame = lm.tokens
    return (*frame.prefix, *words[:4], lm.mask_id, *words[5:], *frame.suffix)


def softened(lm, ids, positions):
    """Replace the words at `positions` by soft words with the same vectors; return the ids and the vectors."""
    vectors = lm.word_embeddings[[ids[position] for position in positions]].clone()
    soft = list(ids)
    for index, position in enumerate(positions):
        soft[position] = lm.vocab_size + index
    return tuple(soft), vectors


def answer(lm, ids, position=5):
    return lm.logits(lm.vectors([Query(ids, position)], 8, lambda: None))[0]


def test_soft_words_with_word_vectors_act_as_words(lm, sentence):
    ids, vectors = softened(lm, sentence, [1, 3])

    with_soft_words = answer(lm.with_soft_words(SoftWords(vectors)), ids)

    torch.testing.assert_close(with_soft_words, answer(lm, sentence), atol=1e-5, rtol=0)


def test_zero_deltas_change_nothing_and_nonzero_deltas_do(lm, sentence):
    ids, vectors = softened(lm, sentence, [2])
    zero = torch.zeros(1, lm.n_levels, vectors.shape[1])
    base = answer(lm, sentence)

    assert torch.allclose(answer(lm.with_soft_words(SoftWords(vectors, zero)), ids), base, atol=1e-5)
    for level in range(lm.n_levels):
        delta = zero.clone()
        delta[0, level] = torch.linspace(-1, 1, vectors.shape[1])
        assert (answer(lm.with_soft_words(SoftWords(vectors, delta)), ids) - base).abs().max() > 1e-3


def test_deltas_affect_only_sequences_with_soft_words(lm, sentence):
    ids, vectors = softened(lm, sentence, [2])
    perturbed = lm.with_soft_words(SoftWords(vectors, torch.ones(1, lm.n_levels, vectors.shape[1])))

    unaffected = perturbed.vectors([Query(ids, 5), Query(sentence, 5)], 8, lambda: None)[1]

    torch.testing.assert_close(lm.logits(unaffected[None])[0], answer(lm, sentence), atol=1e-5, rtol=0)


def test_soft_words_do_not_modify_lm(lm, sentence):
    ids, vectors = softened(lm, sentence, [2])
    before = answer(lm, sentence)

    answer(lm.with_soft_words(SoftWords(vectors + 1, torch.ones(1, lm.n_levels, vectors.shape[1]))), ids)

    assert torch.equal(answer(lm, sentence), before)


@pytest.mark.parametrize("deep", [False, True])
def test_gradients_match_finite_differences(lm, sentence, deep):
    ids, vectors = softened(lm, sentence, [1, 3])
    deltas = torch.zeros(2, lm.n_levels, vectors.shape[1])
    learned = (deltas if deep else vectors).requires_grad_()
    direction = torch.randn(learned.shape, generator=torch.Generator().manual_seed(1))
    question, position = torch.tensor([ids]), torch.tensor([5])

    def loss(values):
        soft = SoftWords(vectors, values) if deep else SoftWords(values, deltas)
        return torch.log_softmax(lm.with_soft_words(soft).logits_at(question, position), dim=-1)[0, 7]

    loss(learned).backward()
    step = 3e-3
    with torch.no_grad():
        difference = (loss(learned + step * direction) - loss(learned - step * direction)) / (2 * step)
    assert (learned.grad * direction).sum() == pytest.approx(difference.item(), rel=0.02)


def test_lm_with_shared_layers_refuses_deltas(tmp_path):
    albert = load(str(tiny_albert(tmp_path)))

    with pytest.raises(UnsupportedModel, match="first layer"):
        _ = albert.n_levels
