"""Selection of label tokens: a classifier trained on mask vectors scores the output embeddings of all tokens."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from kgharvest.contrib.probing.text_tasks.classification import choose_label_tokens, fit_logistic, log_odds

PLANTED = ((3, 17, 29), (5, 11, 31), (2, 23, 37))  # tokens of labels 0, 1, 2
V, D = 40, 16


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def embeddings(rng):
    """Return embeddings (V, d) in which planted tokens form one cluster per label."""
    centres = rng.normal(size=(len(PLANTED), D))
    embeddings = rng.normal(scale=0.2, size=(V, D))
    for centre, tokens in zip(centres, PLANTED, strict=True):
        embeddings[list(tokens)] += 3 * centre
    return embeddings


@pytest.fixture
def toy(rng, embeddings):
    """Return vectors (N, d) near the embeddings of planted tokens, and their labels (N,)."""
    labels = np.arange(120) % len(PLANTED)
    tokens = [rng.choice(PLANTED[label]) for label in labels]
    return embeddings[tokens] + rng.normal(scale=0.3, size=(120, D)), labels


def test_planted_label_tokens_are_selected(toy, embeddings):
    chosen = choose_label_tokens(*toy, embeddings, np.ones(V, dtype=bool), 3)

    assert tuple(map(set, chosen)) == tuple(map(set, PLANTED))


def test_label_tokens_are_distinct_and_allowed(toy, embeddings):
    allowed = np.arange(V) % 2 == 1

    chosen = choose_label_tokens(*toy, embeddings, allowed, 5)

    tokens = [token for tokens in chosen for token in tokens]
    assert [len(tokens) for tokens in chosen] == [5, 5, 5]
    assert len(set(tokens)) == 15
    assert allowed[tokens].all()


def test_too_few_tokens_are_distributed_among_labels(toy, embeddings):
    chosen = choose_label_tokens(*toy, embeddings, np.arange(V) < 4, 3)

    assert sorted(token for tokens in chosen for token in tokens) == [0, 1, 2, 3]


def test_fitted_classifier_minimizes_its_loss(toy):
    vectors, labels = toy
    weights, biases = fit_logistic(vectors, labels)

    def loss(weights, biases):
        logprobs = log_softmax(vectors @ weights.T + biases, axis=1)
        return -logprobs[np.arange(len(labels)), labels].sum() + (weights**2).sum() / 2

    rng = np.random.default_rng(1)
    for _ in range(20):
        step, shift = rng.normal(scale=1e-2, size=weights.shape), rng.normal(scale=1e-2, size=biases.shape)
        assert loss(weights + step, biases + shift) > loss(weights, biases)


def test_log_odds_rank_logits_with_equal_rounded_probabilities():
    logits = np.array([[0.0, 50.0], [0.0, 60.0], [0.0, 1.0]])

    odds = log_odds(logits)

    np.testing.assert_allclose(odds, logits - logits[:, ::-1])
    assert np.exp(log_softmax(logits, axis=1))[0, 1] == np.exp(log_softmax(logits, axis=1))[1, 1]
    assert odds[0, 1] < odds[1, 1]
