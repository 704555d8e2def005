"""Scores of sets of answers, with values by hand, and thresholds compared with brute force."""

import numpy as np
import pytest

from kgharvest.contrib.knowledge_graphs.lm_kbc.set_scores import (
    SetScore,
    best_threshold,
    macro_score,
    mean_score,
    set_score,
)


@pytest.mark.parametrize(
    ("predicted", "gold", "expected"),
    [
        (["a", "b", "c"], [["a"], ["b"]], (2 / 3, 1, 0.8)),
        (["a"], [["a"], ["b"], ["c"], ["d"]], (1, 1 / 4, 0.4)),
        (["x"], [["a"]], (0, 0, 0)),
        ([], [], (1, 1, 1)),  # the LM rightly gives no answer
        (["x"], [], (0, 1, 0)),
        ([], [["a"]], (1, 0, 0)),
        (["eire"], [["ireland", "eire"]], (1, 1, 1)),
        (["eire", "ireland"], [["ireland", "eire"]], (1 / 2, 1, 2 / 3)),
    ],
)
def test_score_of_one_question(predicted, gold, expected):
    assert set_score(predicted, gold) == pytest.approx(expected)


def test_macro_score_averages_over_subjects_then_over_relations():
    scores = {
        "borders": [SetScore(1, 1, 1.0), SetScore(0.5, 1, 0.6), SetScore(0, 0, 0.2)],  # mean F1 .6
        "capital": [SetScore(0, 1, 0.0)],
    }

    assert macro_score(scores) == pytest.approx((0.25, (2 / 3 + 1) / 2, 0.3))
    assert mean_score([score for relation in scores.values() for score in relation]).f1 == pytest.approx(0.45)


def test_threshold_by_hand():
    # At -2: 2 of 3 predicted, 2 of 2 true: F1 = 4 / 5. At -1: 2 / 3. At -4: 4 / 6.
    scores, is_true = np.array([-4.0, -1.0, -2.0, -1.5]), np.array([False, True, True, False])

    assert best_threshold(scores, is_true, np.ones(4)) == (-2.0, pytest.approx(0.8), 4, 2)


def test_no_threshold_without_true_tuples():
    assert best_threshold(np.array([-1.0]), np.array([False]), np.ones(1)) is None


@pytest.mark.parametrize("seed", range(20))
def test_threshold_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    scores = rng.integers(-6, 0, n).astype(float)  # many ties
    is_true, weights = rng.random(n) < 0.5, rng.choice([1.0, 2.5, 10.0], n)
    if not is_true.any():
        is_true[0] = True

    def f1(threshold):
        predicted = scores >= threshold
        right = weights[predicted & is_true].sum()
        return 2 * right / (weights[predicted].sum() + weights[is_true].sum())

    best = best_threshold(scores, is_true, weights)

    assert best.f1 == pytest.approx(max(map(f1, scores)))
    assert best.f1 == pytest.approx(f1(best.score))
    assert not [score for score in scores if score > best.score and f1(score) >= best.f1 - 1e-12]
