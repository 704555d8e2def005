"""Assigned statements of a round: counts and last activity per annotator, and release for reassignment."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef

from annotation.judging.assignment import LEASE, release_leases
from annotation.models import Annotator, Assignment, Round
from kgharvest.access import Action, check_may
from kgharvest.errors import NotFound
from kgharvest.events.recording import record

LEASED = Assignment.Status.LEASED


class Holder(NamedTuple):
    """An annotator with `n` assigned statements, including gold.

    last_active_at: last time they loaded statements or answered. expires_at: when the statements can be reassigned.
    """

    annotator: Annotator
    n: int
    last_active_at: datetime
    expires_at: datetime


def holders(round: Round) -> list[Holder]:
    annotators = round.annotators.filter(assignments__status=LEASED).select_related("user", "invite")
    # All leases of an annotator are extended together when they load statements or answer.
    annotators = annotators.annotate(n_assigned=Count("assignments"), expires_at=Max("assignments__expires_at"))
    return [
        Holder(annotator, annotator.n_assigned, annotator.expires_at - LEASE, annotator.expires_at)
        for annotator in annotators.order_by("expires_at", "code")
    ]


@transaction.atomic
def release_assigned(round: Round, codes: Collection[str] | None = None, by=None) -> int:
    """Release the statements assigned to the annotators with these codes, or to all; return the number of statements.

    They can be reassigned immediately. A later answer is treated as one with an expired lease (submit_judgment): it
    counts if the statement needs another judgment. Raises NotAllowed or NotFound.
    """
    check_may(by, Action.WORK, round.project)
    annotators = round.annotators.all()
    if codes is not None:
        if unknown := set(codes) - set(annotators.values_list("code", flat=True)):
            raise NotFound(f"Round {round.name} has no annotator {min(unknown)!r:.40}. Its page lists assignments.")
        annotators = annotators.filter(code__in=codes)
    leased = Assignment.objects.filter(annotator=OuterRef("pk"), status=LEASED)
    locked = annotators.filter(Exists(leased)).order_by("pk").select_for_update(no_key=True)
    n_of = {annotator: release_leases(Assignment.objects.filter(annotator=annotator)) for annotator in locked}
    released = {
        annotator: n for annotator, n in n_of.items() if n
    }  # the rest answered while this call waited for locks
    for annotator, n in released.items():
        record("annotator.released", annotator, by, round=round, annotator=annotator, n=n)
    return sum(released.values())
