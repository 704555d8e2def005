"""Verdict rules: each takes the counts of labels (T, 3) and returns codes of verdicts (T,)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgharvest.statistics.arrays import (
    ACCEPTED,
    FALSE,
    INCOMPLETE,
    REJECTED,
    TRUE,
    UNDECIDED,
    UNJUDGEABLE,
    Codes,
    Flags,
    Floats,
)

Number = int | Codes


def is_majority(n: Number, n_judgments: Number, quorum: int) -> Any:
    """Return whether `n` of `n_judgments`, Unjudgeable included, are more than half and at least `quorum`.

    The verdict rule, for integers and for arrays. annotation.judging.verdicts has it in SQL.
    """
    return (2 * n > n_judgments) & (n >= quorum)


def majority(counts: Codes, quorum: int = 1) -> Codes:
    n_judgments = counts.sum(axis=1)
    return _decided(*(is_majority(counts[:, label], n_judgments, quorum) for label in (TRUE, FALSE)))


def _decided(accepted: Flags, rejected: Flags) -> Codes:
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


def where_complete(verdict: Codes, is_complete: Flags) -> Codes:
    return np.where(is_complete, verdict, INCOMPLETE)
