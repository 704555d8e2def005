"""Leave a statement to others, or tell that it is broken. Neither is a judgment.

A skipped task counts as taken by the annotator, so that it does not come back by itself. It can be had again once they
ask for it: with exactly k annotators, a task that one of them skipped for good could never get its k judgments.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from annotation.judging.assignment import check_open, free_slots, lock
from annotation.judging.judgments import BadAnswer, NotAssigned, check_comment
from annotation.models import Annotator, Assignment, StatementReport


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
