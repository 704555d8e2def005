"""Hand out work.

Every annotator walks the round's random order as a cycle from a place of their own; `next_position` remembers how far
they are. What lies ahead in the first lap they have never touched, so finding the next tasks is a few index entries,
at any size of the round and after any number of judgments.

Locks are taken in one order: annotator, assignments, tasks. Tasks and other people's leases are taken with SKIP LOCKED,
so nobody waits for a batch and no two batches can block each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from annotation.models import Annotator, Assignment, JudgmentTask, Round
from kgharvest.errors import DomainError

LEASE = timedelta(minutes=30)
RELEASED_AT_ONCE = 100


class RoundNotOpen(DomainError):
    """Judging in a round that is not open."""


def next_batch(annotator: Annotator, now: datetime) -> list[JudgmentTask]:
    """Return the tasks the annotator has in hand, oldest first, topped up to the round's batch size.

    Each is leased to them until LEASE from now. Empty when nothing is left for them. Raises RoundNotOpen.
    """
    with transaction.atomic():
        annotator = lock(annotator)
        check_open(annotator.round)
        n_held = Assignment.objects.filter(annotator=annotator, status=Assignment.Status.LEASED).update(
            expires_at=now + LEASE
        )
        release_expired(now)
        _lease_more(annotator, annotator.round.batch_size - n_held, now)
        held = Assignment.objects.filter(annotator=annotator, status=Assignment.Status.LEASED)
        return [assignment.task for assignment in held.select_related("task").order_by("pk")]


def lock(annotator: Annotator) -> Annotator:
    """Return the annotator, fresh and locked until the transaction ends: what one person does happens in a row."""
    return Annotator.objects.select_for_update(of=("self",), no_key=True).select_related("round").get(pk=annotator.pk)


def check_open(round: Round) -> None:
    if not round.is_open:
        raise RoundNotOpen(f"The round {round.name} is {round.status}; judgments are taken only while it is open.")


def _lease_more(annotator: Annotator, n: int, now: datetime) -> None:
    tasks = _take(annotator, n) if n > 0 else []
    if not tasks:
        return
    JudgmentTask.objects.filter(pk__in=[task.pk for task in tasks]).update(n_leased=F("n_leased") + 1)
    Assignment.objects.bulk_create(
        [Assignment(task=task, annotator=annotator, expires_at=now + LEASE) for task in tasks],
        update_conflicts=True,  # a lease of theirs that expired before is leased anew
        unique_fields=["task", "annotator"],
        update_fields=["status", "expires_at"],
    )
    Annotator.objects.filter(pk=annotator.pk).update(next_position=tasks[-1].position + 1)


def _take(annotator: Annotator, n: int) -> list[JudgmentTask]:
    """Return and lock the next `n` open tasks in the annotator's cycle; fewer if there are no more."""
    untouched = annotator.round.tasks.with_open_slot().untouched_by(annotator).order_by("position")
    unlocked = untouched.select_for_update(skip_locked=True, of=("self",), no_key=True)
    ahead = list(unlocked.filter(position__gte=annotator.next_position)[:n])
    if len(ahead) == n:
        return ahead
    return ahead + list(unlocked.filter(position__lt=annotator.next_position)[: n - len(ahead)])


def release_expired(now: datetime) -> None:
    """Give the slots of leases that ran out back to their tasks; a hundred at a time, the rest with the next call."""
    expired = Assignment.objects.expired(now).select_related("task").order_by("expires_at")
    # Both rows are locked or passed over, so that two callers share the work and never wait for each other.
    leases = list(expired.select_for_update(skip_locked=True, of=("self", "task"), no_key=True)[:RELEASED_AT_ONCE])
    if leases:
        _release(leases)


def _release(leases: Sequence[Assignment]) -> None:
    Assignment.objects.filter(pk__in=[lease.pk for lease in leases]).update(status=Assignment.Status.EXPIRED)
    for task_id, n in Counter(lease.task_id for lease in leases).items():
        JudgmentTask.objects.filter(pk=task_id).update(n_leased=F("n_leased") - n)
