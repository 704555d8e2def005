"""Annotator statistics."""

import pytest
from django.utils import timezone

from annotation.models import Judgment
from annotation.quality.annotator_statistics import count_annotators, statistics_of
from annotation.quality.limits import set_limits
from tests.factories import judge_all, make_gold, make_round

pytestmark = pytest.mark.django_db


def by_code(round) -> dict:
    return {row["code"]: row for row in count_annotators(round)}


def test_statistics_match_hand_calculation():
    """Check three annotators and four statements. The last statement is gold and True."""
    round = make_round(4)
    labels = ["true", "true", "false", "true"], ["true", "false", "false", "false"], ["true", "true", "true", "true"]
    annotators = judge_all(round, *labels)
    make_gold(round, [round.tasks.get(position=3)], "true")

    first, second, third = (by_code(round)[annotator.code] for annotator in annotators)

    # Statement 0: TTT, 1: TFT, 2: FFT. Each annotator has two pairs on each of three statements: six pairs.
    assert (first["agreement"], first["n_pairs"]) == (pytest.approx((2 + 1 + 1) / 6), 6)
    assert second["agreement"] == pytest.approx((2 + 0 + 1) / 6)
    assert third["agreement"] == pytest.approx((2 + 1 + 0) / 6)
    assert (first["n_gold_right"], second["n_gold_right"]) == (1, 0)
    # Wilson (1927) for 1 of 1: 1 / (1 + 1.96^2) to 1.
    assert first["gold"]["low"] == pytest.approx(0.2065, abs=1e-4)
    assert first["gold"]["high"] == 1
    assert third["shares"] == {"true": 1.0, "false": 0.0, "unjudgeable": 0.0}
    assert third["longest_run"] == 4


def test_uncounted_judgment_is_compared_with_all_counted_ones():
    round = make_round(1)
    first, *_ = judge_all(round, ["true"], ["true"], ["false"])
    Judgment.objects.filter(annotator=first).update(is_counted=False)
    round.tasks.update(n_judgments=2, n_true=1, verdict="")

    assert by_code(round)[first.code]["agreement"] == 0.5


def test_annotators_are_flagged_with_and_without_limits():
    round = make_round(30, batch_size=30)
    set_limits(round, gold_accuracy=0.5)
    mixed = ["true", "false"] * 15
    *_, straight = judge_all(round, mixed, mixed, ["true"] * 30)
    Judgment.objects.filter(annotator=straight).update(seconds=0.4)

    assert by_code(round)[straight.code]["flags"] == [
        "median of 0.4 seconds",
        "30 equal labels in a row",
        "half of the statements judged at more than 60 characters per second",
    ]
    assert statistics_of(straight, timezone.now())["flags"] == by_code(round)[straight.code]["flags"]
    assert [row["flags"] for code, row in by_code(round).items() if code != straight.code] == [[], []]


@pytest.mark.parametrize("n_annotators", [2, 12])
def test_statistics_query_count_is_constant(n_annotators, django_assert_num_queries):
    round = make_round(3, judgments_per_task=12)
    judge_all(round, *[["true"] * 3] * n_annotators)

    with django_assert_num_queries(10):
        count_annotators(round)
