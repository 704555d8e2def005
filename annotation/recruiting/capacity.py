"""Whether the people who joined a round can complete it."""

from __future__ import annotations

from math import ceil

from annotation.models import Annotator, Round


def what_blocks(round: Round, n_left: int) -> str | None:
    """Return, in a sentence, why the limit on what one annotator may judge keeps the round from its end, or None.

    n_left: judgments that are still wanted.
    """
    share = round.share_of_one
    if share is None or not round.is_open:
        return None
    judged = list(round.annotators.filter(status=Annotator.Status.ACTIVE).values_list("n_judged", flat=True))
    n_possible = sum(max(0, share - n) for n in judged)
    if n_left <= n_possible:
        return None
    n_missing = ceil((n_left - n_possible) / share)
    people = "people" if n_missing > 1 else "person"
    if not judged:
        return (
            f"{n_left} judgments are wanted and one annotator may judge {share} statements at most; invite at least "
            f"{n_missing} {people}."
        )
    return (
        f"{n_left} judgments are still wanted, but those who joined may give only {n_possible} more, as one annotator "
        f"may judge {share} statements at most; invite at least {n_missing} more {people}."
    )
