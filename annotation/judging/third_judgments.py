"""Third judgments, asked for only because two differed, and the labels of statements without them.

Agreement is that of the first two: with the third, statements in dispute would count for more than the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from django.db.models import Count, QuerySet

from annotation.models import Judgment, JudgmentTask, Label, Round

ASKED_IF_SPLIT = 3  # people, where two differ
ROWS_AT_ONCE = 50_000

LabelCounts = tuple[int, int, int]  # n_true, n_false, n_unjudgeable


class ThirdJudgment(NamedTuple):
    """counts: of the labels of its task, this judgment's own among them."""

    annotator: int
    label: str
    counts: LabelCounts


def third_annotators(round: Round, tasks: QuerySet[JudgmentTask] | None = None) -> dict[int, int]:
    """Return, by task, the annotator of the counted judgment that was asked for because two differed.

    A change of mind keeps its place in the order. tasks: of the round, all of them if None.
    """
    if not round.third_only_if_split:
        return {}
    asked_thrice = _asked_thrice(round, tasks)
    pairs = asked_thrice.order_by("judged_at", "client_uuid").values_list("task_id", "annotator_id")
    task, annotator = _columns(pairs)
    counted_task, counted_annotator = _columns(asked_thrice.counted().order_by().values_list("task_id", "annotator_id"))
    n = annotator.max(initial=0) + 1
    pair, first_word = np.unique(task * n + annotator, return_index=True)
    is_counted = np.isin(pair, counted_task * n + counted_annotator)
    in_order = pair[is_counted][np.argsort(first_word[is_counted])]
    return dict(zip((in_order // n).tolist(), (in_order % n).tolist(), strict=True))  # the last of each task


def first_two_counts(round: Round, tasks: QuerySet[JudgmentTask]) -> Counter[LabelCounts]:
    """Return how many of the round's `tasks` have which counts of labels, third judgments left out."""
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
    """Yield each task with a third judgment, and that judgment. tasks: as of `third_annotators`."""
    thirds = third_annotators(round, tasks)
    if not thirds:
        return
    columns = ("task_id", "annotator_id", "label", "task__n_true", "task__n_false", "task__n_unjudgeable")
    counted = _asked_thrice(round, tasks).counted().order_by().values_list(*columns)
    for task, annotator, label, *counts in counted.iterator(ROWS_AT_ONCE):
        if thirds[task] == annotator:
            yield task, ThirdJudgment(annotator, label, tuple(counts))


def _asked_thrice(round: Round, tasks: QuerySet[JudgmentTask] | None) -> QuerySet[Judgment]:
    judgments = Judgment.objects.filter(task__round=round, task__is_gold=False, task__n_judgments=ASKED_IF_SPLIT)
    return judgments if tasks is None else judgments.filter(task__in=tasks)


def _columns(pairs: QuerySet) -> tuple[np.ndarray, np.ndarray]:
    rows = np.fromiter(pairs.iterator(ROWS_AT_ONCE), dtype=[("task", np.int64), ("annotator", np.int64)])
    return rows["task"], rows["annotator"]
