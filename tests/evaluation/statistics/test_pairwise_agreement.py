import numpy as np

from evaluation.statistics.agreement import pair_counts


def test_pairs_by_hand():
    # Task 0: annotators 0, 1, 3 say 0, 0, 1; task 1: 1, 3 say 1, 1; task 2: 2 alone.
    task = np.array([0, 0, 0, 1, 1, 2])
    annotator = np.array([0, 1, 3, 1, 3, 2])
    label = np.array([0, 0, 1, 1, 1, 0])

    assert pair_counts(task, annotator, label) == [(0, 1, 1, 1), (0, 3, 1, 0), (1, 3, 2, 1)]


def test_nobody_makes_no_pair():
    empty = np.zeros(0, dtype=np.int64)

    assert pair_counts(empty, empty, empty) == []
    assert pair_counts(np.array([0]), np.array([0]), np.array([0])) == []
