"""Reservations: statements of a round that only some of its annotators, such as experts, may judge.

Other annotators receive no reserved statements. If such a statement is already leased to another annotator, the lease
stays valid. The number of required judgments does not change.
"""

from collections.abc import Collection
from math import ceil
from typing import Any

from django.db import transaction
from django.utils import timezone

from annotation.judging.assignment import wait_for_answers
from annotation.models import Reservation, Round
from annotation.rounds.services import WrongStatus
from kgharvest.access import Action, check_may
from kgharvest.errors import DomainError, NotFound
from kgharvest.events.recording import record


@transaction.atomic
def reserve_statements(round: Round, codes: Collection[str], by=None, **lookup: Any) -> Reservation:
    """Reserve incomplete statements for the annotators with these codes.

    lookup: `knowledge_tuple__relation` with the id of a relation, or `pk__in` with ids of statements. Complete
    statements, and statements of another reservation are not reserved. Unless the round reuses gold, the same share of
    gold is reserved, so that the group receives gold, and others do not recognize it. Raises NotAllowed, NotFound,
    WrongStatus, or DomainError NothingToReserve.
    """
    _lock_round(round, by)
    annotators = list(round.annotators.able().filter(code__in=codes))
    if unknown := set(codes) - {annotator.code for annotator in annotators}:
        raise NotFound(f"Round {round.name} has no annotator {min(unknown)!r:.40} who can judge.")
    chosen = round.tasks.without_gold().filter(**lookup)
    if chosen.count() < len(set(lookup.get("pk__in", ()))):
        raise NotFound(f"Some of these ids are gold or do not belong to round {round.name}.")
    reservation = Reservation.objects.create(round=round, n_reserved=0, created_by=by)
    reservation.annotators.set(annotators)
    reservation.n_reserved = n = chosen.filter(reservation=None, verdict="").update(reservation=reservation)
    if not n:
        raise DomainError("NothingToReserve", "All these statements are complete or reserved. Choose other statements.")
    gold = round.tasks.gold().with_slots()
    if "pk__in" in lookup:
        n_gold = ceil(round.n_gold * n / (round.n_tasks - round.n_gold))
    else:
        gold = gold.filter(**lookup)
        n_gold = gold.count()
    reserved_gold = gold.filter(reservation=None).order_by("pk").values_list("pk", flat=True)[:n_gold]
    gold.filter(pk__in=list(reserved_gold)).update(reservation=reservation)
    reservation.save(update_fields=["n_reserved"])
    names = ", ".join(sorted(annotator.code for annotator in annotators))
    record("round.reserved", round, by, round=round, n=n, annotators=names)
    return reservation


@transaction.atomic
def release_reservation(reservation: Reservation, by=None) -> int:
    """Return the statements of a reservation to the pool. Return the number of incomplete statements. Idempotent.

    Raises NotAllowed or WrongStatus.
    """
    round = reservation.round
    _lock_round(round, by)
    n = reservation.statements_left.count()
    if Reservation.objects.filter(pk=reservation.pk, released_at=None).update(released_at=timezone.now()):
        round.tasks.filter(reservation=reservation).update(reservation=None)
        record("round.reservation_released", round, by, round=round, n=n)
    return n


def _lock_round(round: Round, by) -> None:
    """Check the permission and the status of the round, and wait until its annotators finish their requests."""
    check_may(by, Action.WORK, round.project)
    running = Round.objects.filter(pk=round.pk, status__in=[Round.Status.OPEN, Round.Status.PAUSED])
    if not running.update(has_reservations=True):
        raise WrongStatus(f"Round {round.name} is {round.status}. Reserve statements while it is open or paused.")
    wait_for_answers(round)
