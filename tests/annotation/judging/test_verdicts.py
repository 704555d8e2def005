import pytest

from annotation.judging.verdicts import Verdict, majority


@pytest.mark.parametrize(
    ("n_true", "n_false", "n_judgments", "verdict"),
    [
        (2, 1, 3, Verdict.ACCEPTED),
        (2, 0, 3, Verdict.ACCEPTED),
        (1, 2, 3, Verdict.REJECTED),
        (1, 1, 3, Verdict.UNDECIDED),
        (1, 0, 3, Verdict.UNDECIDED),
        (0, 0, 3, Verdict.UNDECIDED),
        (1, 1, 2, Verdict.UNDECIDED),
        (2, 0, 2, Verdict.ACCEPTED),
        (2, 2, 4, Verdict.UNDECIDED),
        (2, 1, 4, Verdict.UNDECIDED),
        (3, 1, 4, Verdict.ACCEPTED),
        (3, 2, 5, Verdict.ACCEPTED),
        (0, 3, 5, Verdict.REJECTED),
        (1, 0, 1, Verdict.ACCEPTED),
        (0, 0, 0, Verdict.UNDECIDED),
    ],
)
def test_more_than_half_of_all_judgments_decide(n_true, n_false, n_judgments, verdict):
    assert majority(n_true, n_false, n_judgments) == verdict


def test_without_a_fixed_k_one_judgment_decides_nothing():
    assert majority(1, 0, 1, quorum=2) == Verdict.UNDECIDED


def test_without_a_fixed_k_two_that_agree_decide():
    assert majority(0, 2, 3, quorum=2) == Verdict.REJECTED
