"""Verdicts of tasks from the counters of JudgmentTask.

The rule is kgharvest.statistics.verdicts.is_majority; a property test compares this rule with the SQL version in this
module.
"""

from enum import StrEnum

from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Greatest

from kgharvest.statistics.verdicts import IMPORTED_QUORUM, is_majority  # noqa: F401  # used with the verdicts here


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"


def majority(n_true: int, n_false: int, n_judgments: int, quorum: int = 1) -> Verdict:
    """Return the verdict of a complete task: undecided for a tie or no judgments.

    n_judgments: number of judgments, including Unjudgeable.
    """
    if is_majority(n_true, n_judgments, quorum):
        return Verdict.ACCEPTED
    if is_majority(n_false, n_judgments, quorum):
        return Verdict.REJECTED
    return Verdict.UNDECIDED


def wanted_if_split(n_true: int, n_false: int, n_unjudgeable: int, n_leased: int = 0) -> int:
    """Return the number of required judgments of a task with an adaptive third judgment.

    Two equal labels determine the verdict of three judgments. A third judgment that is already leased stays required.
    """
    n_judgments = n_true + n_false + n_unjudgeable
    is_split = n_judgments >= 2 and max(n_true, n_false, n_unjudgeable) < 2
    return max(3 if is_split else 2, n_judgments + n_leased)


def task_verdict(n_true: int, n_false: int, n_unjudgeable: int, n_wanted: int, quorum: int = 1) -> Verdict | None:
    """Return the verdict of a task, or None while it is incomplete."""
    n_judgments = n_true + n_false + n_unjudgeable
    return None if n_judgments < n_wanted else majority(n_true, n_false, n_judgments, quorum)


_TWO_AGREE = Q(n_true__gte=2) | Q(n_false__gte=2) | Q(n_unjudgeable__gte=2)
WANTED_IF_SPLIT = Greatest(
    Case(When(Q(n_judgments__gte=2) & ~_TWO_AGREE, then=Value(3)), default=Value(2)), F("n_judgments") + F("n_leased")
)


def verdict_sql(n_wanted: F | Greatest, quorum: int) -> Case:
    """Return `task_verdict` as SQL over the counters of JudgmentTask, with "" for None and for gold."""
    return Case(
        When(is_gold=True, then=Value("")),
        When(n_judgments__lt=n_wanted, then=Value("")),
        When(n_judgments__lt=2 * F("n_true"), n_true__gte=quorum, then=Value(Verdict.ACCEPTED.value)),
        When(n_judgments__lt=2 * F("n_false"), n_false__gte=quorum, then=Value(Verdict.REJECTED.value)),
        default=Value(Verdict.UNDECIDED.value),
    )
