"""What the judgments of one task say together."""

from __future__ import annotations

from enum import StrEnum

IMPORTED_QUORUM = 2  # imported judgments have no k of their own, so one alone decides nothing


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"


def majority(n_true: int, n_false: int, n_judgments: int, quorum: int = 1) -> Verdict:
    """Return the verdict of a complete task that received `n_judgments`, those of Unjudgeable included.

    Accepted (rejected) if more than half of all judgments, and at least `quorum` of them, are True (False).
    A tie is undecided, and so is a task that nobody judged.
    """
    if 2 * n_true > n_judgments and n_true >= quorum:
        return Verdict.ACCEPTED
    if 2 * n_false > n_judgments and n_false >= quorum:
        return Verdict.REJECTED
    return Verdict.UNDECIDED
