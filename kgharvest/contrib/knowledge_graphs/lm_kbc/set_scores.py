"""Precision, recall, and F1 of sets of answers, their averages, and score thresholds that maximize F1."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SetScore(NamedTuple):
    precision: float
    recall: float
    f1: float


def set_score(predicted: Collection[str], gold: Sequence[Collection[str]]) -> SetScore:
    """Return the score of a set of answers to one question, as defined by the LM-KBC challenge.

    gold: the names of each true answer; any of them counts. Precision is 1 without predictions, and recall is 1 without
    true answers. F1 is therefore 1 if both are empty, and 0 if only one of them is.
    """
    n_right = sum(not set(predicted).isdisjoint(names) for names in gold)
    precision = min(n_right / len(predicted), 1.0) if predicted else 1.0
    recall = n_right / len(gold) if gold else 1.0
    return SetScore(precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0)


def mean_score(scores: Sequence[SetScore]) -> SetScore:
    """Return the mean of each number. `scores` must not be empty."""
    return SetScore(*(sum(values) / len(scores) for values in zip(*scores, strict=True)))


def macro_score(scores: Mapping[str, Sequence[SetScore]]) -> SetScore:
    """Return the mean over relations of the mean over subjects. scores: those of the subjects of each relation."""
    return mean_score([mean_score(of_relation) for of_relation in scores.values()])


class Threshold(NamedTuple):
    """Decision "true if the score is at least `score`". f1: on the `n` judged tuples, of which `n_true` are true."""

    score: float
    f1: float
    n: int
    n_true: int


def best_threshold(
    scores: NDArray[np.float64], is_true: NDArray[np.bool_], weights: NDArray[np.float64]
) -> Threshold | None:
    """Return the threshold with the largest F1; for ties, the highest threshold. None if no judged tuple is true.

    scores, is_true: (N,), of judged tuples. weights: (N,), number of tuples that each represents: the inverse of its
    inclusion probability.
    """
    if not is_true.any():
        return None
    order = np.argsort(-scores, kind="stable")
    scores, is_true, weights = scores[order], is_true[order], weights[order]
    n_right, n_predicted = np.cumsum(weights * is_true), np.cumsum(weights)
    f1 = 2 * n_right / (n_predicted + n_right[-1])
    ends = np.flatnonzero(np.append(scores[:-1] > scores[1:], True))  # equal scores share a decision
    best = ends[f1[ends].argmax()]
    return Threshold(float(scores[best]), float(f1[best]), len(scores), int(is_true.sum()))
