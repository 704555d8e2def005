"""What each annotator's judgments decide: the verdicts without them, at the cost of the statements they judged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from evaluation.evidence.arrays import LABELS, VERDICTS, Codes, Evidence, Floats
from evaluation.reports.sections.rates import accuracies_of, stratum_counts
from evaluation.statistics.verdict_rules import majority, where_complete

FEWEST_ANNOTATORS = 2


class LeftOut(NamedTuple):
    """A round without an annotator. n_changed: statements whose verdict is another then, or gone.

    counts: (4,) verdicts, in the order of VERDICTS. accuracy: (C,) of cells, NaN where there is none.
    """

    annotator: str
    n_changed: int
    counts: Codes
    accuracy: Floats


class Changed(NamedTuple):
    """Statements with another verdict than the report's. All of shape (n,)."""

    task: Codes
    verdict: Codes


def without_each_annotator(evidence: Evidence) -> Iterator[LeftOut]:
    """Leave out each annotator in turn, if there are others; a statement that only they judged is incomplete."""
    if len(evidence.annotators) < FEWEST_ANNOTATORS:
        return
    counts = np.bincount(evidence.verdict, minlength=len(VERDICTS))
    counts_of_strata = stratum_counts(evidence, evidence.verdict)
    moved_draws = partial(_moved_draws, evidence, _DrawsOfTasks(evidence))
    for annotator, own in enumerate(_judgments_by_annotator(evidence)):
        changed = _changed_without(evidence, own)
        before = evidence.verdict[changed.task]
        yield LeftOut(
            evidence.annotators[annotator],
            len(changed.task),
            counts + _moved(before, changed.verdict, 1)[0],
            accuracies_of(evidence, counts_of_strata + moved_draws(changed)),
        )


def _judgments_by_annotator(evidence: Evidence) -> list[Codes]:
    """Return which judgments are whose."""
    annotator = evidence.judgments.annotator
    order = np.argsort(annotator, kind="stable")
    edges = np.searchsorted(annotator[order], np.arange(1, len(evidence.annotators)))
    return np.split(order, edges) if evidence.annotators else []


def _changed_without(evidence: Evidence, own: Codes) -> Changed:
    task, label = evidence.judgments.task[own], evidence.judgments.label[own]
    left = evidence.counts[task] - np.eye(len(LABELS), dtype=np.int64)[label]
    has_others = evidence.is_complete[task] & (left.sum(axis=1) > 0)
    verdict = where_complete(majority(left, evidence.quorum), has_others)
    is_changed = verdict != evidence.verdict[task]
    return Changed(task[is_changed], verdict[is_changed])


class _DrawsOfTasks:
    """The strata that drew each statement, found without looking at the other draws."""

    def __init__(self, evidence: Evidence) -> None:
        order = np.argsort(evidence.draws.task, kind="stable")
        self.stratum = evidence.draws.stratum[order]
        self.edges = np.searchsorted(evidence.draws.task[order], np.arange(evidence.n_tasks + 1))

    def of(self, task: Codes) -> tuple[Codes, Codes]:
        """Return the strata of all draws of these statements, and how many draws each statement has."""
        n_draws = self.edges[task + 1] - self.edges[task]
        before = np.cumsum(n_draws) - n_draws
        place = np.repeat(self.edges[task] - before, n_draws) + np.arange(n_draws.sum())
        return self.stratum[place], n_draws


def _moved_draws(evidence: Evidence, draws: _DrawsOfTasks, changed: Changed) -> Codes:
    """Return (S, 4): by how much each stratum's verdicts change."""
    stratum, n_draws = draws.of(changed.task)
    before, after = (np.repeat(verdict, n_draws) for verdict in (evidence.verdict[changed.task], changed.verdict))
    return _moved(before, after, len(evidence.strata), stratum)


def _moved(before: Codes, after: Codes, n_groups: int, group: Codes | int = 0) -> Codes:
    """Return (n_groups, 4): how many more or fewer of a group have each verdict than before."""
    counts = (
        np.bincount(group * len(VERDICTS) + verdict, minlength=n_groups * len(VERDICTS)) for verdict in (after, before)
    )
    more, fewer = counts
    return (more - fewer).reshape(n_groups, len(VERDICTS))
