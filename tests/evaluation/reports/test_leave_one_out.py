"""Results without each annotator: incremental counts equal complete recounts."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.evidence.evidence import Draws, Judgments, accuracies_of, changed_patterns, drawn_verdicts, patterns_of
from evaluation.reports.sections.sensitivity import without_each_annotator
from kgharvest.statistics.arrays import ACCEPTED
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.verdicts import CompletedVerdicts
from tests.evaluation.evidence_factory import make_evidence

N_ANNOTATORS, N_STATEMENTS = 7, 90
CELLS = {CellKey(f"r{number}", "lm", "multi"): (15, 10, 5, 0) for number in range(3)}


def study(seed: int):
    """Create evidence: up to three of seven annotators judge each statement, and some statements are in two cells."""
    rng = np.random.default_rng(seed)
    n_labels = rng.choice([0, 1, 2, 3], N_STATEMENTS, p=[0.05, 0.05, 0.1, 0.8])
    task = np.repeat(np.arange(N_STATEMENTS), n_labels)
    annotator = np.concatenate([np.sort(rng.permutation(N_ANNOTATORS)[:n]) for n in n_labels]).astype(np.int64)
    label = rng.choice(3, len(task), p=[0.6, 0.3, 0.1])
    counts = np.stack([np.bincount(task[label == code], minlength=N_STATEMENTS) for code in range(3)], axis=1)
    verdict = np.where(2 * counts[:, 0] > n_labels, 0, np.where(2 * counts[:, 1] > n_labels, 1, 2))
    shared = rng.choice(30, 8, replace=False)  # from the first cell, also drawn for the second
    drawn = np.concatenate([np.arange(N_STATEMENTS), shared])
    stratum = np.concatenate([np.repeat(range(3), 30), np.ones(8, dtype=np.int64)])
    order = np.lexsort((drawn, stratum))
    return make_evidence(
        CELLS,
        annotators=[f"a{number}" for number in range(N_ANNOTATORS)],
        verdict=np.where(n_labels == 3, verdict, 3),
        judgments=Judgments(task, annotator, label, np.full(len(task), np.nan)),
        draws=Draws(drawn[order], stratum[order], np.arange(1, len(drawn) + 1), -np.arange(float(len(drawn)))),
    )


@pytest.mark.parametrize("seed", range(5))
def test_incremental_counts_equal_recount(seed):
    evidence = study(seed)

    for number, without in enumerate(without_each_annotator(evidence)):
        is_omitted = evidence.judgments.annotator == number
        counts = evidence.counts.copy()
        np.subtract.at(counts, (evidence.judgments.task[is_omitted], evidence.judgments.label[is_omitted]), 1)
        patterns = patterns_of(counts, evidence.wanted)
        drawn = drawn_verdicts(evidence, patterns)
        complete = np.flatnonzero(evidence.is_complete)
        pattern_counts = np.bincount(patterns.of_task[complete], minlength=len(patterns.counts))
        completed = CompletedVerdicts(patterns.counts, patterns.wanted, pattern_counts[None], evidence.quorum)
        kept = completed.probability[0][patterns.of_task[complete], evidence.verdict[complete]]
        certain = completed.certain[patterns.of_task[complete]].sum(axis=0)
        assert without.counts.tolist() == [*certain, N_STATEMENTS - certain.sum()]
        assert without.n_changed == pytest.approx(len(complete) - kept.sum())
        assert without.accuracy == pytest.approx(accuracies_of(evidence, drawn.shares(ACCEPTED)), nan_ok=True)
        for expected, actual in zip(drawn.accepted, without.drawn().accepted, strict=True):
            assert np.array_equal(expected, actual, equal_nan=True)


def test_changed_patterns_match_new_counts():
    counts, wanted = np.array([[3, 0, 0], [2, 1, 0], [3, 0, 0]]), np.array([3, 3, 3])

    changed, renumbered = changed_patterns(
        patterns_of(counts, wanted), np.array([1]), np.array([[1, 1, 0]]), wanted[:1]
    )

    assert changed.counts.tolist() == [[1, 1, 0], [3, 0, 0]]
    assert (changed.n_tasks.tolist(), changed.of_task.tolist()) == ([1, 2], [0])
    assert renumbered.tolist() == [-1, 1]  # the first pattern no longer occurs
