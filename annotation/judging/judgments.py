"""Store what people say, once, and keep count.

A task's slot goes from free to leased to counted; each step is one UPDATE of the task's counters, and the task's CHECK
constraint refuses what would exceed the judgments wanted. Locks are taken in the order annotator, assignment, task; who
holds all three knows every number that an answer changes, and writes it without asking again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from math import inf
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F

from annotation.judging.assignment import (
    RoundNotOpen,
    TrainingFirst,
    check_active,
    check_open,
    free_slots,
    lock,
    top_up,
)
from annotation.judging.verdict_update import update_verdicts
from annotation.models import (
    LONGEST_COMMENT,
    Annotator,
    Assignment,
    Judgment,
    JudgmentTask,
    Label,
    Round,
    StatementReport,
)
from annotation.quality.limits import enforce_limits
from kgharvest.errors import DomainError

COUNTERS = ("n_wanted", "n_leased", "n_judgments", "n_true", "n_false", "n_unjudgeable")
LOOKED_AT = [f"task__{name}" for name in ("is_gold", *COUNTERS)]  # the rest of a task need not be read for an answer
LONGEST_TIME_S = 600.0  # of active work on one statement; what is longer was somebody away


class NotAssigned(DomainError):
    """Judging a statement that this annotator was never given."""


class BadAnswer(DomainError):
    """A label, time or comment that cannot be."""


class UuidReused(DomainError):
    """The UUID of another answer."""


@dataclass(frozen=True)
class Answer:
    """What an annotator says about a task. client_uuid: made with the answer; sending it again changes nothing."""

    task_id: int
    label: str
    client_uuid: UUID
    seconds: float | None = None
    comment: str = ""


def submit_judgment(annotator: Annotator, answer: Answer, now: datetime) -> Judgment:
    """Store an answer and return its judgment; the same answer again returns the same judgment.

    A second answer of the same annotator to a task supersedes the first: this is how one goes back and changes one's
    mind. An answer whose lease ran out counts if the task still wants it and the annotator's share of the round has
    room besides what they hold; else it is kept but not counted.
    Raises BadAnswer, NotAssigned, UuidReused, RoundNotOpen.
    """
    with _all_or_nothing(answer):
        return _submit(lock(annotator), answer, now)


def submit_and_go_on(annotator: Annotator, answer: Answer, now: datetime) -> tuple[Judgment, list[JudgmentTask] | None]:
    """Store an answer as submit_judgment does, and top up what is in hand as next_batch does, in one transaction.

    None for the tasks where next_batch would refuse; the answer is stored all the same.
    """
    with _all_or_nothing(answer):
        annotator = lock(annotator)
        judgment = _submit(annotator, answer, now)
        with suppress(RoundNotOpen, TrainingFirst):
            return judgment, top_up(annotator, now)
        return judgment, None


@contextmanager
def _all_or_nothing(answer: Answer) -> Iterator[None]:
    """Take an answer in one transaction, if it is one."""
    _check(answer)
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if Judgment.objects.filter(pk=answer.client_uuid).exists():  # two annotators, one UUID, the same moment
            raise _uuid_reused(answer) from error
        raise


def _submit(annotator: Annotator, answer: Answer, now: datetime) -> Judgment:
    assignment = _assignment(annotator, answer)
    return _repeated(annotator, assignment, answer) or _store(annotator, assignment, answer, now)


def recent_judgments(annotator: Annotator, n: int) -> list[Judgment]:
    """Return the annotator's last words on the tasks judged last, newest first."""
    current = Judgment.objects.current().filter(annotator=annotator).select_related("task")
    return list(current.order_by("-judged_at")[:n])


def _check(answer: Answer) -> None:
    if answer.label not in Label.values:
        raise BadAnswer(f"{answer.label!r:.40} is no label; use one of {', '.join(Label.values)}.")
    check_comment(answer.comment)
    if answer.seconds is not None and not 0 <= answer.seconds < inf:
        raise BadAnswer(f"{answer.seconds} seconds for one statement cannot be; leave the time out.")


def check_comment(comment: str) -> None:
    if len(comment) > LONGEST_COMMENT:
        raise BadAnswer(f"The comment has {len(comment)} characters; shorten it to {LONGEST_COMMENT}.")


def _assignment(annotator: Annotator, answer: Answer) -> Assignment | None:
    """Return and lock the annotator's part in the task, and the task with it; None if they never had it."""
    mine = Assignment.objects.filter(annotator=annotator, task=answer.task_id).select_related("task")
    mine = mine.annotate(round_status=F("task__round__status")).only("status", *LOOKED_AT)
    return mine.select_for_update(of=("self", "task"), no_key=True).first()


def _repeated(annotator: Annotator, assignment: Assignment | None, answer: Answer) -> Judgment | None:
    """Return the judgment that this answer has become before, if it has. What is in hand has no answer yet."""
    if assignment and assignment.status == Assignment.Status.LEASED:
        return None
    stored = Judgment.objects.filter(pk=answer.client_uuid).select_related("task").first()
    if stored and (stored.annotator_id, stored.task_id) != (annotator.pk, answer.task_id):
        raise _uuid_reused(answer)
    return stored


def _uuid_reused(answer: Answer) -> UuidReused:
    return UuidReused(f"The UUID {answer.client_uuid} belongs to another answer; make a new one for each.")


def _store(annotator: Annotator, assignment: Assignment | None, answer: Answer, now: datetime) -> Judgment:
    _check_allowed(annotator, assignment, answer)
    judgment = Judgment(
        client_uuid=answer.client_uuid,
        task=assignment.task,
        annotator=annotator,
        label=answer.label,
        seconds=None if answer.seconds is None else min(answer.seconds, LONGEST_TIME_S),
        comment=answer.comment,
        judged_at=now,
    )
    if assignment.status == Assignment.Status.DONE:
        _supersede(judgment)
    else:
        judgment.is_counted = _fill_slot(assignment, annotator, answer.label)
        annotator.n_judged += 1
        Annotator.objects.filter(pk=annotator.pk).update(n_judged=annotator.n_judged)
    judgment.save(force_insert=True)
    enforce_limits(annotator)
    return judgment


def _check_allowed(annotator: Annotator, assignment: Assignment | None, answer: Answer) -> None:
    if assignment:
        # Asked again now that the annotator is locked: a round that is closing waits for this lock (wait_for_answers).
        annotator.round.status = assignment.round_status
    check_open(annotator.round)
    if annotator.status != Annotator.Status.PAUSED:  # what they had in hand when they were paused is still taken
        check_active(annotator)
    if assignment is None:
        raise NotAssigned(f"Statement {answer.task_id} was not given to you; reload the page for your statements.")


def _supersede(judgment: Judgment) -> None:
    """Let the new judgment take the place of the annotator's last one, counted or not."""
    last = Judgment.objects.current().get(task=judgment.task_id, annotator=judgment.annotator_id)
    judgment.is_counted = last.is_counted
    # The foreign key is checked at commit, when the new judgment is there.
    Judgment.objects.filter(pk=last.pk).update(superseded_by=judgment.pk)
    if last.is_counted and last.label != judgment.label:
        _count(judgment.task, judgment.annotator.round, **{last.label: -1, judgment.label: 1})


def _fill_slot(assignment: Assignment, annotator: Annotator, label: str) -> bool:
    """Count a first answer in the slot that was leased for it, or in a free one; return whether there was one.

    Gold has no slots: what is said about it is kept and counts nowhere.
    """
    task, was_leased = assignment.task, assignment.status == Assignment.Status.LEASED
    Assignment.objects.filter(pk=assignment.pk).update(status=Assignment.Status.DONE)
    if task.is_gold or not (was_leased or _may_still_count(task, annotator)):
        return False
    _count(task, annotator.round, leased=-was_leased, judgments=1, **{label: 1})
    return True


def _may_still_count(task: JudgmentTask, annotator: Annotator) -> bool:
    """Whether an answer without a lease finds a free slot, and room in the share besides what its annotator holds."""
    if task.n_wanted <= task.n_judgments + task.n_leased:
        return False
    share = annotator.round.share_of_one
    held = Assignment.objects.filter(annotator=annotator, status=Assignment.Status.LEASED)
    return share is None or annotator.n_judged + held.count() < share


def _count(task: JudgmentTask, round: Round, **changes: int) -> None:
    """Add `changes` to the counters of a task, which is locked; its verdict follows once nothing more is wanted."""
    counters = {f"n_{name}": getattr(task, f"n_{name}") + change for name, change in changes.items() if change}
    found = JudgmentTask.objects.filter(pk=task.pk)
    found.update(**counters)
    if round.third_only_if_split or counters.get("n_judgments", task.n_judgments) >= task.n_wanted:
        update_verdicts(found, round)


def skip_task(annotator: Annotator, task_id: int) -> None:
    """Give the lease on a task back. An answer that was given to it stays; skipping twice is skipping once.

    Raises NotAssigned, RoundNotOpen.
    """
    with transaction.atomic():
        check_open(lock(annotator).round)
        mine = Assignment.objects.filter(annotator=annotator, task=_assigned(annotator, task_id))
        if mine.filter(status=Assignment.Status.LEASED).update(status=Assignment.Status.SKIPPED):
            free_slots([task_id])
        mine.filter(status=Assignment.Status.EXPIRED).update(status=Assignment.Status.SKIPPED)


def take_up_skipped(annotator: Annotator) -> int:
    """Let what the annotator skipped be handed to them again; return how many tasks that is. Raises RoundNotOpen."""
    with transaction.atomic():
        check_open(lock(annotator).round)
        return annotator.assignments.skipped().update(status=Assignment.Status.EXPIRED)


def n_skipped(annotator: Annotator) -> int:
    """Return how many of the tasks that the annotator skipped still want judgments."""
    return annotator.round.tasks.with_open_slot().filter(assignments__in=annotator.assignments.skipped()).count()


def report_statement(annotator: Annotator, task_id: int, reason: str, comment: str, now: datetime) -> None:
    """Note that a statement is broken; a second report replaces the first. Raises BadAnswer, NotAssigned."""
    if reason not in StatementReport.Reason.values:
        raise BadAnswer(f"{reason!r:.40} is no reason; use one of {', '.join(StatementReport.Reason.values)}.")
    check_comment(comment)
    StatementReport.objects.update_or_create(
        task_id=_assigned(annotator, task_id),
        annotator=annotator,
        defaults={"reason": reason, "comment": comment, "reported_at": now},
    )


def _assigned(annotator: Annotator, task_id: int) -> int:
    """Return the id of a task that was given to the annotator at some time. Raises NotAssigned."""
    if not annotator.assignments.filter(task=task_id).exists():
        raise NotAssigned(f"Statement {task_id} was not given to you; reload the page for your statements.")
    return task_id
