"""How much of a round one annotator may judge."""

import pytest
from django.utils import timezone

from annotation.services.assignment import next_batch
from tests.factories import judge, make_annotators, make_round

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def judge_what_comes(annotator) -> int:
    """Return how many statements the annotator was handed until there were no more."""
    n = 0
    while batch := next_batch(annotator, NOW):
        for task in batch:
            judge(annotator, task)
            n += 1
    return n


def test_a_quota_ends_an_annotators_work():
    round = make_round(9, batch_size=4, max_per_annotator=6)
    first, second = make_annotators(round, 2)

    assert (judge_what_comes(first), judge_what_comes(second)) == (6, 6)


def test_what_is_in_hand_counts_towards_the_quota():
    [annotator] = make_annotators(make_round(9, batch_size=4, max_per_annotator=5), 1)

    for task in next_batch(annotator, NOW)[:3]:
        judge(annotator, task)

    assert len(next_batch(annotator, NOW)) == 2


def test_changing_ones_mind_takes_nothing_of_the_quota():
    [annotator] = make_annotators(make_round(9, batch_size=4, max_per_annotator=5), 1)
    [task, *_] = next_batch(annotator, NOW)

    for label in ("true", "false", "true"):
        judge(annotator, task, label)

    assert len(next_batch(annotator, NOW)) == 4


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        ({"dominance_cap": 0.29}, 29),  # 0.29 * 100 is 28.999999999999996
        ({"dominance_cap": 0.1}, 10),
        ({"dominance_cap": 0.1, "max_per_annotator": 7}, 7),
        ({"dominance_cap": 0.01, "max_per_annotator": 7}, 1),
        ({"max_per_annotator": 7}, 7),
        ({}, None),
    ],
)
def test_the_share_of_one(spec, share):
    assert make_round(50, judgments_per_task=2, **spec).share_of_one == share


def test_no_share_is_exceeded_when_no_third_is_asked():
    assert make_round(50, third_only_if_split=True, dominance_cap=0.1).share_of_one == 10
