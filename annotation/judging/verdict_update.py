"""What the counters of tasks come to: verdicts, and how many judgments are wanted."""

from __future__ import annotations

from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, Greatest, NullIf

from annotation.judging.verdicts import IMPORTED_QUORUM, Verdict
from annotation.models import Round


def add_counts(tasks: QuerySet, round: Round, label: str, sign: int) -> None:
    """Add (`sign` 1) or take away (-1) one judgment with this label in each of `tasks`; verdicts are left to `settle`.

    In a round of imports a task's k is how many judgments it has, so k moves with them; without any it is the round's.
    Where a third is asked only when two differ, one more judgment than two makes a third wanted.
    """
    changes = {f"n_{name}": F(f"n_{name}") + sign for name in ("judgments", label)}
    if round.source == Round.Source.IMPORTED:
        changes["n_wanted"] = Coalesce(NullIf(F("n_judgments") + sign, 0), round.judgments_per_task)
    elif round.third_only_if_split:
        changes["n_wanted"] = Greatest(F("n_wanted"), F("n_judgments") + F("n_leased") + sign)
    tasks.update(verdict="", **changes)


def settle(tasks: QuerySet, round: Round) -> None:
    """Set the verdicts that the counters of `tasks` give (annotation.judging.verdicts.majority), in one UPDATE.

    Where a third person is asked only when two differ, this is where they are asked for, or no more: two equal labels
    out of three decide alike whatever the third says. A third who has the task in hand already keeps it.
    """
    quorum = IMPORTED_QUORUM if round.source == Round.Source.IMPORTED else 1
    n_wanted = N_WANTED_IF_SPLIT if round.third_only_if_split else F("n_wanted")
    tasks.without_gold().update(
        n_wanted=n_wanted,
        verdict=Case(
            When(n_judgments__lt=n_wanted, then=Value("")),
            When(_most("n_true") & Q(n_true__gte=quorum), then=Value(Verdict.ACCEPTED.value)),
            When(_most("n_false") & Q(n_false__gte=quorum), then=Value(Verdict.REJECTED.value)),
            default=Value(Verdict.UNDECIDED.value),
        ),
    )


def _most(counter: str) -> Q:
    return Q(n_judgments__lt=2 * F(counter))


TWO_AGREE = Q(n_true__gte=2) | Q(n_false__gte=2) | Q(n_unjudgeable__gte=2)
N_WANTED_IF_SPLIT = Greatest(
    Case(When(Q(n_judgments__gte=2) & ~TWO_AGREE, then=Value(3)), default=Value(2)), F("n_judgments") + F("n_leased")
)
