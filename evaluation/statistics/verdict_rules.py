"""What other rules would have decided. Each takes the judgments' counts per label (T, 3) and gives verdicts (T,)."""

from __future__ import annotations

import numpy as np

from evaluation.evidence.arrays import (
    ACCEPTED,
    FALSE,
    INCOMPLETE,
    REJECTED,
    TRUE,
    UNDECIDED,
    UNJUDGEABLE,
    Codes,
    Floats,
)


def majority(counts: Codes, quorum: int = 1) -> Codes:
    """The rule of annotation.judging.verdicts.majority, for many statements: more than half, and at least `quorum`."""
    n_judgments = counts.sum(axis=1)
    return _decided(*(_wins(counts[:, label], n_judgments, quorum) for label in (TRUE, FALSE)))


def _wins(n: Codes, n_judgments: Codes, quorum: int) -> np.ndarray:
    return (2 * n > n_judgments) & (n >= quorum)


def _decided(accepted: np.ndarray, rejected: np.ndarray) -> Codes:
    return np.where(accepted, ACCEPTED, np.where(rejected, REJECTED, UNDECIDED))


def unanimous(counts: Codes, quorum: int = 1) -> Codes:
    n_judgments = counts.sum(axis=1)
    is_enough = n_judgments >= quorum
    return _decided(*((counts[:, label] == n_judgments) & is_enough for label in (TRUE, FALSE)))


def unjudgeable_as_false(counts: Codes, quorum: int = 1) -> Codes:
    moved = np.stack(
        [counts[:, TRUE], counts[:, FALSE] + counts[:, UNJUDGEABLE], np.zeros_like(counts[:, TRUE])], axis=1
    )
    return majority(moved, quorum)


def by_model(labels: Floats, n_judgments: Codes) -> Codes:
    """Return what a model of annotators holds for more likely than not, from its probabilities (T, 2).

    Undecided on a statement that nobody called True or False.
    """
    is_judged = n_judgments > 0
    return _decided((labels[:, TRUE] > 0.5) & is_judged, (labels[:, FALSE] > 0.5) & is_judged)


def adjudicated(verdict: Codes, by_expert: Codes) -> Codes:
    """Return an expert's verdict (T,) where there is one, not INCOMPLETE, and the crowd's elsewhere."""
    return np.where(by_expert == INCOMPLETE, verdict, by_expert)


def where_complete(verdict: Codes, is_complete: np.ndarray) -> Codes:
    return np.where(is_complete, verdict, INCOMPLETE)
