"""What excluding an annotator would change: judgments, verdicts, accuracies and agreement. Nothing is changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from django.db.models import Count, Exists, OuterRef

from annotation.judging.third_judgments import LabelCounts, first_two_counts, without_label
from annotation.judging.verdicts import task_verdict, wanted_if_split
from annotation.models import Annotator, Judgment, Round, Stratum
from annotation.monitoring.cells import StratumCounts, cell_rates, strata_by_cell, stratum_counts
from annotation.monitoring.progress import rows_of
from kgharvest.statistics.agreement import agreement_of_rows

INCOMPLETE = "incomplete"


class _JudgedTask(NamedTuple):
    """How a task stands, and the label that the annotator gave."""

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


# -- cells -------------------------------------------------------------------------------------------------------------


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
