"""Assigned statements: who holds how many, since when nobody heard of them, and releasing them for others."""

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
    """An annotator who is assigned `n` statements, gold included.

    last_active_at: when they last loaded statements or answered. expires_at: from when on others are handed these.
    """

    annotator: Annotator
    n: int
    last_active_at: datetime
    expires_at: datetime


def holders(round: Round) -> list[Holder]:
    annotators = round.annotators.filter(assignments__status=LEASED).select_related("user", "invite")
    # All leases of one annotator are extended together, whenever they load statements or answer.
    holding = annotators.annotate(n_assigned=Count("assignments"), expires_at=Max("assignments__expires_at"))
    return [
        Holder(annotator, annotator.n_assigned, annotator.expires_at - LEASE, annotator.expires_at)
        for annotator in holding.order_by("expires_at", "code")
    ]


@transaction.atomic
def release_assigned(round: Round, codes: Collection[str] | None = None, by=None) -> int:
    """Release what the annotators with these codes are assigned, or all are; return how many statements that is.

    Others are handed them at once. An answer that comes later is one whose lease ran out (submit_judgment): it counts
    where its place is still free. Raises NotAllowed, NotFound.
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
    released = {annotator: n for annotator, n in n_of.items() if n}  # the rest answered while this waited for them
    for annotator, n in released.items():
        record("annotator.released", annotator, by, round=round, annotator=annotator, n=n)
    return sum(released.values())
