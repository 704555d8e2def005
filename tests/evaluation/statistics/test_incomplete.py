"""What incomplete statements count for, against hand computation and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.statistics.incomplete import completed_verdicts

TT, FF, TF, TTF, TFF = [2, 0, 0], [0, 2, 0], [1, 1, 0], [2, 1, 0], [1, 2, 0]


def repeated(*groups: tuple[list[int], int]) -> np.ndarray:
    return np.concatenate([np.tile(pattern, (n, 1)) for pattern, n in groups])


def test_complete_statements_have_their_verdict_and_all_information():
    verdicts = completed_verdicts(np.array([[3, 0, 0], [1, 2, 0], [1, 1, 1], [0, 0, 3]]), 3)

    assert verdicts.probabilities.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert verdicts.information == (1, 1, 1)


def test_two_equal_labels_of_three_decide_whatever_the_third_says():
    verdicts = completed_verdicts(repeated((TT, 6), (FF, 3), (TTF, 1)), 3)

    assert verdicts.probabilities[:6, 0].tolist() == pytest.approx([1] * 6)
    assert verdicts.information[0] == pytest.approx(1)


def test_open_disputes_count_as_the_closed_ones_went():
    """Of four disputes with a third judgment three were accepted, so each of the two open ones counts 3/4."""
    verdicts = completed_verdicts(repeated((TT, 10), (FF, 5), (TTF, 3), (TFF, 1), (TF, 2)), 3)

    assert verdicts.probabilities[-2:, 0].tolist() == pytest.approx([0.75, 0.75], abs=1e-4)
    assert verdicts.probabilities[:, 0].mean() == pytest.approx((10 + 3 + 1.5) / 21, abs=1e-4)
    assert 15 / 21 < verdicts.information[0] < 1


def test_without_a_closed_dispute_the_labels_do_not_tell_the_share():
    verdicts = completed_verdicts(repeated((TT, 10), (FF, 5), (TF, 5)), 3)

    assert verdicts.information[0] == 0


def test_a_statement_without_judgments_gets_the_shares_of_the_others():
    verdicts = completed_verdicts(repeated(([3, 0, 0], 6), ([0, 3, 0], 2), ([0, 0, 0], 4)), 3)

    assert verdicts.probabilities[-1].tolist() == pytest.approx([0.75, 0.25, 0], abs=1e-6)
    assert verdicts.information[0] == pytest.approx(8 / 12)


def test_excluding_somebody_who_always_says_true_does_not_shift_the_share():
    """Two of three annotators are asked first; in four of five statements one of them said True whatever it was."""
    rng = np.random.default_rng(0)
    honest = rng.random((20_000, 3)) < np.where(rng.random(20_000) < 0.7, 0.85, 0.15)[:, None]
    truth = (honest.sum(axis=1) >= 2).mean()
    counts = np.zeros((20_000, 3), dtype=np.int64)
    for statement, (first, second, third) in zip(counts, honest.tolist(), strict=True):
        is_spammed = rng.random() < 0.8
        labels = [first] if is_spammed else [first, second]
        if first != (True if is_spammed else second):
            labels.append(third)
        statement[:2] = sum(labels), len(labels) - sum(labels)

    verdicts = completed_verdicts(counts, 3)

    is_decided = (counts >= 2).any(axis=1)
    assert (counts[is_decided, 0] >= 2).mean() < truth - 0.2  # leaving them out
    assert verdicts.probabilities[:, 0].mean() == pytest.approx(truth, abs=0.01)


def test_too_many_patterns_are_refused():
    with pytest.raises(ValueError, match="120 judgments"):
        completed_verdicts(np.array([[3, 0, 0]]), 120)
