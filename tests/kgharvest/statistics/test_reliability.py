"""Labels weighted by the reliability of annotators, against scikit-learn's kappa and by hand."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import cohen_kappa_score

from kgharvest.statistics.arrays import ACCEPTED, FALSE, INCOMPLETE, REJECTED, TRUE, UNDECIDED, UNJUDGEABLE
from kgharvest.statistics.reliability import reliability_weights, verdicts_by_reliability

T, F, U = TRUE, FALSE, UNJUDGEABLE


def arrays(*statements: dict[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return task, annotator and label of statements, given as labels by annotator."""
    rows = [(task, annotator, label) for task, labels in enumerate(statements) for annotator, label in labels.items()]
    task, annotator, label = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return task, annotator, label


def verdicts(weights: list[float], *statements: dict[int, int]) -> list[int]:
    return verdicts_by_reliability(*arrays(*statements), len(statements), np.array(weights)).tolist()


def test_weights_follow_scikit_learns_kappa_with_the_plurality_of_the_others():
    rng = np.random.default_rng(7)
    statements = [
        {annotator: int(rng.choice(3, p=[0.6, 0.3, 0.1])) for annotator in rng.choice(6, 4, replace=False).tolist()}
        for _ in range(60)
    ]
    scale = {F: 0, U: 1, T: 2}

    weights = reliability_weights(*arrays(*statements), 6)

    for annotator in range(6):
        own, others = [], []
        for labels in statements:
            if annotator in labels:
                counts = np.bincount([label for other, label in labels.items() if other != annotator], minlength=3)
                if (counts == counts.max()).sum() == 1:
                    own.append(scale[labels[annotator]])
                    others.append(scale[int(counts.argmax())])
        kappa = cohen_kappa_score(own, others, labels=[0, 1, 2], weights="linear")
        assert weights[annotator] == pytest.approx(expit(5 * kappa), abs=1e-12)


def test_an_annotator_without_comparable_labels_has_weight_one_half():
    task, annotator, label = arrays({0: T, 1: T}, {0: T, 1: T}, {2: F})

    assert reliability_weights(task, annotator, label, 4).tolist() == [0.5, 0.5, 0.5, 0.5]


def test_single_labels_and_equal_pairs_decide_and_unequal_pairs_do_not():
    assert verdicts([0.9, 0.1], {0: T}, {1: F}, {0: U}, {0: T, 1: T}, {0: T, 1: F}, {0: T, 1: U}) == [
        ACCEPTED, REJECTED, UNDECIDED, ACCEPTED, UNDECIDED, UNDECIDED,
    ]  # fmt: skip


def test_the_largest_total_weight_decides_three_or_more_labels():
    weights = [0.9, 0.3, 0.3, 0.6]

    assert verdicts(weights, {0: T, 1: F, 2: F}, {0: T, 1: F, 3: F}, {0: U, 1: F, 2: F}) == [
        ACCEPTED,
        UNDECIDED,
        UNDECIDED,
    ]
    assert verdicts(weights, {1: T, 2: F, 3: F}, {1: T, 2: F, 3: U}) == [REJECTED, UNDECIDED]


def test_statements_without_labels_are_incomplete():
    task, annotator, label = arrays({0: T})

    assert verdicts_by_reliability(task, annotator, label, 2, np.array([0.5])).tolist() == [ACCEPTED, INCOMPLETE]
