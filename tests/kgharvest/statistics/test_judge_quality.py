"""Errors, calibration, repeatability, agreement, and effective votes of judges.

Expected values come from hand computation and independent libraries.
"""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgharvest.statistics.agreement import ALL_ALIKE, NOTHING_PAIRED
from kgharvest.statistics.arrays import ACCEPTED, FALSE, REJECTED, TRUE, UNDECIDED, UNJUDGEABLE
from kgharvest.statistics.judge_quality import (
    NONE_REJECTED,
    ONE_JUDGE,
    UNPARSABLE,
    agreement_with_people,
    calibration,
    effective_votes,
    flips,
    judge_errors,
)


def repeated(*rows: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expand rows of (verdict, label, number of statements) to arrays with weight 1."""
    verdict, label = np.array([row[:2] for row in rows for _ in range(row[2])]).T
    return verdict, label, np.ones(len(verdict))


def test_errors_are_shares_of_accepted_and_rejected_statements():
    errors = judge_errors(
        *repeated(
            (ACCEPTED, TRUE, 9), (ACCEPTED, FALSE, 1), (REJECTED, FALSE, 4), (REJECTED, UNPARSABLE, 1),
            (UNDECIDED, UNJUDGEABLE, 2),
        )
    )  # fmt: skip

    assert errors.sensitivity[:3] == pytest.approx((0.9, 0.596, 0.982), abs=5e-4)  # Wilson interval of 9 in 10
    assert errors.specificity.value == 0.8
    assert errors.youden_j.value == pytest.approx(0.7)
    assert errors.confusion.tolist() == [[9, 1, 0, 0], [0, 4, 0, 1], [0, 0, 2, 0]]


def test_youden_j_interval_matches_newcombe():
    """Newcombe (1998), table II, example a: 56/70 - 48/80 = .2, method 10: .0524 to .3339."""
    errors = judge_errors(
        *repeated((ACCEPTED, TRUE, 56), (ACCEPTED, FALSE, 14), (REJECTED, TRUE, 48), (REJECTED, FALSE, 32))
    )

    assert errors.youden_j[:3] == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_statements_are_weighted_by_represented_tuples():
    verdict, label, weight = repeated((ACCEPTED, TRUE, 2), (ACCEPTED, FALSE, 2), (REJECTED, FALSE, 2))
    weight[:2] = 9.0

    errors = judge_errors(verdict, label, weight)

    assert errors.sensitivity.value == pytest.approx(18 / 20)
    kish = judge_errors(verdict, label, weight * 7.0)
    assert kish.sensitivity == pytest.approx(errors.sensitivity)
    assert errors.sensitivity.low < judge_errors(*repeated((ACCEPTED, TRUE, 9), (ACCEPTED, FALSE, 1))).sensitivity.low


def test_specificity_and_j_are_undefined_without_rejected_statements():
    errors = judge_errors(*repeated((ACCEPTED, TRUE, 5)))

    assert (errors.specificity.reason, errors.youden_j.value) == (NONE_REJECTED, None)


def test_calibration_matches_hand_computation():
    """Bins [0, .1) and [.9, 1] contain two each: |.05 - .5| / 2 + |.95 - 1| / 2; Brier (3 * .05^2 + .95^2) / 4."""
    result = calibration(np.array([0.05, 0.05, 0.95, 0.95]), np.array([False, True, True, True]), np.ones(4))

    assert (result.error, result.brier) == pytest.approx((0.25, 0.2275))
    assert [(row.low, row.high, row.n, row.accepted) for row in result.bins] == [(0, 0.1, 2, 0.5), (0.9, 1.0, 2, 1.0)]


def test_probability_one_is_in_last_bin_and_empty_input_has_no_calibration():
    assert calibration(np.array([1.0]), np.array([True]), np.ones(1)).error == 0
    assert calibration(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0)) is None


def test_flip_rate_averages_differing_pairs_over_statements():
    """Equal pairs: 1 of 3 for two equal answers, all for three, none for three different. Single answers: skipped."""
    result = flips(np.array([[2, 1, 0, 0], [0, 3, 0, 0], [1, 1, 0, 1], [1, 0, 0, 0]]))

    assert (result.n, result.n_changing) == (3, 2)
    assert result.flip_rate == pytest.approx(1 - (1 / 3 + 1 + 0) / 3)
    assert flips(np.array([[1, 0, 0, 0]])) is None


def test_judge_and_annotator_are_compared_with_same_labels():
    """Three annotators each. Excluding a T of TTF leaves T F, without a most frequent label. This happens twice."""
    task, label = np.repeat(np.arange(3), 3), np.array([TRUE, TRUE, TRUE, TRUE, TRUE, FALSE, FALSE, FALSE, FALSE])
    judge = np.array([TRUE, FALSE, FALSE])

    result = agreement_with_people(task, label, judge)

    assert result.n == 3 + 1 + 3
    assert result.people.percent == pytest.approx(6 / 7)  # F of TTF disagrees with T T
    assert result.judge.percent == pytest.approx(6 / 7)


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=4)), max_size=8))
def test_agreement_matches_krippendorff_library(statements):
    task = np.array([number for number, (_, labels) in enumerate(statements) for _ in labels], dtype=int)
    label = np.array([one for _, labels in statements for one in labels], dtype=int)
    judge = np.array([code for code, _ in statements], dtype=int)
    pairs = {"people": [], "judge": []}
    for code, labels in statements:
        for place, excluded in enumerate(labels):
            others = labels[:place] + labels[place + 1 :]
            most = [x for x in set(others) if others.count(x) == max(map(others.count, others))]
            if len(most) == 1:
                pairs["people"].append((excluded, most[0]))
                pairs["judge"].append((code, most[0]))

    result = agreement_with_people(task, label, judge)

    assert result.n == len(pairs["people"])
    for name, consensus in (("people", result.people), ("judge", result.judge)):
        if not pairs[name]:
            assert consensus == (None, None, NOTHING_PAIRED)
        elif len({value for pair in pairs[name] for value in pair}) == 1:
            assert consensus == (1.0, None, ALL_ALIKE)
        else:
            data = np.array(pairs[name], dtype=float).T
            assert consensus.percent == pytest.approx(np.mean(data[0] == data[1]))
            assert consensus.alpha == pytest.approx(krippendorff.alpha(data, level_of_measurement="nominal"))


def test_statements_without_judge_label_are_excluded():
    result = agreement_with_people(np.repeat([0, 1], 2), np.zeros(4, dtype=int), np.array([TRUE, -1]))

    assert result.n == 2


def errors_of(*columns: str) -> np.ndarray:
    return np.array([[letter == "x" for letter in column] for column in columns]).T


def test_identical_judges_count_once_and_independent_judges_fully():
    alike = errors_of(*["xx........"] * 9)
    # Each judge errs in half of the statements and each pair in a quarter: no correlation.
    apart = errors_of("xxxxxxxx........", "xxxx....xxxx....", "xx..xx..xx..xx..")

    assert effective_votes(alike)[2:4] == pytest.approx((1, 1))
    assert effective_votes(apart)[2:4] == pytest.approx((3, 3))


def test_effective_votes_match_hand_computation():
    """Two judges with correlated errors, r = .5: 2 / 1.5 and 4 / 2.5 votes."""
    votes = effective_votes(errors_of("xxxx....xxxx....", "xxx....xxxx....x"))
    r = np.corrcoef(errors_of("xxxx....xxxx....", "xxx....xxxx....x").T.astype(float))[0, 1]

    assert r == pytest.approx(0.5)
    assert votes[2:4] == pytest.approx((2 / 1.5, 4 / 2.5))


def test_error_free_judge_is_uncorrelated_and_single_judge_is_no_panel():
    assert effective_votes(errors_of("x..........", "...........")).kish == pytest.approx(2)
    assert effective_votes(errors_of("x..........")).reason == ONE_JUDGE
    assert effective_votes(errors_of("x.", ".x")).kish is None
