"""Verdict update: bring the counters of tasks, and the verdicts that follow from them, in line with judgments."""

from __future__ import annotations

from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest, NullIf

from annotation.judging.verdicts import WANTED_IF_SPLIT, verdict_sql
from annotation.models import Annotator, Judgment, Label, Round, Stratum


def add_counts(tasks: QuerySet, round: Round, label: str, sign: int) -> None:
    """Add (`sign` 1) or take away (-1) one judgment with this label in each of `tasks`; `update_verdicts` must follow.

    In a round of imports a task's k is how many judgments it has, so k moves with them; without any it is the round's.
    Where a third is asked only when two differ, one more judgment than two makes a third wanted.
    """
    changes = {f"n_{name}": F(f"n_{name}") + sign for name in ("judgments", label)}
    if round.source == Round.Source.IMPORTED:
        changes["n_wanted"] = Coalesce(NullIf(F("n_judgments") + sign, 0), round.judgments_per_task)
    elif round.third_only_if_split:
        changes["n_wanted"] = Greatest(F("n_wanted"), F("n_judgments") + F("n_leased") + sign)
    tasks.update(verdict="", **changes)


def update_verdicts(tasks: QuerySet, round: Round) -> None:
    """Set the verdicts that the counters of `tasks` give (annotation.judging.verdicts), in one UPDATE.

    Where a third person is asked only when two differ, this is where they are asked for, or no more.
    """
    n_wanted = WANTED_IF_SPLIT if round.third_only_if_split else F("n_wanted")
    tasks.without_gold().update(n_wanted=n_wanted, verdict=verdict_sql(n_wanted, round.quorum))


# -- recount: after an import ------------------------------------------------------------------------------------------


def count_draws(round: Round) -> None:
    """Set the sample sizes of the strata whose statements came with imported judgments."""
    for stratum in round.strata.filter(job=None).annotate(n_draws=Count("draws")):
        Stratum.objects.filter(pk=stratum.pk).update(sample_size=stratum.n_draws)


def recount(round: Round) -> None:
    """Set all counters and verdicts of an imported round from its judgments; a task's k is how many it has.

    What an excluded annotator said in a new file counts once they are reinstated, like what they said before.
    """
    excluded = round.annotators.filter(status=Annotator.Status.EXCLUDED)
    Judgment.objects.counted().filter(annotator__in=excluded).update(is_counted=False, is_excluded=True)
    n_judgments = _n_counted_judgments()
    round.tasks.update(
        verdict="",
        n_judgments=n_judgments,
        n_wanted=Coalesce(NullIf(n_judgments, 0), round.judgments_per_task),
        **{f"n_{label}": _n_counted_judgments(label=label) for label in Label.values},
    )
    update_verdicts(round.tasks.all(), round)
    judged = Judgment.objects.current().filter(annotator=OuterRef("pk")).order_by().values("annotator")
    n_judged = Subquery(judged.annotate(n=Count("pk")).values("n"))
    round.annotators.update(n_judged=Coalesce(n_judged, F("n_judged")))


def _n_counted_judgments(**fields: str) -> Coalesce:
    """Return the subquery that counts the judgments of the task that is being updated."""
    counted = Judgment.objects.counted().filter(task=OuterRef("pk"), **fields).order_by().values("task")
    return Coalesce(Subquery(counted.annotate(n=Count("pk")).values("n")), 0)
