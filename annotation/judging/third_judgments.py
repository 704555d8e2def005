"""Adaptive third judgments, and label counts without third judgments.

Agreement uses only the first two judgments, because third judgments would overweight disputed statements.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from django.db.models import Count, QuerySet

from annotation.models import Judgment, JudgmentTask, Label, Round

WANTED_AFTER_SPLIT = 3  # required judgments if the first two differ
ROWS_AT_ONCE = 50_000

LabelCounts = tuple[int, int, int]  # n_true, n_false, n_unjudgeable


class ThirdJudgment(NamedTuple):
    """A third judgment. counts: label counts of its task, including this judgment."""

    annotator: int
    label: str
    counts: LabelCounts


def third_annotators(round: Round, tasks: QuerySet[JudgmentTask] | None = None) -> dict[int, int]:
    """Return, by task id, the id of the annotator who gave the counted third judgment.

    Judgments are ordered by the time of the first answer, even if the annotator changed the answer later. tasks:
    defaults to all tasks of the round.
    """
    if not round.third_only_if_split:
        return {}
    with_third = _with_third(round, tasks)
    pairs = with_third.order_by("judged_at", "client_uuid").values_list("task_id", "annotator_id")
    task, annotator = _columns(pairs)
    counted_task, counted_annotator = _columns(with_third.counted().order_by().values_list("task_id", "annotator_id"))
    n = annotator.max(initial=0) + 1
    pair, first_answer = np.unique(task * n + annotator, return_index=True)
    is_counted = np.isin(pair, counted_task * n + counted_annotator)
    in_order = pair[is_counted][np.argsort(first_answer[is_counted])]
    return dict(zip((in_order // n).tolist(), (in_order % n).tolist(), strict=True))  # keeps the last pair of a task


def first_two_counts(round: Round, tasks: QuerySet[JudgmentTask]) -> Counter[LabelCounts]:
    """Return the number of tasks for each combination of label counts. Third judgments are not counted."""
    rows = tasks.order_by().values_list("n_true", "n_false", "n_unjudgeable").annotate(n=Count("pk"))
    patterns = Counter({tuple(counts): n for *counts, n in rows})
    for _, third in third_judgments(round, tasks):
        patterns[third.counts] -= 1
        patterns[without_label(third.counts, third.label)] += 1
    return +patterns


def without_label(counts: LabelCounts, label: str) -> LabelCounts:
    n_true, n_false, n_unjudgeable = (n - (label == value) for n, value in zip(counts, Label.values, strict=True))
    return n_true, n_false, n_unjudgeable


def third_judgments(round: Round, tasks: QuerySet[JudgmentTask] | None = None) -> Iterator[tuple[int, ThirdJudgment]]:
    """Yield (task id, third judgment). tasks: see third_annotators."""
    thirds = third_annotators(round, tasks)
    if not thirds:
        return
    columns = ("task_id", "annotator_id", "label", "task__n_true", "task__n_false", "task__n_unjudgeable")
    counted = _with_third(round, tasks).counted().order_by().values_list(*columns)
    for task, annotator, label, *counts in counted.iterator(ROWS_AT_ONCE):
        if thirds[task] == annotator:
            yield task, ThirdJudgment(annotator, label, tuple(counts))


def _with_third(round: Round, tasks: QuerySet[JudgmentTask] | None) -> QuerySet[Judgment]:
    judgments = Judgment.objects.filter(task__round=round, task__is_gold=False, task__n_judgments=WANTED_AFTER_SPLIT)
    return judgments if tasks is None else judgments.filter(task__in=tasks)


def _columns(pairs: QuerySet) -> tuple[np.ndarray, np.ndarray]:
    rows = np.fromiter(pairs.iterator(ROWS_AT_ONCE), dtype=[("task", np.int64), ("annotator", np.int64)])
    return rows["task"], rows["annotator"]
