"""Exclude an annotator's judgments from all counts, reinstate them, and compute the effect of an exclusion.

An annotator may have given a hundred thousand judgments, so the work is done in chunks, each a short transaction.
The first transaction decides: from then on the annotator gives no more judgments. Whatever interrupts the rest, the
same call goes on where it stopped. Locks are taken in the order round, annotator, assignments, tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q
from django.utils import timezone

from annotation.judging.assignment import release_leases
from annotation.judging.third_judgments import LabelCounts, first_two_counts, without_label
from annotation.judging.verdict_update import add_counts, update_verdicts
from annotation.judging.verdicts import task_verdict, wanted_if_split
from annotation.models import Annotator, Assignment, Exclusion, Judgment, JudgmentTask, Round, Stratum, Withdrawal
from annotation.monitoring.cells import StratumCounts, cell_rates, strata_by_cell, stratum_counts
from annotation.monitoring.progress import delete_snapshots, rows_of
from annotation.quality.limits import set_status
from kgharvest.access import Action, check_may
from kgharvest.audit.tables import AuditedTable
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.statistics.agreement import agreement_of_rows

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
    Round.objects.filter(pk=annotator.round_id).update(completed_at=None)  # their statements want judgments again
    exclusion = Exclusion.objects.create(
        annotator=annotator,
        reason=reason,
        excluded_by=by,
        excluded_at=timezone.now(),
        effect=effect,
        n_judgments=n_judgments,
    )
    texts, round = {"reason": reason}, annotator.round
    record("annotator.excluded", exclusion, by, round=round, annotator=annotator, texts=texts, n_judgments=n_judgments)
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
        record("annotator.reinstated", exclusion, by, round=annotator.round, annotator=annotator)
    return exclusion


@transaction.atomic
def _end_reinstatement(exclusion: Exclusion, by) -> None:
    annotator = _lock(exclusion.annotator)
    if annotator.status != Annotator.Status.EXCLUDED:  # somebody else has ended it
        return
    set_status(annotator, Annotator.Status.ACTIVE)
    exclusion.refresh_from_db()
    counts = {name: getattr(exclusion, name) for name in ("n_counted_again", "n_left_out")}
    record("annotator.counted_again", annotator, by, round=annotator.round, annotator=annotator, **counts)


def _lock(annotator: Annotator) -> Annotator:
    # The round too: imports and other exclusions move the same counters.
    Round.objects.select_for_update(of=("self",), no_key=True).get(pk=annotator.round_id)
    return Annotator.objects.lock(annotator.pk)


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


# Effect of an exclusion


INCOMPLETE = "incomplete"


class _JudgedTask(NamedTuple):
    label: str
    n_true: int
    n_false: int
    n_unjudgeable: int
    n_wanted: int
    verdict: str

    @property
    def outcome(self) -> str:
        return self.verdict or INCOMPLETE

    @property
    def counts(self) -> LabelCounts:
        return self.n_true, self.n_false, self.n_unjudgeable

    @property
    def counts_without(self) -> LabelCounts:
        return without_label(self.counts, self.label)

    def outcome_without(self, round: Round) -> str:
        """A task wants the judgment back, unless two that agree are enough."""
        counts = self.counts_without
        n_wanted = wanted_if_split(*counts) if round.third_only_if_split else self.n_wanted
        return task_verdict(*counts, n_wanted, round.quorum) or INCOMPLETE


def exclusion_effect(annotator: Annotator) -> dict[str, Any]:
    """Return, as JSON, what excluding the annotator now would do.

    n_judgments: taken out. changes: how many tasks go from which outcome to which other. cells, agreement: before and
    after.
    """
    counted = Judgment.objects.counted().filter(annotator=annotator).order_by()
    rows = counted.values_list("label", *_task_columns()).annotate(n=Count("pk"))
    n_by_task = {_JudgedTask(*row): n for *row, n in rows}
    changes: Counter[tuple[str, str]] = Counter()
    for task, n in n_by_task.items():
        changes[task.outcome, task.outcome_without(annotator.round)] += n
    return {
        "n_judgments": sum(n_by_task.values()),
        "changes": [
            {"before": before, "after": after, "n": n}
            for (before, after), n in sorted(changes.items())
            if before != after
        ],
        "cells": _cells(annotator),
        "agreement": _agreement(annotator, n_by_task),
    }


def _task_columns() -> list[str]:
    return [f"task__{name}" for name in _JudgedTask._fields[1:]]


def _agreement(annotator: Annotator, n_by_task: Mapping[_JudgedTask, int]) -> dict[str, Any]:
    """Of three judgments of a statement two are left, which are the first two then, whoever was asked third."""
    tasks = annotator.round.tasks.without_gold()
    counted = Judgment.objects.counted().filter(annotator=annotator, task=OuterRef("pk"))
    before = first_two_counts(annotator.round, tasks)
    after = before - first_two_counts(annotator.round, tasks.filter(Exists(counted)))
    for task, n in n_by_task.items():
        after[task.counts_without] += n
    return {name: agreement_of_rows(rows_of(patterns)) for name, patterns in (("before", before), ("after", after))}


def _cells(annotator: Annotator) -> list[dict[str, Any]]:
    """Return the statements of each cell with and without a verdict, and its accuracy as reports have it.

    accuracy: None for the `reason`, such as a stratum that has no verdict.
    """
    round = annotator.round
    counts = stratum_counts(round)
    counts_without = deepcopy(counts)
    counted = Judgment.objects.counted().filter(annotator=annotator, task__draws__stratum__round=round).order_by()
    rows = counted.values_list("task__draws__stratum", "label", *_task_columns()).annotate(n=Count("pk"))
    for stratum, *row, n in rows:
        task = _JudgedTask(*row)
        k = max(task.n_wanted, round.least_k)
        labels, outcomes = counts_without[stratum]
        labels[*task.counts, k] -= n
        labels[*task.counts_without, k] += n
        outcomes[task.outcome] -= n
        outcomes[task.outcome_without(round)] += n
    cells = strata_by_cell(round)
    before, after = (_accuracies(round, [strata for _, strata in cells], each) for each in (counts, counts_without))
    return [
        dict(zip(("relation", "model", "setting"), names, strict=True)) | {"before": before[n], "after": after[n]}
        for n, (names, _) in enumerate(cells)
    ]


def _accuracies(
    round: Round, cells: Sequence[Sequence[Stratum]], counts: defaultdict[int, StratumCounts]
) -> list[dict[str, Any]]:
    rates = cell_rates(round, cells, counts, has_interval=False)
    return [
        _accuracy(rate, [counts[stratum.pk] for stratum in strata]) for rate, strata in zip(rates, cells, strict=True)
    ]


def _accuracy(rate: Any, counts: Iterable[StratumCounts]) -> dict[str, Any]:
    outcomes = sum((stratum.outcomes for stratum in counts), Counter())
    return {
        "n": outcomes.total() - outcomes[INCOMPLETE],
        "n_incomplete": outcomes[INCOMPLETE],
        "accuracy": rate.value,
        "reason": rate.reason,
    }
