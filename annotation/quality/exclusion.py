"""Exclusion and reinstatement of an annotator's judgments, and the effect of an exclusion.

An annotator can have 100,000 judgments, so the judgments are updated in chunks, each in a short transaction. The first
transaction stores the decision and stops the annotator from judging. If the update is interrupted, the same call
resumes it. Lock order: round, annotator, assignments, tasks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
from annotation.monitoring.cells import LabelsByStratum, OutcomesByStratum, cell_rates, strata_by_cell, stratum_counts
from annotation.monitoring.progress import delete_snapshots
from annotation.quality.limits import set_status
from kgharvest.access import Action, check_may
from kgharvest.audit.tables import AuditedTable
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.pages.number_format import with_rounded_numbers
from kgharvest.statistics.agreement import agreement_of_rows

JUDGMENTS_AT_ONCE = 2000
# Judgments that filled a slot until the exclusion, including those of gold, which is assigned like other tasks.
REMOVED = Q(is_excluded=True) | Q(fills_gold_slot=None, task__is_gold=True, task__n_wanted__gt=0)
EXCLUSIONS = AuditedTable(Exclusion, "annotator__code", "reason", "excluded_at", "effect", "n_judgments")
REINSTATEMENTS = AuditedTable(Exclusion, "reinstated_at", condition=~Q(reinstated_at=None))


class BeingReinstated(DomainError):
    """The annotator cannot be excluded because their reinstatement is unfinished."""


def exclude_annotator(annotator: Annotator, reason: str, by=None, effect: dict | None = None) -> Exclusion:
    """Exclude all judgments of the annotator, so that the tasks need new judgments. Release the annotator's leases.

    effect: the result of `exclusion_effect` that the user saw. It is stored with the decision. Calling this function
    again resumes an interrupted exclusion. Raises NotAllowed, BeingReinstated, or DomainError NoReason.
    """
    check_may(by, Action.WORK, annotator.round.project)
    if not reason.strip():
        raise DomainError("NoReason", f"Enter a reason for excluding {annotator.code}. It is stored with the decision.")
    exclusion = _store_exclusion(annotator, reason.strip(), by, effect or {})
    for chunk in _chunks(Judgment.objects.filling_slots().filter(annotator=annotator)):
        _remove_from_counts(exclusion, chunk)
    return exclusion


def reinstate_annotator(annotator: Annotator, by=None) -> Exclusion:
    """Count an excluded annotator's judgments again if their slots are still free, then reactivate the annotator.

    If another annotator has filled or leased the slot of a judgment, the judgment stays stored but is not counted, so
    that no task has more than k counted judgments. Raises NotAllowed, or DomainError NotExcluded.
    """
    check_may(by, Action.WORK, annotator.round.project)
    exclusion = _store_reinstatement(annotator, by)
    for chunk in _chunks(Judgment.objects.current().filter(REMOVED, annotator=annotator)):
        _count_again(exclusion, chunk)
    _finish_reinstatement(exclusion, by)
    return exclusion


@transaction.atomic
def _store_exclusion(annotator: Annotator, reason: str, by, effect: dict) -> Exclusion:
    annotator = _lock(annotator)
    in_force = annotator.exclusions.filter(reinstated_at=None).first()
    if in_force is not None:
        return in_force
    if annotator.status == Annotator.Status.EXCLUDED:
        message = f"The reinstatement of {annotator.code} is unfinished. Reinstate {annotator.code} again first."
        raise BeingReinstated(message)
    set_status(annotator, Annotator.Status.EXCLUDED)
    release_leases(Assignment.objects.filter(annotator=annotator))
    n_judgments = Judgment.objects.counted().filter(annotator=annotator).count()
    Round.objects.filter(pk=annotator.round_id).update(completed_at=None)  # the judged statements need judgments again
    decision = {"excluded_by": by, "excluded_at": timezone.now(), "effect": effect, "n_judgments": n_judgments}
    exclusion = Exclusion.objects.create(annotator=annotator, reason=reason, **decision)
    texts, round = {"reason": reason}, annotator.round
    record("annotator.excluded", exclusion, by, round=round, annotator=annotator, texts=texts, n_judgments=n_judgments)
    return exclusion


@transaction.atomic
def _store_reinstatement(annotator: Annotator, by) -> Exclusion:
    annotator = _lock(annotator)
    if annotator.status != Annotator.Status.EXCLUDED:
        raise DomainError("NotExcluded", f"{annotator.code} is not excluded.")
    is_in_force = annotator.exclusions.filter(reinstated_at=None).exists()
    if is_in_force and Withdrawal.objects.filter(annotator=annotator).exists():
        message = f"Cannot reinstate {annotator.code}: the annotator has withdrawn. Their judgments stay excluded."
        raise DomainError("NotExcluded", message)
    is_new = annotator.exclusions.filter(reinstated_at=None).update(reinstated_at=timezone.now(), reinstated_by=by)
    exclusion = annotator.exclusions.first()
    if is_new:
        record("annotator.reinstated", exclusion, by, round=annotator.round, annotator=annotator)
    return exclusion


@transaction.atomic
def _finish_reinstatement(exclusion: Exclusion, by) -> None:
    annotator = _lock(exclusion.annotator)
    if annotator.status != Annotator.Status.EXCLUDED:  # finished by a concurrent call
        return
    set_status(annotator, Annotator.Status.ACTIVE)
    exclusion.refresh_from_db()
    counts = {name: getattr(exclusion, name) for name in ("n_counted_again", "n_left_out")}
    record("annotator.counted_again", annotator, by, round=annotator.round, annotator=annotator, **counts)


def _lock(annotator: Annotator) -> Annotator:
    # Lock the round as well: imports and other exclusions update the same counters.
    Round.objects.select_for_update(of=("self",), no_key=True).get(pk=annotator.round_id)
    return Annotator.objects.lock(annotator.pk)


def _chunks(judgments) -> Iterator[Sequence[UUID]]:
    """Return chunks of ids.

    All ids are fetched at once. This is safe, because the annotator cannot add judgments meanwhile.
    """
    ids = list(judgments.order_by("task").values_list("pk", flat=True))
    return (ids[start : start + JUDGMENTS_AT_ONCE] for start in range(0, len(ids), JUDGMENTS_AT_ONCE))


@transaction.atomic
def _remove_from_counts(exclusion: Exclusion, ids: Sequence[UUID]) -> None:
    annotator = _lock(exclusion.annotator)
    if not annotator.exclusions.filter(pk=exclusion.pk, reinstated_at=None).exists():
        return
    filling = Judgment.objects.filling_slots().filter(pk__in=ids)
    removed = list(filling.values_list("task", "label"))
    filling.filter(is_counted=True).update(is_counted=False, is_excluded=True)
    filling.filter(fills_gold_slot=True).update(fills_gold_slot=None)
    _change_counts(annotator.round, removed, -1)


@transaction.atomic
def _count_again(exclusion: Exclusion, ids: Sequence[UUID]) -> None:
    annotator = _lock(exclusion.annotator)
    removed = Judgment.objects.current().filter(REMOVED, pk__in=ids)
    excluded = removed.filter(is_excluded=True)
    rows = list(removed.values_list("task", "label"))
    free_tasks = _tasks_with_free_slot(annotator.round, [task for task, _ in rows])
    removed.filter(task__in=free_tasks, task__is_gold=True).update(fills_gold_slot=True)
    n_restored = excluded.filter(task__in=free_tasks).update(is_counted=True, is_excluded=False)
    # Judgments without a slot never count and are sealed again.
    n_left_out = excluded.update(is_excluded=False, sealed_in=None)
    _change_counts(annotator.round, [row for row in rows if row[0] in free_tasks], 1)
    Exclusion.objects.filter(pk=exclusion.pk).update(
        n_counted_again=F("n_counted_again") + n_restored, n_left_out=F("n_left_out") + n_left_out
    )


def _tasks_with_free_slot(round: Round, ids: Sequence[int]) -> set[int]:
    """Lock the tasks and return the tasks with a free slot. An unused slot for an adaptive third judgment is free.

    Imported rounds have no slots, so every judgment counts.
    """
    tasks = JudgmentTask.objects.filter(pk__in=ids).order_by("pk").select_for_update(no_key=True)
    if round.source == Round.Source.IMPORTED:
        return set(tasks.values_list("pk", flat=True))
    locked = tasks.values_list("pk", "n_wanted", F("n_judgments") + F("n_leased"))
    return {pk for pk, n_wanted, n_used in locked if n_used < (3 if round.third_only_if_split else n_wanted)}


def _change_counts(round: Round, judgments: Sequence[tuple[int, str]], sign: int) -> None:
    """Add (task id, label) pairs to the counters of their tasks (sign 1), or subtract them (sign -1)."""
    by_label = defaultdict(list)
    for task, label in judgments:
        by_label[label].append(task)
    for label, ids in by_label.items():
        add_counts(JudgmentTask.objects.filter(pk__in=ids), round, label, sign)
    update_verdicts(JudgmentTask.objects.filter(pk__in=[task for task, _ in judgments]), round)
    delete_snapshots(round)


# Effect of an exclusion

INCOMPLETE = "incomplete"
TASK_COLUMNS = tuple(f"task__{name}" for name in ("n_true", "n_false", "n_unjudgeable", "n_wanted", "verdict"))


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
        counts = self.counts_without  # the task needs another judgment, unless two equal labels are enough
        n_wanted = wanted_if_split(*counts) if round.third_only_if_split else self.n_wanted
        return task_verdict(*counts, n_wanted, round.quorum) or INCOMPLETE


def exclusion_effect(annotator: Annotator) -> dict[str, Any]:
    """Return the effect of excluding the annotator now, as JSON.

    n_judgments: number of judgments to exclude. changes: numbers of tasks whose outcome changes, by outcome before and
    after the exclusion. cells, agreement: values before and after the exclusion.
    """
    counted = Judgment.objects.counted().filter(annotator=annotator).order_by()
    rows = counted.values_list("label", *TASK_COLUMNS).annotate(n=Count("pk"))
    n_by_task = {_JudgedTask(*row): n for *row, n in rows}
    changes: Counter[tuple[str, str]] = Counter()
    for task, n in n_by_task.items():
        changes[task.outcome, task.outcome_without(annotator.round)] += n
    effect: dict[str, Any] = with_rounded_numbers(
        {
            "n_judgments": sum(n_by_task.values()),
            "changes": [
                {"before": before, "after": after, "n": n}
                for (before, after), n in sorted(changes.items())
                if before != after
            ],
            "cells": _cells(annotator),
            "agreement": _agreement(annotator, n_by_task),
        }
    )
    return effect


def _agreement(annotator: Annotator, n_by_task: Mapping[_JudgedTask, int]) -> dict[str, Any]:
    # If one of a statement's three judgments is excluded, the remaining two count as the first two.
    tasks = annotator.round.tasks.without_gold()
    counted = Judgment.objects.counted().filter(annotator=annotator, task=OuterRef("pk"))
    before = first_two_counts(annotator.round, tasks)
    after = before - first_two_counts(annotator.round, tasks.filter(Exists(counted)))
    for task, n in n_by_task.items():
        after[task.counts_without] += n
    return {
        name: agreement_of_rows([*labels, n] for labels, n in sorted(patterns.items()))
        for name, patterns in (("before", before), ("after", after))
    }


def _cells(annotator: Annotator) -> list[dict[str, Any]]:
    """Return the numbers of complete and incomplete statements and the accuracy per cell, before and after exclusion.

    accuracy: as in reports; None if undefined, for example if a stratum has no verdict. `reason` explains why.
    """
    round = annotator.round
    labels, outcomes = stratum_counts(round)
    labels_without, outcomes_without = deepcopy((labels, outcomes))
    counted = Judgment.objects.counted().filter(annotator=annotator, task__draws__stratum__round=round).order_by()
    rows = counted.values_list("task__draws__stratum", "label", *TASK_COLUMNS).annotate(n=Count("pk"))
    for stratum, *row, n in rows:
        task = _JudgedTask(*row)
        k = max(task.n_wanted, round.least_k)
        labels_without[stratum][*task.counts, k] -= n
        labels_without[stratum][*task.counts_without, k] += n
        outcomes_without[stratum][task.outcome] -= n
        outcomes_without[stratum][task.outcome_without(round)] += n
    cells = strata_by_cell(round)
    strata = [cell_strata for _, cell_strata in cells]
    before = _accuracies(round, strata, labels, outcomes)
    after = _accuracies(round, strata, labels_without, outcomes_without)
    return [
        dict(zip(("relation", "model", "setting"), names, strict=True)) | {"before": before[n], "after": after[n]}
        for n, (names, _) in enumerate(cells)
    ]


def _accuracies(
    round: Round, cells: Sequence[Sequence[Stratum]], labels: LabelsByStratum, outcomes: OutcomesByStratum
) -> list[dict[str, Any]]:
    accuracies = []
    for rate, strata in zip(cell_rates(round, cells, labels, has_interval=False), cells, strict=True):
        of_cell = sum((outcomes[stratum.pk] for stratum in strata), Counter())
        n_incomplete = of_cell[INCOMPLETE]
        n_complete = of_cell.total() - n_incomplete
        accuracies.append(
            {"n": n_complete, "n_incomplete": n_incomplete, "accuracy": rate.value, "reason": rate.reason}
        )
    return accuracies
