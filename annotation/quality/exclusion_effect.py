"""What excluding an annotator would change: judgments, verdicts, accuracies and agreement. Nothing is changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Count, Exists, OuterRef

from annotation.judging.third_judgments import LabelCounts, first_two_counts, without_label
from annotation.judging.verdicts import task_verdict, wanted_if_split
from annotation.models import Annotator, Draw, Judgment, Round, Stratum
from annotation.rounds.progress import rows_of, strata_by_cell, stratum_outcomes
from kgharvest.registries import hook

INCOMPLETE = "incomplete"

DecisiveLabels = tuple[int, int, int, int]  # n_true, n_false, n_unjudgeable and how many judgments decide


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
    return {
        "n_judgments": sum(n_by_task.values()),
        "changes": _changes(annotator.round, n_by_task),
        "cells": _cells(annotator),
        "agreement": _agreement(annotator, n_by_task),
    }


def _task_columns() -> list[str]:
    return [f"task__{name}" for name in _JudgedTask._fields[1:]]


def _changes(round: Round, n_by_task: Mapping[_JudgedTask, int]) -> list[dict[str, Any]]:
    changes: Counter[tuple[str, str]] = Counter()
    for task, n in n_by_task.items():
        changes[task.outcome, task.outcome_without(round)] += n
    return [
        {"before": before, "after": after, "n": n} for (before, after), n in sorted(changes.items()) if before != after
    ]


def _agreement(annotator: Annotator, n_by_task: Mapping[_JudgedTask, int]) -> dict[str, Any]:
    """Of three judgments of a statement two are left, which are the first two then, whoever was asked third."""
    tasks = annotator.round.tasks.without_gold()
    counted = Judgment.objects.counted().filter(annotator=annotator, task=OuterRef("pk"))
    before = first_two_counts(annotator.round, tasks)
    after = before - first_two_counts(annotator.round, tasks.filter(Exists(counted)))
    for task, n in n_by_task.items():
        after[task.counts_without] += n
    return {name: hook("agreement")(rows_of(patterns)) for name, patterns in (("before", before), ("after", after))}


# -- cells -------------------------------------------------------------------------------------------------------------


def _cells(annotator: Annotator) -> list[dict[str, Any]]:
    """Return the statements of each cell with and without a verdict, and its accuracy as reports have it.

    accuracy: None for the `reason`, such as a stratum that has no verdict.
    """
    round = annotator.round
    labels = _labels_by_stratum(round)
    labels_without = defaultdict(Counter, {stratum: counts.copy() for stratum, counts in labels.items()})
    outcomes = stratum_outcomes(round)
    outcomes_without = defaultdict(Counter, {stratum: counts.copy() for stratum, counts in outcomes.items()})
    for stratum, task, n in _drawn_and_judged(annotator):
        k = max(task.n_wanted, round.least_k)
        labels_without[stratum][*task.counts, k] -= n
        labels_without[stratum][*task.counts_without, k] += n
        outcomes_without[stratum][task.outcome] -= n
        outcomes_without[stratum][task.outcome_without(round)] += n
    return [
        {
            **dict(zip(("relation", "model", "setting"), name, strict=True)),
            "before": _accuracy(round, strata, labels, outcomes),
            "after": _accuracy(round, strata, labels_without, outcomes_without),
        }
        for name, strata in strata_by_cell(round)
    ]


def _labels_by_stratum(round: Round) -> defaultdict[int, Counter[DecisiveLabels]]:
    """Return, by the id of a stratum, how many of its statements have which labels."""
    labels: defaultdict[int, Counter[DecisiveLabels]] = defaultdict(Counter)
    columns = [f"task__{name}" for name in ("n_true", "n_false", "n_unjudgeable", "n_wanted")]
    drawn = Draw.objects.filter(stratum__round=round).order_by().values_list("stratum", *columns)
    for stratum, *counts, n_wanted, n in drawn.annotate(n=Count("pk")):
        labels[stratum][*counts, max(n_wanted, round.least_k)] += n
    return labels


def _drawn_and_judged(annotator: Annotator) -> Iterator[tuple[int, _JudgedTask, int]]:
    counted = Judgment.objects.counted().filter(annotator=annotator, task__draws__stratum__round=annotator.round)
    columns = ("task__draws__stratum", "label", *_task_columns())
    for stratum, *row, n in counted.order_by().values_list(*columns).annotate(n=Count("pk")):
        yield stratum, _JudgedTask(*row), n


def _accuracy(
    round: Round,
    strata: Sequence[Stratum],
    labels: Mapping[int, Counter[DecisiveLabels]],
    outcomes: Mapping[int, Counter[str]],
) -> dict[str, Any]:
    accuracy = hook("cell_accuracy")(
        [(stratum.population or 0, +labels[stratum.pk]) for stratum in strata], round.quorum
    )
    counts = sum((outcomes[stratum.pk] for stratum in strata), Counter())
    return {
        "n": counts.total() - counts[INCOMPLETE],
        "n_incomplete": counts[INCOMPLETE],
        "accuracy": accuracy.value,
        "reason": accuracy.reason,
    }
