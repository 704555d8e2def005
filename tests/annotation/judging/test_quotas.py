"""How much of a round one annotator may judge."""

import pytest
from django.utils import timezone

from annotation.judging.assignment import LEASE, next_batch
from annotation.models import Judgment
from annotation.monitoring.progress import capacity_warning
from tests.factories import judge, judging_page, make_annotators, make_round

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


def test_assigned_tasks_count_towards_the_quota():
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


def test_a_late_answer_beyond_the_quota_is_kept_but_not_counted():
    round = make_round(9, batch_size=1, max_per_annotator=2)
    slow, other = make_annotators(round, 2)
    [late] = next_batch(slow, NOW)
    next_batch(other, NOW + LEASE * 2)  # the lease of the slow one has run out
    for moment in (3, 4):
        [task] = next_batch(slow, NOW + LEASE * moment)
        judge(slow, task)

    assert not judge(slow, late).is_counted
    assert Judgment.objects.counted().filter(annotator=slow).count() == 2


def test_assigned_tasks_keep_their_place_in_the_quota_before_a_late_answer():
    round = make_round(9, batch_size=1, max_per_annotator=1)
    slow, other = make_annotators(round, 2)
    [late] = next_batch(slow, NOW)
    next_batch(other, NOW + LEASE * 2)
    [assigned] = next_batch(slow, NOW + LEASE * 3)

    assert [judge(slow, task).is_counted for task in (late, assigned)] == [False, True]


def test_who_has_judged_their_share_is_thanked(client):
    [annotator] = make_annotators(make_round(3, max_per_annotator=1, name="pilot"), 1)
    judge_what_comes(annotator)
    client.force_login(annotator.user)

    assert "You have reached the limit for this round. Thank you!" in client.get(judging_page()).text


def test_researchers_are_told_how_many_people_are_missing(researcher_client, researcher):
    round = make_round(9, max_per_annotator=4, name="pilot", by=researcher)
    make_annotators(round, 3)

    page = researcher_client.get("/projects/default/rounds/pilot/").text

    assert "27 more judgments are required" in page
    assert "can only add 12" in page
    assert "Invite at least 4 more people" in page


def test_before_anybody_joined_the_sentence_speaks_of_nobody():
    warning = capacity_warning(make_round(9, max_per_annotator=9), 27)

    assert warning.endswith("each annotator can judge at most 9 statements. Invite at least 3 people.")
    assert "current annotators" not in warning


@pytest.mark.parametrize("layout", ["one", "page"])
def test_what_is_left_is_no_more_than_ones_share(client, layout):
    [annotator] = make_annotators(make_round(9, max_per_annotator=4, batch_size=3, layout=layout, name="pilot"), 1)
    judge(annotator, next_batch(annotator, timezone.now())[0])
    client.force_login(annotator.user)

    assert "<span data-left>3</span> left" in client.get(judging_page()).text


def test_nothing_blocks_a_round_that_enough_people_joined():
    round = make_round(9, max_per_annotator=9)
    make_annotators(round, 3)

    assert capacity_warning(round, 27) is None


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
def test_the_quota_of_one_annotator(spec, share):
    assert make_round(50, judgments_per_task=2, **spec).quota == share


def test_no_share_is_exceeded_when_no_third_is_asked():
    assert make_round(50, third_only_if_split=True, dominance_cap=0.1).quota == 10
