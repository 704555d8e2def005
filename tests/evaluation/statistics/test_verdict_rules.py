import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotation.judging.verdicts import majority
from evaluation.evidence.arrays import VERDICTS
from evaluation.statistics import verdict_rules
from evaluation.statistics.verdict_rules import expected_flips


@given(counts=st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=20), quorum=st.integers(1, 3))
def test_arrays_and_single_tasks_have_one_majority_rule(counts, quorum):
    verdicts = verdict_rules.majority(np.array(counts), quorum)

    one_by_one = [majority(n_true, n_false, n_true + n_false + n_other, quorum) for n_true, n_false, n_other in counts]
    assert [VERDICTS[verdict] for verdict in verdicts] == one_by_one


def test_a_quarter_of_verdicts_flips_at_the_agreement_that_the_paper_reports():
    # From alpha .27 and accept rate .73, about 23 % would flip with three new annotators (beta-binomial).
    assert expected_flips(0.73, 0.27, 3) == pytest.approx(0.23, abs=0.005)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_flips_are_those_of_simulated_panels(k):
    rng = np.random.default_rng(0)
    a, b = 2.0, 1.0  # correlation of two judgments: 1 / (a + b + 1)
    truths = rng.beta(a, b, 400_000)
    one, other = (2 * rng.binomial(k, truths) > k for _ in range(2))

    assert expected_flips(one.mean(), 0.25, k) == pytest.approx(np.mean(one != other), abs=0.003)


def test_without_agreement_panels_are_independent():
    assert expected_flips(0.6, -0.1, 3) == pytest.approx(0.48)
    assert expected_flips(0.6, 1e-9, 3) == pytest.approx(0.48, abs=1e-6)


def test_with_full_agreement_nothing_flips():
    assert expected_flips(0.6, 1.0, 3) == 0
    assert expected_flips(1.0, 0.3, 3) == 0
