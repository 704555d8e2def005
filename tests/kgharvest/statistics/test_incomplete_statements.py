"""What incomplete statements count for, against hand computation, other estimators and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from kgharvest.statistics.arrays import ACCEPTED
from kgharvest.statistics.rates import VerdictSample, sample_rate
from kgharvest.statistics.verdicts import CompletedVerdicts, fit_shares, unanimous

TTT, TT, FF, TF, TTF, TFF, T, NOTHING = (
    [3, 0, 0], [2, 0, 0], [0, 2, 0], [1, 1, 0], [2, 1, 0], [1, 2, 0], [1, 0, 0], [0, 0, 0]
)  # fmt: skip


def completed(*groups: tuple[list[int], int], wanted: int = 3, **options):
    """groups: labels, and how many statements have them."""
    counts, n = (np.array(column) for column in zip(*groups, strict=True))
    return CompletedVerdicts(counts, np.full(len(counts), wanted), n[np.newaxis], **options)


def accepted(verdicts: CompletedVerdicts) -> tuple[float, ...]:
    return tuple(float(column[0]) for column in verdicts.of_groups(ACCEPTED))


def test_complete_statements_have_their_verdict_and_full_worth():
    verdicts = completed(([3, 0, 0], 1), ([1, 2, 0], 1), ([1, 1, 1], 1), ([0, 0, 3], 1))

    assert verdicts.probability[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    for verdict, n_hits in enumerate((1, 1, 2)):
        sample = verdicts.of_groups(verdict)
        assert [column.tolist() for column in sample] == [[4], [n_hits], [n_hits], [n_hits]]


def test_two_equal_labels_of_three_decide_whatever_the_third_says():
    verdicts = completed((TT, 6), (FF, 3), (TTF, 1))

    assert verdicts.probability[0, :, 0].tolist() == [1, 0, 1]
    assert accepted(verdicts)[:2] == (10, 7)


def test_open_disputes_count_as_the_closed_ones_went():
    """Of four disputes with a third judgment three were accepted, so each of the two open ones counts 3/4."""
    verdicts = completed((TT, 10), (FF, 5), (TTF, 3), (TFF, 1), (TF, 2))

    assert verdicts.probability[0, -1].tolist() == pytest.approx([0.75, 0.25, 0], abs=1e-6)
    n, n_hits, least, most = accepted(verdicts)
    assert n_hits / n == pytest.approx((10 + 3 + 1.5) / 21)
    assert 0.9 * 19 < n < 21  # less than all, about as much as those that are decided
    assert least == most == n_hits


def test_without_a_closed_dispute_the_share_is_bounded():
    verdicts = completed((TT, 10), (FF, 5), (TF, 5))

    n, n_hits, least, most = accepted(verdicts)
    assert (n, least, most) == (20, 10, 15)
    assert least < n_hits < most


def test_a_bounded_share_has_the_limits_of_the_worst_and_of_the_best_that_the_open_ones_can_become():
    sample = VerdictSample(*(np.array([value], dtype=float) for value in (20, 12, 10, 15)))

    rate = sample_rate(sample, [400])

    assert rate.value == 12 / 20
    assert rate.low == sample_rate(VerdictSample.of_complete([20], [10]), [400]).low
    assert rate.high == sample_rate(VerdictSample.of_complete([20], [15]), [400]).high


def test_a_statement_without_judgments_says_nothing():
    verdicts = completed((TTT, 6), ([0, 3, 0], 2), (NOTHING, 4))

    assert verdicts.probability[0, -1].tolist() == [0, 0, 0]
    assert accepted(verdicts)[:2] == (8, 6)


def test_a_group_without_a_certain_verdict_is_worth_nothing():
    verdicts = completed((TF, 5), (T, 9))

    assert accepted(verdicts) == (0, 0, 0, 0)
    assert np.isnan(verdicts.shares(ACCEPTED)).all()


def test_groups_do_not_borrow_from_each_other():
    counts = np.array([TT, FF, TTF, TFF, TF])
    alone = [CompletedVerdicts(counts, np.full(5, 3), np.array([n])) for n in ([9, 2, 3, 1, 2], [4, 8, 1, 5, 3])]

    together = CompletedVerdicts(counts, np.full(5, 3), np.array([[9, 2, 3, 1, 2], [4, 8, 1, 5, 3]]))

    for number, verdicts in enumerate(alone):
        assert together.probability[number] == pytest.approx(verdicts.probability[0], abs=1e-9)
        assert [column[number] for column in together.of_groups(ACCEPTED)] == pytest.approx(accepted(verdicts))


def test_what_statements_say_adds_up_to_what_their_groups_say():
    counts = np.array([TT, FF, TTF, TFF, TF, NOTHING])
    n_tasks = np.array([[9, 2, 3, 1, 2, 1], [4, 8, 0, 0, 3, 0]])
    group, pattern = (np.repeat(index.ravel(), n_tasks.ravel()) for index in np.indices(n_tasks.shape))
    verdicts = CompletedVerdicts(counts, np.full(6, 3), n_tasks)

    by_statement = verdicts.of_statements(group, pattern, ACCEPTED).summed(group, 2)

    for summed, column in zip(by_statement, verdicts.of_groups(ACCEPTED), strict=True):
        assert summed == pytest.approx(column)


def test_the_quorum_of_imported_judgments_holds_for_completed_ones():
    """One judgment alone decides nothing there; a second one that is missing may make two that agree."""
    assert completed((T, 4), wanted=1, quorum=2).probability[0].tolist() == [[0, 0, 1]]
    # x, the share of TT, is most likely where 3/x - 1/(1 - x) + 4/(1 + x) = 0; T is of TT with x / (x + (1 - x) / 2).
    share = (3 + 105**0.5) / 16
    probability = completed((T, 4), (TT, 3), (TF, 1), wanted=2, quorum=2).probability[0, 0, 0]
    assert probability == pytest.approx(2 * share / (1 + share), abs=1e-6)


def test_another_rule_decides_by_its_own_majority():
    assert completed((TT, 3), (TTF, 1), (TTT, 1), rule=unanimous).probability[0, 0, 0] < 1


def test_shares_of_patterns_are_the_most_likely_ones():
    """The EM's shares against a search over all shares of two patterns."""
    likelihood = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.25]])
    n = np.array([[4, 3, 5]])
    grid = np.linspace(1e-4, 1 - 1e-4, 20_001)
    log_likelihood = n[0] @ np.log(likelihood @ np.stack([grid, 1 - grid]))

    [shares] = fit_shares(likelihood, n)

    assert shares[0] == pytest.approx(grid[log_likelihood.argmax()], abs=1e-4)


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
    patterns, n = np.unique(counts, axis=0, return_counts=True)

    verdicts = CompletedVerdicts(patterns, np.full(len(patterns), 3), n[np.newaxis])

    is_decided = (counts >= 2).any(axis=1)
    assert (counts[is_decided, 0] >= 2).mean() < truth - 0.2  # leaving them out
    assert n @ verdicts.probability[0, :, 0] / n.sum() == pytest.approx(truth, abs=0.01)


def test_statements_that_want_very_many_judgments_are_decided_by_those_they_have():
    verdicts = completed(([40, 9, 0], 1), ([20, 29, 0], 1), wanted=50)

    assert verdicts.probability[0].tolist() == [[1, 0, 0], [0, 1, 0]]
