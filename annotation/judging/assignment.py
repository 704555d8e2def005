"""Assignment: lease tasks to annotators, and release expired leases.

The tasks of a round, including gold, have a random order. Each annotator goes through the tasks in a cycle that begins
at an individual start position; `next_position` stores the annotator's progress. In the first lap, all tasks ahead are
new to the annotator, so finding the next tasks reads only a few index entries, regardless of the size of the round.
Assignment does not distinguish gold from other tasks, so no group of annotators can recognize gold by the statements
that they receive, or by the order of these statements.

Rounds that reuse gold are the exception. Their gold has separate positions and no slots, but leases on gold are
created, expire, and are renewed like leases on other tasks, with the same number of SQL statements.

Lock order: annotator, assignments, tasks. Tasks and other annotators' leases are locked with SKIP LOCKED, so batches
never wait for each other.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from math import ceil

from django.db import transaction
from django.db.models import Case, Count, Exists, F, IntegerField, Min, OuterRef, Q, QuerySet, When
from django.db.models.fields.json import KT

from annotation.judging.models import AssignmentQuerySet
from annotation.judging.verdict_update import update_verdicts
from annotation.models import Annotator, Assignment, JudgmentTask, Reservation, Round
from annotation.rounds.models import JudgmentTaskQuerySet, RoundNotOpen
from kgharvest.bulk.prepared import Parameter, PreparedSelect, PreparedUpdate
from kgharvest.errors import DomainError

Tasks = Callable[[], JudgmentTaskQuerySet]  # returns a query with the Parameters `annotator` and `round`

LEASE = timedelta(minutes=30)
START_WINDOW = 50  # positions
RELEASED_AT_ONCE = 100


class ComesFirst(DomainError):
    """Raised if a required step before judging is incomplete."""


class QuestionsFirst(ComesFirst):
    """Raised if the annotator has not answered the questions of the round, or failed the comprehension check."""


class TrainingFirst(ComesFirst):
    """Raised if the training is unfinished."""


class AnnotatorNotActive(RoundNotOpen):
    """Raised if the annotator is paused or excluded. The message must not reveal why."""

    def __init__(self, annotator: Annotator):
        super().__init__(
            f"You are paused in round {annotator.round.name}. Your answers are stored. The researchers have been "
            "notified and will review this. You do not need to do anything."
        )


def next_batch(annotator: Annotator, now: datetime, few: int | None = None) -> list[JudgmentTask]:
    """Return the annotator's leased tasks, oldest first, after leasing more tasks up to the batch size of the round.

    All leases are extended to LEASE from now. The list is empty if no task is left for the annotator. few: the batch is
    filled up only if it has fewer than `few` tasks. Raises RoundNotOpen, AnnotatorNotActive, QuestionsFirst, or
    TrainingFirst.
    """
    with transaction.atomic():
        return fill_batch(Annotator.objects.lock(annotator.pk), now, few)


def fill_batch(annotator: Annotator, now: datetime, few: int | None = None) -> list[JudgmentTask]:
    """Same as next_batch, for a locked annotator in the caller's transaction. Errors are raised before any write."""
    round = annotator.round
    round.check_open()
    if annotator.status != Annotator.Status.ACTIVE:
        raise AnnotatorNotActive(annotator)
    check_questions_answered(annotator)
    if round.training_size and annotator.trained_at is None:
        raise TrainingFirst(f"Complete the training of round {round.name} before you judge.")
    n_leased = _extend_leases(annotator=annotator.pk, expires_at=now + LEASE)
    quota = annotator.quota
    batch_size = round.batch_size if quota is None else min(round.batch_size, quota - annotator.n_judged)
    if n_leased < (batch_size if few is None else min(batch_size, few)):
        release_expired(now)
        _lease_more(annotator, batch_size - n_leased, now)
    return _assigned_tasks(annotator=annotator.pk)


def check_questions_answered(annotator: Annotator) -> None:
    if annotator.has_questions_left:
        raise QuestionsFirst(f"Answer the questions of round {annotator.round.name} before you judge.")


_extend_leases = PreparedUpdate(
    lambda: Assignment.objects.filter(annotator=Parameter(Assignment, "annotator"), status=Assignment.Status.LEASED),
    "expires_at",
)


@PreparedSelect
def _assigned_tasks() -> QuerySet[JudgmentTask]:
    tasks = JudgmentTask.objects.filter(
        assignments__annotator=Parameter(Assignment, "annotator"), assignments__status=Assignment.Status.LEASED
    )
    return tasks.only("statement", "spans", "additions").order_by("assignments__pk")


def _lease_more(annotator: Annotator, n: int, now: datetime) -> None:
    """Lease up to `n` more open tasks in the annotator's cycle.

    The query checks the status of the round again, because the round may have been closed while this transaction waited
    for the annotator's lock (wait_for_answers).
    """
    tasks = _next_tasks(annotator, n)
    round = annotator.round
    if tasks and round.gold_reuse and round.n_gold:
        tasks = _mix_in_gold(annotator, tasks)
    if len(tasks) < n and round.gold_reuse:
        returned = annotator.assignments.filter(status=Assignment.Status.EXPIRED)
        tasks += wanted_gold(returned)[: n - len(tasks)]
    if not tasks:
        return
    JudgmentTask.objects.with_slots().filter(pk__in=[task.pk for task in tasks]).update(n_leased=F("n_leased") + 1)
    Assignment.objects.bulk_create(
        [Assignment(task=task, annotator=annotator, expires_at=now + LEASE) for task in tasks],
        update_conflicts=True,  # renews an expired lease
        unique_fields=["task", "annotator"],
        update_fields=["status", "expires_at"],
    )
    positions = [task.position for task in tasks if not (task.is_gold and round.gold_reuse)]
    Annotator.objects.filter(pk=annotator.pk).update(
        next_position=positions[-1] + 1 if positions else annotator.next_position,
        n_handed_out=F("n_handed_out") + len(tasks),
    )


def _next_tasks(annotator: Annotator, n: int) -> list[JudgmentTask]:
    """Lock and return up to `n` tasks: first the annotator's reserved tasks, then tasks of the pool."""
    if not annotator.round.has_reservations:
        tasks = _next_in_cycle(annotator, _untouched, n)
        if not any(task.reservation_id for task in tasks):
            return tasks
        # The round got its first reservation while this transaction waited for the annotator's lock, so the loaded flag
        # is outdated. The tasks were read later.
        annotator.round.has_reservations = True
    tasks = []
    for reservation in _own_reservations(id=annotator.pk):
        tasks += _next_in_cycle(annotator, _reserved, n - len(tasks), reservation=reservation.pk)
        if len(tasks) == n:
            return tasks
    return tasks + _next_in_cycle(annotator, _pooled, n - len(tasks))


@PreparedSelect
def _own_reservations() -> QuerySet[Reservation]:
    """Return the annotator's reservations with open tasks, if the round is still open (see _lease_more)."""
    own = Reservation.objects.filter(annotators=Parameter(Annotator, "id"), released_at=None)
    own = own.filter(round__status=Round.Status.OPEN)
    return own.filter(Exists(JudgmentTask.objects.with_open_slot().filter(reservation=OuterRef("pk")))).only("pk")


def _mix_in_gold(annotator: Annotator, tasks: list[JudgmentTask]) -> list[JudgmentTask]:
    """Replace tasks with reused gold at the annotator's gold positions, unless the annotator has received all gold.

    Gold needs no lock because it has no slots. Gold is queried even if no gold position is due, so that response times
    do not reveal gold.
    """
    round = annotator.round
    positions = gold_positions(round.seed, annotator.code, round.gold_rate, annotator.n_handed_out, len(tasks))
    if round.cluster_size:
        n_gold = annotator.assignments.filter(task__is_gold=True).count()
        n_missed = int(annotator.n_handed_out * round.gold_rate) - n_gold  # for lack of a place in earlier batches
        positions = _between_subjects(round, tasks, sorted({*range(n_missed)[: len(tasks)], *positions}))
    gold = _next_in_cycle(annotator, _new_gold, max(1, len(positions)))[: len(positions)]
    mixed = tasks[: len(tasks) - len(gold)]
    for position, task in zip(positions, gold, strict=False):
        mixed.insert(position, task)
    return mixed


def _between_subjects(round: Round, tasks: list[JudgmentTask], positions: list[int]) -> list[int]:
    """Move positions of gold so that it does not separate statements of a subject, which would reveal gold.

    Gold displaces the last tasks. Positions without a place are omitted, for example if all tasks have one subject.
    """
    around = [tasks[0].position - 1, *(task.position for task in tasks)]
    subjects = dict(round.tasks.filter(position__in=around).values_list("position", KT("entities__0")))
    names = [subjects.get(place, "").casefold() for place in around]
    free = [number for number, (one, other) in enumerate(pairwise(names)) if one != other]
    positions = positions[: len(tasks) - free[0]] if free else []
    free = [place for place in free if place <= len(tasks) - len(positions)]
    nearest = sorted(min(free, key=lambda place: abs(place - position)) for position in positions)
    return [place + n_before for n_before, place in enumerate(nearest)]


def wanted_gold(assignments: AssignmentQuerySet) -> JudgmentTaskQuerySet:
    """Return the reused gold among these assignments that would still need judgments if it were an ordinary task.

    Skipped and expired reused gold is assigned again only while it has fewer than k judgments and the round has open
    tasks. If it were always assigned again, annotators could recognize it.
    """
    n_judged = Count("judgments", filter=Q(judgments__superseded_by=None))
    in_round = F("round__judgments_per_task")
    k = Case(When(round__third_only_if_split=True, then=2), default=in_round, output_field=IntegerField())
    open_tasks = JudgmentTask.objects.filter(round=OuterRef("round")).with_open_slot()
    wanted = JudgmentTask.objects.gold().filter(Exists(open_tasks), n_wanted=0, pk__in=assignments.values("task"))
    # Min: k is the same for all judgments of a task, but PostgreSQL requires an aggregate.
    return wanted.alias(n_judged=n_judged, k=Min(k)).filter(n_judged__lt=F("k"))


def _next_in_cycle(annotator: Annotator, tasks: Tasks, n: int, **parameters: int) -> list[JudgmentTask]:
    parameters |= {"annotator": annotator.pk, "round": annotator.round_id, "position": annotator.next_position}
    ahead = _first_of(tasks, "position__gte", n)(**parameters)
    if len(ahead) == n:
        return ahead
    return ahead + _first_of(tasks, "position__lt", n - len(ahead))(**parameters)


@cache
def _first_of(tasks: Tasks, lookup: str, n: int) -> PreparedSelect[JudgmentTask]:
    return PreparedSelect(
        lambda: (
            tasks()
            .filter(**{lookup: Parameter(JudgmentTask, "position")})
            .only("round", "position", "is_gold", "reservation")
            .order_by("position")[:n]
        )
    )


def _untouched() -> JudgmentTaskQuerySet:
    return _locked_untouched(_tasks_of_round().filter(round__status=Round.Status.OPEN))


def _pooled() -> JudgmentTaskQuerySet:
    return _untouched().filter(reservation=None)


def _reserved() -> JudgmentTaskQuerySet:
    # Without a join, because SQLite would begin with a small table of rounds and then sort the tasks.
    return _locked_untouched(JudgmentTask.objects.filter(reservation=Parameter(JudgmentTask, "reservation")))


def _locked_untouched(tasks: JudgmentTaskQuerySet) -> JudgmentTaskQuerySet:
    untouched = tasks.with_open_slot().filter(~Exists(_given().taken()))
    return untouched.select_for_update(skip_locked=True, of=("self",), no_key=True)


def _new_gold() -> JudgmentTaskQuerySet:
    return _tasks_of_round().gold().filter(~Exists(_given()))


def _tasks_of_round() -> JudgmentTaskQuerySet:
    return JudgmentTask.objects.filter(round=Parameter(JudgmentTask, "round"))


def _given() -> AssignmentQuerySet:
    return Assignment.objects.filter(annotator=Parameter(Assignment, "annotator"), task=OuterRef("pk"))


# Positions in the cycle


def start_position(round: Round, code: str) -> int:
    """Return the start position of annotator `code`, derived from the seed of the round and the code.

    All annotators start within the first START_WINDOW positions, so the judged statements of an unfinished round are
    complete, except for a few. With clusters, they start anywhere, because annotators at the same place of the order
    would share the statements of each subject.
    """
    return _digest(f"{round.seed}:{code}") % (round.n_tasks if round.cluster_size else min(round.n_tasks, START_WINDOW))


def gold_positions(seed: int, code: str, gold_share: float, first: int, n: int) -> list[int]:
    """Return the positions, in ascending order, of the gold statements among the next `n` statements of an annotator.

    first: number of statements assigned before, from which positions are counted. Each block of 1/gold_share
    statements has one gold statement at a pseudorandom position derived from seed and code, so gold is evenly
    distributed but unpredictable.
    """
    if not gold_share:
        return []
    offsets = []
    for block in range(max(int(first * gold_share) - 1, 0), int((first + n) * gold_share) + 1):
        begin, end = ceil(block / gold_share), ceil((block + 1) / gold_share)
        offsets.append(begin + _digest(f"{seed}:{code}:gold:{block}") % (end - begin) - first)
    return [offset for offset in offsets if 0 <= offset < n]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


# Release


def release_expired(now: datetime) -> None:
    """Release at most RELEASED_AT_ONCE expired leases; the next call releases more."""
    if leases := _expired_leases(expires_at=now):
        _expire(leases)


@PreparedSelect
def _expired_leases() -> QuerySet[Assignment]:
    expired = Assignment.objects.filter(
        status=Assignment.Status.LEASED, expires_at__lt=Parameter(Assignment, "expires_at")
    )
    expired = expired.select_related("task").only("task", "task__id").order_by("expires_at")
    # SKIP LOCKED on both rows, so concurrent callers share the work without waiting.
    return expired.select_for_update(skip_locked=True, of=("self", "task"), no_key=True)[:RELEASED_AT_ONCE]


def release_leases(assignments: AssignmentQuerySet) -> int:
    """Release the leases among these assignments and return their number. The caller must lock the annotators."""
    leased = assignments.filter(status=Assignment.Status.LEASED).select_for_update(no_key=True).order_by("task")
    n = 0
    while leases := list(leased[:RELEASED_AT_ONCE]):
        _expire(leases)
        n += len(leases)
    return n


def release_batch(annotator: Annotator) -> int:
    """Release all leases of the annotator and return their number.

    The annotator returns to the first of these tasks, so releasing does not give access to more tasks.
    """
    with transaction.atomic():
        leased = Annotator.objects.lock(annotator.pk).assignments.filter(status=Assignment.Status.LEASED)
        return_to_first(annotator, leased)
        return release_leases(leased)


def return_to_first(annotator: Annotator, assignments: AssignmentQuerySet) -> None:
    """Move the position of the locked annotator back to the earliest of these assignments, if there are any."""
    in_order = assignments.exclude(task__n_wanted=0).order_by("pk")  # reused gold is not in the order
    if (position := in_order.values_list("task__position", flat=True).first()) is not None:
        Annotator.objects.filter(pk=annotator.pk).update(next_position=position)


def _expire(leases: Sequence[Assignment]) -> None:
    Assignment.objects.filter(pk__in=[lease.pk for lease in leases]).update(status=Assignment.Status.EXPIRED)
    free_slots([lease.task_id for lease in leases])


def free_slots(task_ids: Sequence[int]) -> None:
    """Release the judgment slots leased on these tasks. task_ids: one id per lease. Reused gold has no slots.

    With adaptive third judgments, a task whose first two labels agree then no longer needs a third judgment.
    """
    by_n_leases = defaultdict(list)
    for task_id, n in Counter(task_ids).items():
        by_n_leases[n].append(task_id)
    for n, ids in by_n_leases.items():
        JudgmentTask.objects.with_slots().filter(pk__in=ids).update(n_leased=F("n_leased") - n)
    for round in Round.objects.filter(third_only_if_split=True, tasks__in=task_ids).distinct():
        update_verdicts(round.tasks.filter(pk__in=task_ids), round)


def wait_for_answers(round: Round) -> None:
    """Wait for answers that are being stored. Called in the transaction that closes or pauses the round.

    Each answer is stored under its annotator's lock, after the status of the round is checked under the same lock. When
    this function returns, all answers that acquired the lock earlier are stored, and later answers see the new status.
    The caller must not hold the lock of an annotator.
    """
    annotators = Annotator.objects.filter(round=round).order_by("pk").select_for_update(no_key=True)
    list(annotators.values_list("pk"))
