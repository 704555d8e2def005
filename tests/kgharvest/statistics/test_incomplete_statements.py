"""Weight of incomplete statements, compared with hand computation, other estimators, and simulations."""

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
    """Complete the verdicts of groups given as (label counts, number of statements)."""
    counts, n = (np.array(column) for column in zip(*groups, strict=True))
    return CompletedVerdicts(counts, np.full(len(counts), wanted), n[np.newaxis], **options)


def accepted(verdicts: CompletedVerdicts) -> tuple[float, ...]:
    return tuple(float(column[0]) for column in verdicts.of_groups(ACCEPTED))


def test_complete_statements_keep_verdict_and_full_weight():
    verdicts = completed(([3, 0, 0], 1), ([1, 2, 0], 1), ([1, 1, 1], 1), ([0, 0, 3], 1))

    assert verdicts.probability[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    for verdict, n_hits in enumerate((1, 1, 2)):
        sample = verdicts.of_groups(verdict)
        assert [column.tolist() for column in sample] == [[4], [n_hits], [n_hits], [n_hits]]


def test_two_equal_labels_of_three_decide_the_verdict():
    verdicts = completed((TT, 6), (FF, 3), (TTF, 1))

    assert verdicts.probability[0, :, 0].tolist() == [1, 0, 1]
    assert accepted(verdicts)[:2] == (10, 7)


def test_open_disputes_follow_closed_disputes():
    """Three of four closed disputes were accepted, so each of the two open disputes counts 3/4."""
    verdicts = completed((TT, 10), (FF, 5), (TTF, 3), (TFF, 1), (TF, 2))

    assert verdicts.probability[0, -1].tolist() == pytest.approx([0.75, 0.25, 0], abs=1e-6)
    n, n_hits, least, most = accepted(verdicts)
    assert n_hits / n == pytest.approx((10 + 3 + 1.5) / 21)
    assert 0.9 * 19 < n < 21  # fewer than all 21 statements, about as many as the 19 decided ones
    assert least == most == n_hits


def test_share_is_bounded_without_closed_disputes():
    verdicts = completed((TT, 10), (FF, 5), (TF, 5))

    n, n_hits, least, most = accepted(verdicts)
    assert (n, least, most) == (20, 10, 15)
    assert least < n_hits < most


def test_bounded_share_uses_worst_and_best_case_limits():
    sample = VerdictSample(*(np.array([value], dtype=float) for value in (20, 12, 10, 15)))

    rate = sample_rate(sample, [400])

    assert rate.value == 12 / 20
    assert rate.low == sample_rate(VerdictSample.of_complete([20], [10]), [400]).low
    assert rate.high == sample_rate(VerdictSample.of_complete([20], [15]), [400]).high


def test_statement_without_judgments_has_no_weight():
    verdicts = completed((TTT, 6), ([0, 3, 0], 2), (NOTHING, 4))

    assert verdicts.probability[0, -1].tolist() == [0, 0, 0]
    assert accepted(verdicts)[:2] == (8, 6)


def test_group_without_certain_verdict_has_no_weight():
    verdicts = completed((TF, 5), (T, 9))

    assert accepted(verdicts) == (0, 0, 0, 0)
    assert np.isnan(verdicts.shares(ACCEPTED)).all()


def test_groups_are_estimated_independently():
    counts = np.array([TT, FF, TTF, TFF, TF])
    alone = [CompletedVerdicts(counts, np.full(5, 3), np.array([n])) for n in ([9, 2, 3, 1, 2], [4, 8, 1, 5, 3])]

    together = CompletedVerdicts(counts, np.full(5, 3), np.array([[9, 2, 3, 1, 2], [4, 8, 1, 5, 3]]))

    for number, verdicts in enumerate(alone):
        assert together.probability[number] == pytest.approx(verdicts.probability[0], abs=1e-9)
        assert [column[number] for column in together.of_groups(ACCEPTED)] == pytest.approx(accepted(verdicts))


def test_statement_contributions_sum_to_group_totals():
    counts = np.array([TT, FF, TTF, TFF, TF, NOTHING])
    n_tasks = np.array([[9, 2, 3, 1, 2, 1], [4, 8, 0, 0, 3, 0]])
    group, pattern = (np.repeat(index.ravel(), n_tasks.ravel()) for index in np.indices(n_tasks.shape))
    verdicts = CompletedVerdicts(counts, np.full(6, 3), n_tasks)

    by_statement = verdicts.of_statements(group, pattern, ACCEPTED).summed(group, 2)

    for summed, column in zip(by_statement, verdicts.of_groups(ACCEPTED), strict=True):
        assert summed == pytest.approx(column)


def test_imported_judgment_quorum_applies_to_completed_verdicts():
    """With a quorum of 2, one judgment decides nothing; a missing second judgment may agree with it."""
    assert completed((T, 4), wanted=1, quorum=2).probability[0].tolist() == [[0, 0, 1]]
    # The most likely share x of TT solves 3/x - 1/(1 - x) + 4/(1 + x) = 0. T is TT with chance x / (x + (1 - x) / 2).
    share = (3 + 105**0.5) / 16
    probability = completed((T, 4), (TT, 3), (TF, 1), wanted=2, quorum=2).probability[0, 0, 0]
    assert probability == pytest.approx(2 * share / (1 + share), abs=1e-6)


def test_custom_rule_uses_its_own_majority():
    assert completed((TT, 3), (TTF, 1), (TTT, 1), rule=unanimous).probability[0, 0, 0] < 1


def test_pattern_shares_maximize_likelihood():
    """Compare the shares of EM with a grid search over two patterns."""
    likelihood = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.25]])
    n = np.array([[4, 3, 5]])
    grid = np.linspace(1e-4, 1 - 1e-4, 20_001)
    log_likelihood = n[0] @ np.log(likelihood @ np.stack([grid, 1 - grid]))

    [shares] = fit_shares(likelihood, n)

    assert shares[0] == pytest.approx(grid[log_likelihood.argmax()], abs=1e-4)


def test_excluding_always_true_annotator_keeps_share_unbiased():
    """Two of three annotators judge first. In 80 % of the statements, one of them is an always-True spammer."""
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
    assert (counts[is_decided, 0] >= 2).mean() < truth - 0.2  # estimate without the incomplete statements
    assert n @ verdicts.probability[0, :, 0] / n.sum() == pytest.approx(truth, abs=0.01)


def test_statements_requiring_many_judgments_use_existing_ones():
    verdicts = completed(([40, 9, 0], 1), ([20, 29, 0], 1), wanted=50)

    assert verdicts.probability[0].tolist() == [[1, 0, 0], [0, 1, 0]]
