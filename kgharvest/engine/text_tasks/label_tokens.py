"""Which tokens of an LM stand for the labels of a task (Shin et al. 2020, section 2.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from kgharvest.engine.language_models.base import TokenIds

Floats = NDArray[np.float64]


def choose_label_tokens(
    vectors: Floats, labels: NDArray[np.int64], output_embeddings: Floats, allowed: NDArray[np.bool_], k: int
) -> tuple[TokenIds, ...]:
    """Return k tokens for each label, the most telling first; no token stands for two labels.

    vectors: (N, d), what the LM projects where it is asked, of `labels` (N,) from 0. output_embeddings: (V, d), what it
    projects them with. allowed: (V,). Each token goes to the label for which a logistic regression of the labels on
    `vectors`, given the token's output embedding (Eq. 5), has the largest odds, until that label has k.
    """
    weights, biases = fit_logistic(vectors, labels)
    odds = log_odds(output_embeddings @ weights.T + biases)  # (V, L)
    odds[~allowed] = -np.inf
    chosen: list[list[int]] = [[] for _ in biases]
    taken: set[int] = set()
    for index in np.argsort(-odds, axis=None, kind="stable")[: int(allowed.sum()) * len(biases)].tolist():
        token, label = divmod(index, len(biases))
        if token not in taken and len(chosen[label]) < k:
            chosen[label].append(token)
            taken.add(token)
    return tuple(map(tuple, chosen))


def log_odds(logits: Floats) -> Floats:
    """Return (V, L): the log-odds of softmax(`logits`), which order as the probabilities but never tie."""
    others = np.stack([logsumexp(np.delete(logits, label, axis=1), axis=1) for label in range(logits.shape[1])], axis=1)
    odds: Floats = logits - others
    return odds


def fit_logistic(vectors: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the weights (L, d) and biases (L,) that minimise the summed log-loss plus half the squared weights."""
    n_labels, width = int(labels.max()) + 1, vectors.shape[1]
    is_label = np.eye(n_labels)[labels]  # (N, L)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights, biases = flat[: n_labels * width].reshape(n_labels, width), flat[n_labels * width :]
        logits = vectors @ weights.T + biases  # (N, L)
        logprobs = logits - logsumexp(logits, axis=1, keepdims=True)
        excess = np.exp(logprobs) - is_label
        gradient = np.concatenate([(excess.T @ vectors + weights).ravel(), excess.sum(axis=0)])
        return -float((logprobs * is_label).sum()) + 0.5 * float((weights**2).sum()), gradient

    flat = minimize(loss, np.zeros(n_labels * (width + 1)), jac=True, method="L-BFGS-B").x
    return flat[: n_labels * width].reshape(n_labels, width), flat[n_labels * width :]
