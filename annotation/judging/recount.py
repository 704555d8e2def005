"""Bring the counters of an imported round up to date with its judgments."""

from __future__ import annotations

from django.db.models import Count, F, OuterRef, Subquery
from django.db.models.functions import Coalesce, NullIf

from annotation.judging.verdicts import IMPORTED_QUORUM, majority
from annotation.models import Annotator, Judgment, Label, Round, Stratum


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
