"""Judgments: store answers, skips, and reports of annotators, and update the counters of tasks.

A slot of a task changes from free to leased to counted. Each step is one UPDATE of the task's counters, whose CHECK
constraint rejects more judgments than required. Lock order: annotator, assignment, task. While all three locks are
held, the loaded counters are current, so new values are written without another query.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import inf
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from annotation.judging.assignment import (
    AnnotatorNotActive,
    ComesFirst,
    fill_batch,
    free_slots,
    return_to_first,
    wanted_gold,
)
from annotation.judging.verdicts import majority, wanted_if_split
from annotation.models import (
    LONGEST_COMMENT,
    Annotator,
    Assignment,
    Judgment,
    JudgmentTask,
    Label,
    Reservation,
    StatementReport,
)
from annotation.quality.limits import CHECK_LIMITS_EVERY, enforce_limits
from annotation.rounds.models import RoundNotOpen
from kgharvest.bulk.prepared import Parameter, PreparedInsert, PreparedSelect, PreparedUpdate
from kgharvest.errors import DomainError

# Columns of a task that are needed to store an answer.
TASK_COLUMNS = [
    f"task__{name}"
    for name in ("is_gold", "n_wanted", "n_leased", "n_judgments", "n_true", "n_false", "n_unjudgeable", "verdict")
]
WRITTEN = [name.removeprefix("task__") for name in TASK_COLUMNS if name != "task__is_gold"]
LONGEST_TIME_S = 600.0  # active time per statement; longer times are truncated because they probably include absence

NOT_ASSIGNED = "This statement is not assigned to you. Reload the page to get your current statements."


@dataclass(frozen=True)
class Answer:
    """An answer to a task. client_uuid: idempotency key created with the answer. wrong_part: see Judgment."""

    task_id: int
    label: str
    client_uuid: UUID
    seconds: float | None = None
    comment: str = ""
    wrong_part: str = ""
    opened_reference: bool | None = None


# Answers


def submit_judgment(annotator: Annotator, answer: Answer, now: datetime) -> Judgment:
    """Store an answer and return its judgment. Idempotent for the same client_uuid.

    A second answer to a task supersedes the first. An answer whose lease has expired counts if the task still needs a
    judgment and if the annotator's judgments and leases are below the quota. Otherwise, the answer is stored but does
    not count. Raises BadAnswer, NotAssigned, UuidReused, or RoundNotOpen.
    """
    return submit_and_fill_batch(annotator, answer, now, fills=False)[0]


def submit_and_fill_batch(
    annotator: Annotator, answer: Answer, now: datetime, *, fills: bool = True
) -> tuple[Judgment, list[JudgmentTask] | None]:
    """Call submit_judgment and, if `fills`, next_batch in one transaction.

    If next_batch raises RoundNotOpen or ComesFirst, the answer is stored and the tasks are None.
    """
    if answer.label not in Label.values:
        raise DomainError("BadAnswer", f"Unknown label {answer.label!r:.40}. Use one of {', '.join(Label.values)}.")
    if len(answer.comment) > LONGEST_COMMENT:
        raise _too_long(answer.comment)
    if answer.seconds is not None and not 0 <= answer.seconds < inf:
        raise DomainError(
            "BadAnswer", f"Invalid time: {answer.seconds} seconds. Omit it or send a non-negative number."
        )
    try:
        with transaction.atomic():
            annotator, tasks = Annotator.objects.lock(annotator.pk), None
            judgment = _submit(annotator, answer, now)
            if fills:
                with suppress(RoundNotOpen, ComesFirst):
                    tasks = fill_batch(annotator, now)
            return judgment, tasks
    except IntegrityError as error:
        if Judgment.objects.filter(pk=answer.client_uuid).exists():  # concurrent answers with the same UUID
            raise _uuid_reused(answer) from error
        raise


def _too_long(comment: str) -> DomainError:
    return DomainError("BadAnswer", f"The comment has {len(comment)} characters. Use at most {LONGEST_COMMENT}.")


def _uuid_reused(answer: Answer) -> DomainError:
    return DomainError(
        "UuidReused", f"UUID {answer.client_uuid} was already used for another answer. Generate a UUID per answer."
    )


def _submit(annotator: Annotator, answer: Answer, now: datetime) -> Judgment:
    """Same as submit_judgment, for a locked annotator in the caller's transaction."""
    assignment = next(iter(_locked_assignment(annotator=annotator.pk, task=answer.task_id)), None)
    if assignment is None or assignment.status != Assignment.Status.LEASED:  # a leased task has no answer yet
        stored = Judgment.objects.filter(pk=answer.client_uuid).select_related("task").first()
        if stored and (stored.annotator_id, stored.task_id) != (annotator.pk, answer.task_id):
            raise _uuid_reused(answer)
        if stored:
            return stored
    if assignment:
        # This status was read under the annotator's lock. Closing a round waits for this lock (wait_for_answers).
        annotator.round.status = assignment.round_status
    annotator.round.check_open()
    if annotator.status == Annotator.Status.EXCLUDED:  # paused annotators may answer leased tasks
        raise AnnotatorNotActive(annotator)
    if assignment is None:
        raise DomainError("NotAssigned", NOT_ASSIGNED)
    task = assignment.task
    valid_parts = task.wrong_parts if answer.label == Label.FALSE else [""]
    if answer.wrong_part not in valid_parts:
        if not answer.wrong_part:
            raise DomainError("BadAnswer", f"Choose which part is wrong (wrong_part: {', '.join(valid_parts)}).")
        expected = f"Use one of {', '.join(valid_parts)}." if valid_parts != [""] else "Omit it."
        raise DomainError("BadAnswer", f"Invalid wrong part {answer.wrong_part!r:.40}. {expected}")
    judgment = Judgment(
        client_uuid=answer.client_uuid,
        task=task,
        annotator=annotator,
        label=answer.label,
        seconds=None if answer.seconds is None else min(answer.seconds, LONGEST_TIME_S),
        comment=answer.comment,
        wrong_part=answer.wrong_part,
        opened_reference=answer.opened_reference if "references" in (task.additions or {}) else None,
        judged_at=now,
    )
    _store(judgment, assignment)
    if annotator.n_judged % CHECK_LIMITS_EVERY == 0:
        enforce_limits(annotator)
    return judgment


def _store(judgment: Judgment, assignment: Assignment) -> None:
    """Store the judgment of a locked assignment, decide whether it counts, and update the task's counters and verdict.

    Answers to gold fill slots like other answers, unless the round reuses gold, but never count. They run the same SQL
    queries as other answers, so that response times do not reveal gold.
    """
    task, annotator, was_leased = judgment.task, judgment.annotator, assignment.status == Assignment.Status.LEASED
    round, changes = annotator.round, {}  # changes to the task's counters, by counter
    if assignment.status == Assignment.Status.DONE:
        # Supersede the last judgment. The new judgment counts if the last judgment counted.
        last = Judgment.objects.current().get(task=task, annotator=annotator)
        judgment.is_counted, judgment.is_late = last.is_counted, last.is_late
        judgment.fills_gold_slot = last.fills_gold_slot
        judgment.opened_reference = last.opened_reference or judgment.opened_reference
        # The deferred foreign key is checked at commit, after the new judgment is inserted.
        Judgment.objects.filter(pk=last.pk).update(superseded_by=judgment.pk)
        if (last.is_counted or last.fills_gold_slot) and last.label != judgment.label:
            changes = {last.label: -1, judgment.label: 1}
    else:  # fill the leased slot or, if the lease expired, a free slot
        _set_done(id=assignment.pk)
        has_slot = was_leased
        if not was_leased:
            # Check the quota first, so that late answers to gold run the same queries as other late answers.
            quota, leased = annotator.quota, annotator.assignments.filter(status=Assignment.Status.LEASED)
            has_room = quota is None or annotator.n_judged + leased.count() < quota
            has_slot = has_room and task.n_wanted > task.n_judgments + task.n_leased
        has_slot = has_slot and task.n_wanted > 0  # reused gold has no slots
        judgment.is_late, judgment.is_counted = not was_leased, has_slot and not task.is_gold
        judgment.fills_gold_slot = has_slot and task.is_gold
        if has_slot:
            changes = {"leased": -was_leased, "judgments": 1, judgment.label: 1}
        annotator.n_judged += 1
        _set_n_judged(id=annotator.pk, n_judged=annotator.n_judged)
    for name, change in changes.items():
        setattr(task, f"n_{name}", getattr(task, f"n_{name}") + change)
    if changes and round.third_only_if_split:
        task.n_wanted, task.verdict = wanted_if_split(task.n_true, task.n_false, task.n_unjudgeable, task.n_leased), ""
    # Same rule as update_verdicts, which works in bulk.
    if changes and task.n_judgments >= task.n_wanted and not task.is_gold:
        task.verdict = majority(task.n_true, task.n_false, task.n_judgments, round.quorum)
    _set_counts(id=task.pk, **{name: getattr(task, name) for name in WRITTEN})
    _insert_judgment(judgment)


# Prepared SQL statements


@PreparedSelect
def _locked_assignment() -> QuerySet[Assignment]:
    assignments = Assignment.objects.filter(
        annotator=Parameter(Assignment, "annotator"), task=Parameter(Assignment, "task")
    )
    assignments = assignments.select_related("task").annotate(round_status=F("task__round__status"))
    return assignments.only("status", "task__additions", *TASK_COLUMNS).select_for_update(
        of=("self", "task"), no_key=True
    )


_set_done = PreparedUpdate(
    lambda: Assignment.objects.filter(pk=Parameter(Assignment, "id")), status=Assignment.Status.DONE
)
_set_counts = PreparedUpdate(lambda: JudgmentTask.objects.filter(pk=Parameter(JudgmentTask, "id")), *WRITTEN)
_set_n_judged = PreparedUpdate(lambda: Annotator.objects.filter(pk=Parameter(Annotator, "id")), "n_judged")
_insert_judgment = PreparedInsert(Judgment)


# Skips and reports


def skip_task(annotator: Annotator, task_id: int) -> None:
    """Release the lease on a task. A stored answer is kept. Idempotent.

    Raises NotAssigned, RoundNotOpen, or DomainError SkipLimit.
    """
    with transaction.atomic():
        locked = Annotator.objects.lock(annotator.pk)
        locked.round.check_open()
        _check_assigned(annotator, task_id)
        assignment = Assignment.objects.filter(annotator=annotator, task=task_id)
        n_others = locked.assignments.skipped().exclude(task=task_id).count()
        if n_others >= locked.most_skipped and assignment.exclude(status=Assignment.Status.DONE).exists():
            raise DomainError(
                "SkipLimit",
                f"You cannot skip more than {locked.most_skipped} statements now. Answer this statement; if you cannot "
                "judge it, choose Unjudgeable. The limit rises with your answers.",
            )
        if assignment.filter(status=Assignment.Status.LEASED).update(status=Assignment.Status.SKIPPED):
            free_slots([task_id])
        assignment.filter(status=Assignment.Status.EXPIRED).update(status=Assignment.Status.SKIPPED)


def reassign_skipped(annotator: Annotator) -> int:
    """Make skipped tasks available to the annotator again and return their number. Raises RoundNotOpen.

    The annotator returns to the place of the first skipped task in the order. Otherwise, repeated skipping would give
    access to an unlimited number of tasks.
    """
    with transaction.atomic():
        Annotator.objects.lock(annotator.pk).round.check_open()
        skipped = annotator.assignments.skipped()
        return_to_first(annotator, skipped)
        return skipped.update(status=Assignment.Status.EXPIRED)


def n_skipped(annotator: Annotator) -> int:
    """Return the number of skipped tasks that need judgments. Gold is treated like ordinary tasks."""
    skipped = annotator.assignments.skipped()
    n_open = annotator.round.tasks.available_to(annotator).filter(assignments__in=skipped).count()
    return n_open + wanted_gold(skipped).count()


def with_statements_left(annotators: Iterable[Annotator]) -> list[Annotator]:
    """Return the annotators with assigned, open, or skipped statements that need their judgments, in one query."""
    candidates = [annotator for annotator in annotators if not annotator.has_judged_share]
    status, of_annotator = Assignment.Status, Assignment.objects.filter(annotator=OuterRef("pk"))
    given = Assignment.objects.filter(annotator=OuterRef(OuterRef("pk")))
    is_done = Exists(given.filter(task=OuterRef("pk"), status=status.DONE))
    members = Reservation.annotators.through.objects.filter(annotator=OuterRef(OuterRef("pk")))
    is_available = Q(reservation=None) | Exists(members.filter(reservation=OuterRef("reservation")))
    statements = JudgmentTask.objects.filter(~is_done, is_available, round=OuterRef("round")).with_open_slot()
    gold = wanted_gold(given.filter(status__in=[status.EXPIRED, status.SKIPPED]))
    is_left = Exists(of_annotator.filter(status=status.LEASED)) | Exists(statements) | Exists(gold)
    left = set(Annotator.objects.filter(is_left, pk__in=[annotator.pk for annotator in candidates]))
    return [annotator for annotator in candidates if annotator in left]


def report_statement(annotator: Annotator, task_id: int, reason: str, comment: str, now: datetime) -> None:
    """Store a report of a statement, replacing the annotator's earlier report. Raises BadAnswer or NotAssigned."""
    if reason not in StatementReport.Reason.values:
        raise DomainError(
            "BadAnswer", f"Invalid reason {reason!r:.40}. Use one of {', '.join(StatementReport.Reason.values)}."
        )
    if len(comment) > LONGEST_COMMENT:
        raise _too_long(comment)
    _check_assigned(annotator, task_id)
    StatementReport.objects.update_or_create(
        task_id=task_id,
        annotator=annotator,
        defaults={"reason": reason, "comment": comment, "reported_at": now},
    )


def _check_assigned(annotator: Annotator, task_id: int) -> None:
    if not annotator.assignments.filter(task=task_id).exists():
        raise DomainError("NotAssigned", NOT_ASSIGNED)


def recent_judgments(annotator: Annotator, n: int) -> list[Judgment]:
    return _recent(n)(annotator=annotator.pk)


@cache
def _recent(n: int) -> PreparedSelect[Judgment]:
    columns = (
        *("label", "comment", "wrong_part", "opened_reference", "judged_at", "annotator"),
        *("task__statement", "task__spans", "task__additions"),
    )
    return PreparedSelect(
        lambda: (
            Judgment.objects.current()
            .filter(annotator=Parameter(Judgment, "annotator"))
            .select_related("task")
            .only(*columns)
            .order_by("-judged_at")[:n]
        )
    )
