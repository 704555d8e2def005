"""Take an annotator's judgments out of the count, and put them back: recorded decisions.

An annotator may have given a hundred thousand judgments, so the work is done in chunks, each a short transaction.
The first transaction decides: from then on the annotator gives no more judgments. Whatever interrupts the rest, the
same call goes on where it stopped. Locks are taken in the order round, annotator, assignments, tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from annotation.judging.assignment import release_leases
from annotation.judging.verdict_update import add_counts, update_verdicts
from annotation.models import Annotator, Assignment, Exclusion, Judgment, JudgmentTask, Round, Withdrawal
from annotation.monitoring.progress import delete_snapshots
from annotation.quality.limits import set_status
from kgharvest.access import Action, check_may
from kgharvest.audit.tables import AuditedTable
from kgharvest.audit.trail import record
from kgharvest.errors import DomainError

JUDGMENTS_AT_ONCE = 2000
EXCLUSIONS = AuditedTable(Exclusion, "annotator__code", "reason", "excluded_at", "effect", "n_judgments")
REINSTATEMENTS = AuditedTable(Exclusion, "reinstated_at", condition=~Q(reinstated_at=None))


class BeingReinstated(DomainError):
    """Excluding somebody whose reinstatement has not ended."""


class _Moved(NamedTuple):
    """A judgment that is taken out of the counts of its task, or put back."""

    judgment: UUID
    task: int
    label: str


def exclude_annotator(annotator: Annotator, reason: str, by=None, effect: dict | None = None) -> Exclusion:
    """Take all judgments of the annotator out of the count; their tasks want another judgment instead.

    effect: what was shown before (exclusion_effect), kept with the decision. Their leases go back. Excluding again
    goes on with an exclusion that was interrupted. Raises NotAllowed, BeingReinstated, or DomainError NoReason.
    """
    check_may(by, Action.WORK, annotator.round.project)
    if not reason.strip():
        raise DomainError("NoReason", f"Say why {annotator.code} is excluded; the reason stays with the decision.")
    exclusion = _decide_exclusion(annotator, reason.strip(), by, effect or {})
    for chunk in _chunks(Judgment.objects.counted().filter(annotator=annotator)):
        _take_out(exclusion, chunk)
    return exclusion


def reinstate_annotator(annotator: Annotator, by=None) -> Exclusion:
    """Count an excluded annotator's judgments again wherever their slot is still free, then let them go on.

    Where somebody else has filled the slot or is assigned it, the judgment is kept but stays uncounted: exactly k.
    Raises NotAllowed, or DomainError NotExcluded.
    """
    check_may(by, Action.WORK, annotator.round.project)
    exclusion = _decide_reinstatement(annotator, by)
    for chunk in _chunks(Judgment.objects.current().filter(annotator=annotator, is_excluded=True)):
        _put_back(exclusion, chunk)
    _end_reinstatement(exclusion, by)
    return exclusion


# -- decisions ---------------------------------------------------------------------------------------------------------


@transaction.atomic
def _decide_exclusion(annotator: Annotator, reason: str, by, effect: dict) -> Exclusion:
    annotator = _lock(annotator)
    in_force = annotator.exclusions.filter(reinstated_at=None).first()
    if in_force is not None:
        return in_force
    if annotator.status == Annotator.Status.EXCLUDED:
        raise BeingReinstated(f"{annotator.code} is being reinstated; reinstate once more to finish that first.")
    set_status(annotator, Annotator.Status.EXCLUDED)
    release_leases(Assignment.objects.filter(annotator=annotator))
    n_judgments = Judgment.objects.counted().filter(annotator=annotator).count()
    annotator.round.events.record("excluded", by=by, annotator=annotator, reason=reason, n_judgments=n_judgments)
    Round.objects.filter(pk=annotator.round_id).update(completed_at=None)  # their statements want judgments again
    exclusion = Exclusion.objects.create(
        annotator=annotator,
        reason=reason,
        excluded_by=by,
        excluded_at=timezone.now(),
        effect=effect,
        n_judgments=n_judgments,
    )
    _record("annotator.excluded", exclusion, annotator, by, n_judgments=n_judgments)
    return exclusion


@transaction.atomic
def _decide_reinstatement(annotator: Annotator, by) -> Exclusion:
    annotator = _lock(annotator)
    if annotator.status != Annotator.Status.EXCLUDED:
        raise DomainError("NotExcluded", f"{annotator.code} is not excluded.")
    is_in_force = annotator.exclusions.filter(reinstated_at=None).exists()
    if is_in_force and Withdrawal.objects.filter(annotator=annotator).exists():
        raise DomainError("NotExcluded", f"{annotator.code} has withdrawn; what they said stays out.")
    is_new = annotator.exclusions.filter(reinstated_at=None).update(reinstated_at=timezone.now(), reinstated_by=by)
    exclusion = annotator.exclusions.first()
    if is_new:
        _record("annotator.reinstated", exclusion, annotator, by)
    return exclusion


def _record(action: str, exclusion: Exclusion, annotator: Annotator, by, **facts: int) -> None:
    round = annotator.round
    record(action, exclusion, by, round.project_id, annotator=annotator.code, round=round.name, **facts)


@transaction.atomic
def _end_reinstatement(exclusion: Exclusion, by) -> None:
    annotator = _lock(exclusion.annotator)
    if annotator.status != Annotator.Status.EXCLUDED:  # somebody else has ended it
        return
    set_status(annotator, Annotator.Status.ACTIVE)
    exclusion.refresh_from_db()
    counts = {name: getattr(exclusion, name) for name in ("n_counted_again", "n_left_out")}
    annotator.round.events.record("reinstated", by=by, annotator=annotator, **counts)


def _lock(annotator: Annotator) -> Annotator:
    # The round too: imports and other exclusions move the same counters.
    Round.objects.select_for_update(of=("self",), no_key=True).get(pk=annotator.round_id)
    return Annotator.objects.lock(annotator.pk)


# -- chunks ------------------------------------------------------------------------------------------------------------


def _chunks(judgments) -> Iterator[Sequence[UUID]]:
    """Return the ids now: the annotator cannot add to them meanwhile."""
    ids = list(judgments.order_by("task").values_list("pk", flat=True))
    return (ids[start : start + JUDGMENTS_AT_ONCE] for start in range(0, len(ids), JUDGMENTS_AT_ONCE))


@transaction.atomic
def _take_out(exclusion: Exclusion, ids: Sequence[UUID]) -> None:
    annotator = _lock(exclusion.annotator)
    if not annotator.exclusions.filter(pk=exclusion.pk, reinstated_at=None).exists():
        return
    counted = Judgment.objects.counted().filter(pk__in=ids)
    taken = [_Moved(*row) for row in counted.values_list("pk", "task", "label")]
    counted.update(is_counted=False, is_excluded=True)
    _change_counts(annotator.round, taken, -1)


@transaction.atomic
def _put_back(exclusion: Exclusion, ids: Sequence[UUID]) -> None:
    annotator = _lock(exclusion.annotator)
    excluded = Judgment.objects.current().filter(pk__in=ids, is_excluded=True)
    excluded_now = [_Moved(*row) for row in excluded.values_list("pk", "task", "label")]
    free = _tasks_with_free_slot(annotator.round, [moved.task for moved in excluded_now])
    again = [moved for moved in excluded_now if moved.task in free]
    excluded.filter(pk__in=[moved.judgment for moved in again]).update(is_counted=True, is_excluded=False)
    excluded.update(is_excluded=False, sealed_in=None)  # these count no more, which the audit trail seals anew
    _change_counts(annotator.round, again, 1)
    Exclusion.objects.filter(pk=exclusion.pk).update(
        n_counted_again=F("n_counted_again") + len(again), n_left_out=F("n_left_out") + len(excluded_now) - len(again)
    )


def _tasks_with_free_slot(round: Round, ids: Sequence[int]) -> set[int]:
    """Lock the tasks; return those with a free slot, the third one's included where a third is asked only when two
    differ. Imported judgments have no slots: all count."""
    tasks = JudgmentTask.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True)
    if round.source == Round.Source.IMPORTED:
        return set(tasks.values_list("pk", flat=True))
    locked = tasks.values_list("pk", "n_wanted", F("n_judgments") + F("n_leased"))
    return {pk for pk, wanted, taken in locked if taken < (3 if round.third_only_if_split else wanted)}


def _change_counts(round: Round, judgments: Sequence[_Moved], sign: int) -> None:
    by_label = defaultdict(list)
    for moved in judgments:
        by_label[moved.label].append(moved.task)
    for label, ids in by_label.items():
        add_counts(JudgmentTask.objects.filter(pk__in=ids), round, label, sign)
    update_verdicts(JudgmentTask.objects.filter(pk__in=[moved.task for moved in judgments]), round)
    delete_snapshots(round)
