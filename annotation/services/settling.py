"""Counters and verdicts of many tasks at once."""

from __future__ import annotations

from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, NullIf

from annotation.models import Round
from annotation.services.judgments import IMPORTED_QUORUM
from annotation.verdicts import Verdict


def add_counts(tasks: QuerySet, round: Round, label: str, sign: int) -> None:
    """Add (`sign` 1) or take away (-1) one judgment with this label in each of `tasks`; verdicts are left to `settle`.

    In a round of imports a task's k is how many judgments it has, so k moves with them; without any it is the round's.
    """
    changes = {f"n_{name}": F(f"n_{name}") + sign for name in ("judgments", label)}
    if round.source == Round.Source.IMPORTED:
        changes["n_wanted"] = Coalesce(NullIf(F("n_judgments") + sign, 0), round.judgments_per_task)
    tasks.update(verdict="", **changes)


def settle(tasks: QuerySet, round: Round) -> None:
    """Set the verdicts that the counters of `tasks` give (annotation.verdicts.majority), in one UPDATE."""
    quorum = IMPORTED_QUORUM if round.source == Round.Source.IMPORTED else 1
    tasks.without_gold().update(
        verdict=Case(
            When(n_judgments__lt=F("n_wanted"), then=Value("")),
            When(_most("n_true") & Q(n_true__gte=quorum), then=Value(Verdict.ACCEPTED.value)),
            When(_most("n_false") & Q(n_false__gte=quorum), then=Value(Verdict.REJECTED.value)),
            default=Value(Verdict.UNDECIDED.value),
        )
    )


def _most(counter: str) -> Q:
    return Q(n_judgments__lt=2 * F(counter))
