"""Assignment: hand out tasks as leases that run out, and take leases back.

Every annotator walks the round's random order as a cycle from a place of their own; `next_position` remembers how far
they are. What lies ahead in the first lap they have never touched, so finding the next tasks is a few index entries,
at any size of the round and after any number of judgments. Gold comes at positions of its own, but it comes, expires
and comes again as other tasks do, by as many statements of SQL.

Locks are taken in one order: annotator, assignments, tasks. Tasks and other people's leases are taken with SKIP LOCKED,
so nobody waits for a batch and no two batches can block each other.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from math import ceil

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from annotation.judging.models import AssignmentQuerySet
from annotation.judging.verdict_update import update_verdicts
from annotation.models import Annotator, Assignment, JudgmentTask, Round
from annotation.rounds.models import JudgmentTaskQuerySet, RoundNotOpen
from kgharvest.bulk.prepared import Parameter, PreparedSelect, PreparedUpdate
from kgharvest.errors import DomainError

Tasks = Callable[[], JudgmentTaskQuerySet]  # with Parameters: `annotator`, `round`

LEASE = timedelta(minutes=30)
RELEASED_AT_ONCE = 100


class ComesFirst(DomainError):
    """Judging before what comes first."""


class QuestionsFirst(ComesFirst):
    """Judging before the questions of the round are answered, or after its check was failed."""


class TrainingFirst(ComesFirst):
    """Judging before the training of the round."""


class AnnotatorNotActive(RoundNotOpen):
    """Asking for work while one is paused or excluded; the sentence does not say why."""

    def __init__(self, annotator: Annotator):
        super().__init__(
            f"Your part in the round {annotator.round.name} is paused and your answers are stored. The people who run "
            "the round have been told and will look at it; you need not do anything."
        )


# Assignment


def next_batch(annotator: Annotator, now: datetime, few: int | None = None) -> list[JudgmentTask]:
    """Return the annotator's assigned tasks, oldest first, filled up to the round's batch size.

    Each is leased to them until LEASE from now. Empty when nothing is left for them. few: fill up only when fewer tasks
    than these are left. Raises RoundNotOpen, AnnotatorNotActive, QuestionsFirst and TrainingFirst.
    """
    with transaction.atomic():
        return fill_batch(Annotator.objects.lock(annotator.pk), now, few)


def fill_batch(annotator: Annotator, now: datetime, few: int | None = None) -> list[JudgmentTask]:
    """Do what next_batch does for an annotator who is locked, within the caller's transaction; it refuses first."""
    round = annotator.round
    round.check_open()
    if annotator.status != Annotator.Status.ACTIVE:
        raise AnnotatorNotActive(annotator)
    check_questions_answered(annotator)
    if round.training_size and annotator.trained_at is None:
        raise TrainingFirst(f"Judging in the round {round.name} begins with a short training; finish it first.")
    n_leased = _extend_leases(annotator=annotator.pk, expires_at=now + LEASE)
    share = annotator.quota
    n_most = round.batch_size if share is None else min(round.batch_size, share - annotator.n_judged)
    if n_leased < (n_most if few is None else min(n_most, few)):
        release_expired(now)
        _lease_more(annotator, n_most - n_leased, now)
    return _assigned_tasks(annotator=annotator.pk)


def check_questions_answered(annotator: Annotator) -> None:
    if annotator.has_questions_left:
        raise QuestionsFirst(f"Judging in the round {annotator.round.name} begins with questions; answer them first.")


_extend_leases = PreparedUpdate(
    lambda: Assignment.objects.filter(annotator=Parameter(Assignment, "annotator"), status=Assignment.Status.LEASED),
    "expires_at",
)


@PreparedSelect
def _assigned_tasks() -> QuerySet[JudgmentTask]:
    tasks = JudgmentTask.objects.filter(
        assignments__annotator=Parameter(Assignment, "annotator"), assignments__status=Assignment.Status.LEASED
    )
    return tasks.only("statement", "spans").order_by("assignments__pk")


def _lease_more(annotator: Annotator, n: int, now: datetime) -> None:
    """Lease the next `n` open tasks in the annotator's cycle to them, or fewer if there are no more.

    The round is looked at anew: it may have been closed while this annotator waited to be locked (wait_for_answers).
    """
    tasks = _next_in_cycle(annotator, _untouched, n)
    if tasks and annotator.round.gold_rate:
        tasks = _mix_in_gold(annotator, tasks)
    if len(tasks) < n and annotator.round.n_gold:
        returned = annotator.assignments.filter(status=Assignment.Status.EXPIRED)
        tasks += wanted_gold(annotator, returned)[: n - len(tasks)]
    if not tasks:
        return
    JudgmentTask.objects.without_gold().filter(pk__in=[task.pk for task in tasks]).update(n_leased=F("n_leased") + 1)
    Assignment.objects.bulk_create(
        [Assignment(task=task, annotator=annotator, expires_at=now + LEASE) for task in tasks],
        update_conflicts=True,  # a lease of theirs that expired before is leased anew
        unique_fields=["task", "annotator"],
        update_fields=["status", "expires_at"],
    )
    positions = [task.position for task in tasks if not task.is_gold]
    Annotator.objects.filter(pk=annotator.pk).update(
        next_position=positions[-1] + 1 if positions else annotator.next_position,
        n_handed_out=F("n_handed_out") + len(tasks),
    )


def _mix_in_gold(annotator: Annotator, tasks: list[JudgmentTask]) -> list[JudgmentTask]:
    """Return as many tasks, gold ones at the annotator's own positions, as long as there is gold they were never given.

    Gold has no slots that could run out: nothing is locked, and nobody waits for it. It is looked for even where no
    place is due: how long a reply takes must not tell whether gold is in it.
    """
    round = annotator.round
    positions = gold_positions(round.seed, annotator.code, round.gold_rate, annotator.n_handed_out, len(tasks))
    gold = _next_in_cycle(annotator, _gold_never_given, max(1, len(positions)))[: len(positions)]
    mixed = tasks[: len(tasks) - len(gold)]
    for position, task in zip(positions, gold, strict=False):
        mixed.insert(position, task)
    return mixed


def wanted_gold(annotator: Annotator, given: AssignmentQuerySet) -> JudgmentTaskQuerySet:
    """Return the gold among these assignments that would still want judgments if it were no gold.

    What an annotator skipped or kept too long comes back only while fewer than k others have judged it and the round
    has open tasks at all; gold that came back without fail would be told by that.
    """
    round = annotator.round
    k = 2 if round.third_only_if_split else round.judgments_per_task
    n_said = Count("judgments", filter=Q(judgments__superseded_by=None))
    wanted = round.tasks.gold().filter(Exists(round.tasks.with_open_slot()), pk__in=given.values("task"))
    return wanted.alias(n_said=n_said).filter(n_said__lt=k)


def _next_in_cycle(annotator: Annotator, tasks: Tasks, n: int) -> list[JudgmentTask]:
    where = {"annotator": annotator.pk, "round": annotator.round_id, "position": annotator.next_position}
    ahead = _first_of(tasks, "position__gte", n)(**where)
    if len(ahead) == n:
        return ahead
    return ahead + _first_of(tasks, "position__lt", n - len(ahead))(**where)


@cache
def _first_of(tasks: Tasks, lookup: str, n: int) -> PreparedSelect[JudgmentTask]:
    return PreparedSelect(
        lambda: (
            tasks()
            .filter(**{lookup: Parameter(JudgmentTask, "position")})
            .only("round", "position", "is_gold")
            .order_by("position")[:n]
        )
    )


def _untouched() -> JudgmentTaskQuerySet:
    open_tasks = _tasks_of_round().filter(round__status=Round.Status.OPEN).with_open_slot()
    untouched = open_tasks.filter(~Exists(_given().taken()))
    return untouched.select_for_update(skip_locked=True, of=("self",), no_key=True)


def _gold_never_given() -> JudgmentTaskQuerySet:
    return _tasks_of_round().gold().filter(~Exists(_given()))


def _tasks_of_round() -> JudgmentTaskQuerySet:
    return JudgmentTask.objects.filter(round=Parameter(JudgmentTask, "round"))


def _given() -> AssignmentQuerySet:
    return Assignment.objects.filter(annotator=Parameter(Assignment, "annotator"), task=OuterRef("pk"))


# Positions in the cycle


def start_position(seed: int, code: str, n: int) -> int:
    """Return where in a cycle of `n` tasks the annotator `code` begins: anywhere, but fixed by seed and code."""
    return _digest(f"{seed}:{code}") % n


def gold_positions(seed: int, code: str, gold_share: float, first: int, n: int) -> list[int]:
    """Return which of the next `n` statements of the annotator `code` are gold: offsets from `first`, ascending.

    first: how many they were handed out before. Their statements fall into stretches of 1/gold_share; each stretch has
    one gold statement at a position fixed by seed and code, so that gold is spread evenly and nobody can tell where.
    """
    if not gold_share:
        return []
    offsets = []
    for stretch in range(max(int(first * gold_share) - 1, 0), int((first + n) * gold_share) + 1):
        begin, end = ceil(stretch / gold_share), ceil((stretch + 1) / gold_share)
        offsets.append(begin + _digest(f"{seed}:{code}:gold:{stretch}") % (end - begin) - first)
    return [offset for offset in offsets if 0 <= offset < n]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


# Release


def release_expired(now: datetime) -> None:
    """Release leases that ran out; a hundred at a time, the rest with the next call."""
    if leases := _expired_leases(expires_at=now):
        _expire(leases)


@PreparedSelect
def _expired_leases() -> QuerySet[Assignment]:
    expired = Assignment.objects.filter(
        status=Assignment.Status.LEASED, expires_at__lt=Parameter(Assignment, "expires_at")
    )
    expired = expired.select_related("task").only("task", "task__id").order_by("expires_at")
    # Both rows are locked or passed over, so that two callers share the work and never wait for each other.
    return expired.select_for_update(skip_locked=True, of=("self", "task"), no_key=True)[:RELEASED_AT_ONCE]


def release_leases(assignments: AssignmentQuerySet) -> int:
    """End those of these that are leases, whose annotators the caller has locked; return how many they were."""
    leased = assignments.filter(status=Assignment.Status.LEASED).select_for_update(no_key=True).order_by("task")
    n = 0
    while leases := list(leased[:RELEASED_AT_ONCE]):
        _expire(leases)
        n += len(leases)
    return n


def release_batch(annotator: Annotator) -> int:
    """Release all that is leased to the annotator, who may be handed it again; return how many tasks that is."""
    with transaction.atomic():
        return release_leases(Assignment.objects.filter(annotator=Annotator.objects.lock(annotator.pk)))


def _expire(leases: Sequence[Assignment]) -> None:
    Assignment.objects.filter(pk__in=[lease.pk for lease in leases]).update(status=Assignment.Status.EXPIRED)
    free_slots([lease.task_id for lease in leases])


def free_slots(task_ids: Sequence[int]) -> None:
    """Give the slots of leases on these tasks back; gold has none. `task_ids`: one for each lease.

    Where a third person held a lease when the first two came to agree, no third is wanted any more.
    """
    by_n_leases = defaultdict(list)
    for task_id, n in Counter(task_ids).items():
        by_n_leases[n].append(task_id)
    for n, ids in by_n_leases.items():
        JudgmentTask.objects.without_gold().filter(pk__in=ids).update(n_leased=F("n_leased") - n)
    for round in Round.objects.filter(third_only_if_split=True, tasks__in=task_ids).distinct():
        update_verdicts(round.tasks.filter(pk__in=task_ids), round)


def wait_for_answers(round: Round) -> None:
    """Let the answers that are being stored come to their end, within the transaction that closes or pauses the round.

    An answer is stored under its annotator's lock and looks at the round once it has that. So whoever had the lock
    before is stored when this returns, and whoever gets it after sees the new status: no answer comes later. The caller
    must hold no annotator's lock.
    """
    annotators = Annotator.objects.filter(round=round).order_by("pk").select_for_update(no_key=True)
    list(annotators.values_list("pk"))
