"""Bulk updates of task counters and verdicts."""

from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest, NullIf

from annotation.judging.verdicts import WANTED_IF_SPLIT, verdict_sql
from annotation.models import Annotator, Judgment, Label, Round, Stratum


def add_counts(tasks: QuerySet, round: Round, label: str, sign: int) -> None:
    """Add one judgment with this label to each task (sign 1), or subtract it (-1). Call update_verdicts afterwards."""
    changes = {f"n_{name}": F(f"n_{name}") + sign for name in ("judgments", label)}
    if round.third_only_if_split:
        changes["n_wanted"] = Greatest(F("n_wanted"), F("n_judgments") + F("n_leased") + sign)
    tasks.update(verdict="", **changes)


def update_verdicts(tasks: QuerySet, round: Round) -> None:
    """Update the verdicts of `tasks`, except gold, from their counters.

    With adaptive third judgments, also update n_wanted, including that of gold.
    """
    n_wanted = WANTED_IF_SPLIT if round.third_only_if_split else F("n_wanted")
    tasks.with_slots().update(n_wanted=n_wanted, verdict=verdict_sql(n_wanted, round.quorum))


def count_draws(round: Round) -> None:
    """Set the sample size of each stratum of imported statements to its number of draws."""
    for stratum in round.strata.filter(job=None).annotate(n_draws=Count("draws")):
        Stratum.objects.filter(pk=stratum.pk).update(sample_size=stratum.n_draws)


def recount(round: Round) -> None:
    """Set all counters and verdicts of an imported round from its judgments.

    The number of required judgments of a task is set to its number of judgments, including judgments of excluded
    annotators. Judgments of excluded annotators do not count and are treated as missing. If an annotator is reinstated,
    judgments that were imported during the exclusion count like earlier judgments.
    """
    excluded = round.annotators.filter(status=Annotator.Status.EXCLUDED)
    Judgment.objects.counted().filter(annotator__in=excluded).update(is_counted=False, is_excluded=True)
    round.tasks.update(
        verdict="",
        n_judgments=_n_judgments(Judgment.objects.counted()),
        n_wanted=Coalesce(NullIf(_n_judgments(Judgment.objects.current()), 0), round.judgments_per_task),
        **{f"n_{label}": _n_judgments(Judgment.objects.counted().filter(label=label)) for label in Label.values},
    )
    update_verdicts(round.tasks.all(), round)
    judged = Judgment.objects.current().filter(annotator=OuterRef("pk")).order_by().values("annotator")
    n_judged = Subquery(judged.annotate(n=Count("pk")).values("n"))
    round.annotators.update(n_judged=Coalesce(n_judged, F("n_judged")))


def _n_judgments(judgments: QuerySet) -> Coalesce:
    """Return a subquery that counts `judgments` of the updated task."""
    of_task = judgments.filter(task=OuterRef("pk")).order_by().values("task")
    return Coalesce(Subquery(of_task.annotate(n=Count("pk")).values("n")), 0)
