"""What the counters of tasks come to: verdicts, and how many judgments are wanted."""

from __future__ import annotations

from django.db.models import Case, Count, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Greatest, NullIf

from annotation.judging.verdicts import IMPORTED_QUORUM, Verdict, majority
from annotation.models import Annotator, Judgment, Label, Round, Stratum


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


def count_draws(round: Round) -> None:
    for stratum in round.strata.filter(job=None).annotate(n_draws=Count("draws")):
        Stratum.objects.filter(pk=stratum.pk).update(sample_size=stratum.n_draws)


def leave_out_the_excluded(round: Round) -> None:
    """What an excluded annotator said in this file counts once they are reinstated, like what they said before."""
    excluded = round.annotators.filter(status=Annotator.Status.EXCLUDED)
    of_excluded = Judgment.objects.counted().filter(annotator__in=excluded)
    of_excluded.update(is_counted=False, is_excluded=True)


def recount(round: Round) -> None:
    """Set all counters and verdicts of an imported round from its judgments; a task's k is how many it has."""
    counted = {label: Coalesce(Subquery(_n_counted(OuterRef("pk"), label=label)), 0) for label in Label.values}
    total = Coalesce(Subquery(_n_counted(OuterRef("pk"))), 0)
    round.tasks.update(
        verdict="",
        n_judgments=total,
        n_wanted=Coalesce(NullIf(total, 0), round.judgments_per_task),
        **{f"n_{label}": n for label, n in counted.items()},
    )
    patterns = round.tasks.filter(n_judgments__gt=0).order_by().values_list("n_true", "n_false", "n_judgments")
    for n_true, n_false, n in patterns.distinct():
        alike = round.tasks.filter(n_true=n_true, n_false=n_false, n_judgments=n)
        alike.update(verdict=majority(n_true, n_false, n, IMPORTED_QUORUM))
    judged = Judgment.objects.current().filter(annotator=OuterRef("pk")).order_by().values("annotator")
    n_judged = Subquery(judged.annotate(n=Count("pk")).values("n"))
    round.annotators.update(n_judged=Coalesce(n_judged, F("n_judged")))


def _n_counted(task: OuterRef, **fields: str):
    """Return the subquery that counts a task's judgments."""
    counted = Judgment.objects.counted().filter(task=task, **fields).order_by().values("task")
    return counted.annotate(n=Count("pk")).values("n")
