"""Recomputation of the counters and verdicts of statements from their judgments."""

from collections.abc import Iterator

from django.db.models import Count, F, Q

from annotation.judging.verdicts import task_verdict, verdict_sql
from annotation.models import Label, Round

COUNTED = Q(judgments__superseded_by=None, judgments__is_counted=True)
N_COUNTED = {f"counted_{label}": Count("judgments", COUNTED & Q(judgments__label=label)) for label in Label.values}


def wrong_verdicts(only: Round | None = None) -> Iterator[str]:
    """Yield an error for each statement whose counters or verdict differ from its judgments. only: None for all rounds.

    The number of required judgments must not be smaller than the round permits.
    """
    rounds = Round.objects.exclude(status=Round.Status.DRAFT).select_related("project").order_by("pk")
    for round in rounds if only is None else [only]:
        least = 2 if round.third_only_if_split else round.least_k
        is_right = Q(n_wanted__gte=least, verdict=verdict_sql(F("n_wanted"), round.quorum))
        is_right &= Q(**{f"n_{label}": F(f"counted_{label}") for label in Label.values})
        tasks = round.tasks.without_gold().order_by("pk").annotate(**N_COUNTED).exclude(is_right)
        for pk, verdict, n_wanted, *counted in tasks.values_list("pk", "verdict", "n_wanted", *N_COUNTED):
            expected = task_verdict(*counted, max(n_wanted, least), round.quorum) or "none"
            yield (
                f"The verdict or the counters of statement {pk} in the round {round.path} were altered: its "
                f"{sum(counted)} judgments give the verdict {expected}, but {verdict or 'none'} is stored."
            )
