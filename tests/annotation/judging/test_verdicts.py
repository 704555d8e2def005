import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotation.judging.verdict_update import update_verdicts
from annotation.judging.verdicts import IMPORTED_QUORUM, Verdict, majority, task_verdict, wanted_if_split
from annotation.models import Round
from kgharvest.statistics import verdicts
from kgharvest.statistics.arrays import VERDICTS
from tests.factories import make_round

LABEL_COUNTS = st.tuples(*[st.integers(0, 5)] * 3)  # True, False, Unjudgeable


@pytest.fixture
def task(db):
    return make_round(1).tasks.all()


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
def test_verdict_requires_more_than_half_of_all_judgments(n_true, n_false, n_judgments, verdict):
    assert majority(n_true, n_false, n_judgments) == verdict


def test_one_judgment_below_quorum_is_undecided():
    assert majority(1, 0, 1, quorum=2) == Verdict.UNDECIDED


def test_two_equal_judgments_decide_with_quorum_of_two():
    assert majority(0, 2, 3, quorum=2) == Verdict.REJECTED


def test_incomplete_task_has_no_verdict():
    assert task_verdict(2, 0, 0, n_wanted=3) is None
    assert task_verdict(2, 0, 1, n_wanted=3) == Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("counts", "n_leased", "n_wanted"),
    [
        ((0, 0, 0), 0, 2),
        ((1, 0, 0), 1, 2),
        ((2, 0, 0), 0, 2),
        ((0, 0, 2), 0, 2),
        ((1, 1, 0), 0, 3),
        ((1, 0, 1), 1, 3),
        ((2, 0, 0), 1, 3),  # a third annotator already has a lease
        ((1, 1, 1), 0, 3),
    ],
)
def test_third_judgment_is_required_only_for_splits(counts, n_leased, n_wanted):
    assert wanted_if_split(*counts, n_leased) == n_wanted


@given(labels=st.lists(st.sampled_from(range(3)), min_size=3, max_size=3))
def test_third_only_if_split_has_same_verdict_as_three_judgments(labels):
    first_two = [labels[:2].count(label) for label in range(3)]
    labels_asked_for = labels[: wanted_if_split(*first_two)]
    counts = [labels_asked_for.count(label) for label in range(3)]

    assert task_verdict(*counts, len(labels_asked_for)) == majority(labels.count(0), labels.count(1), 3)


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=LABEL_COUNTS,
    k=st.integers(1, 9),
    n_leased=st.integers(0, 3),
    source=st.sampled_from(Round.Source.values),
    third_only_if_split=st.booleans(),
)
def test_sql_and_python_verdicts_are_equal(task, counts, k, n_leased, source, third_only_if_split):
    round = Round(source=source, third_only_if_split=third_only_if_split)
    n_judgments = sum(counts)
    n_wanted = max(k, n_judgments + n_leased)
    counters = dict(zip(("n_true", "n_false", "n_unjudgeable"), counts, strict=True))
    task.update(n_judgments=n_judgments, n_leased=n_leased, n_wanted=n_wanted, verdict="", **counters)

    update_verdicts(task, round)

    if third_only_if_split:
        n_wanted = wanted_if_split(*counts, n_leased)
    quorum = IMPORTED_QUORUM if source == Round.Source.IMPORTED else 1
    verdict = task_verdict(*counts, n_wanted, quorum)
    assert task.values_list("n_wanted", "verdict").get() == (n_wanted, verdict or "")


@given(counts=st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=20), quorum=st.integers(1, 3))
def test_array_and_single_task_majorities_are_equal(counts, quorum):
    by_rule = verdicts.majority(np.array(counts), quorum)

    one_by_one = [majority(n_true, n_false, n_true + n_false + n_other, quorum) for n_true, n_false, n_other in counts]
    assert [VERDICTS[verdict] for verdict in by_rule] == one_by_one
