"""Store what people say, once, and keep count.

A task's slot goes from free to leased to counted; each step is one UPDATE of the task's counters, and the task's CHECK
constraint refuses what would exceed the judgments wanted. Locks are taken in the order annotator, assignment, task.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import inf
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F

from annotation.models import LONGEST_COMMENT, Annotator, Assignment, Judgment, JudgmentTask, Label
from annotation.services.assignment import check_active, check_open, lock
from annotation.services.quality import look_at
from annotation.services.settling import settle
from kgharvest.errors import DomainError

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
    mind. An answer whose lease ran out counts if the task still wants it; otherwise it is kept but not counted.
    Raises BadAnswer, NotAssigned, UuidReused, RoundNotOpen.
    """
    _check(answer)
    try:
        with transaction.atomic():
            annotator = lock(annotator)
            stored = Judgment.objects.filter(pk=answer.client_uuid).first()
            return _repeated(stored, annotator, answer) if stored else _store(annotator, answer, now)
    except IntegrityError as error:
        if Judgment.objects.filter(pk=answer.client_uuid).exists():  # two annotators, one UUID, the same moment
            raise _uuid_reused(answer) from error
        raise


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


def _repeated(stored: Judgment, annotator: Annotator, answer: Answer) -> Judgment:
    if (stored.annotator_id, stored.task_id) != (annotator.pk, answer.task_id):
        raise _uuid_reused(answer)
    return stored


def _uuid_reused(answer: Answer) -> UuidReused:
    return UuidReused(f"The UUID {answer.client_uuid} belongs to another answer; make a new one for each.")


def _store(annotator: Annotator, answer: Answer, now: datetime) -> Judgment:
    check_open(annotator.round)
    if annotator.status != Annotator.Status.PAUSED:  # what they had in hand when they were paused is still taken
        check_active(annotator)
    assignment = _assignment(annotator, answer)
    judgment = Judgment(
        client_uuid=answer.client_uuid,
        task_id=answer.task_id,
        annotator=annotator,
        label=answer.label,
        seconds=None if answer.seconds is None else min(answer.seconds, LONGEST_TIME_S),
        comment=answer.comment,
        judged_at=now,
    )
    if assignment.status == Assignment.Status.DONE:
        changes_counts = _supersede(judgment)
    else:
        judgment.is_counted = changes_counts = _fill_slot(assignment, answer.label)
        Annotator.objects.filter(pk=annotator.pk).update(n_judged=F("n_judged") + 1)
    judgment.save(force_insert=True)
    if changes_counts:
        settle(JudgmentTask.objects.filter(pk=answer.task_id), annotator.round)
    look_at(annotator, annotator.n_judged + 1)
    return judgment


def _assignment(annotator: Annotator, answer: Answer) -> Assignment:
    mine = Assignment.objects.filter(annotator=annotator, task_id=answer.task_id)
    assignment = mine.annotate(round_status=F("annotator__round__status")).first()
    if assignment is None:
        raise NotAssigned(f"Statement {answer.task_id} was not given to you; reload the page for your statements.")
    # Asked again now that the annotator is locked: a round that is closing waits for this lock (wait_for_answers).
    annotator.round.status = assignment.round_status
    check_open(annotator.round)
    return assignment


def _supersede(judgment: Judgment) -> bool:
    """Let the new judgment take the place of the annotator's last one, counted or not; return whether counts change."""
    last = Judgment.objects.current().get(task=judgment.task_id, annotator=judgment.annotator_id)
    judgment.is_counted = last.is_counted
    # The foreign key is checked at commit, when the new judgment is there.
    Judgment.objects.filter(pk=last.pk).update(superseded_by=judgment.pk)
    if not last.is_counted or last.label == judgment.label:
        return False
    return _count(JudgmentTask.objects.filter(pk=judgment.task_id), **{last.label: -1, judgment.label: 1})


def _fill_slot(assignment: Assignment, label: str) -> bool:
    """Count a first answer in the slot that was leased for it, or in a free one; return whether there was one.

    Gold has no slots: what is said about it is kept and counts nowhere.
    """
    task = JudgmentTask.objects.without_gold().filter(pk=assignment.task_id)
    leased = Assignment.objects.filter(pk=assignment.pk, status=Assignment.Status.LEASED)
    if leased.update(status=Assignment.Status.DONE):
        return _count(task, leased=-1, judgments=1, **{label: 1})
    Assignment.objects.filter(pk=assignment.pk).update(status=Assignment.Status.DONE)
    return _count(task.with_open_slot(), judgments=1, **{label: 1})


def _count(task, **changes: int) -> bool:
    """Add `changes` to the counters of the task, in one UPDATE; return whether the query still found it."""
    return bool(task.update(**{f"n_{name}": F(f"n_{name}") + change for name, change in changes.items()}))
