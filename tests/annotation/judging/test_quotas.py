"""Quotas: the maximum number of statements per annotator."""

import pytest
from django.utils import timezone

from annotation.judging.assignment import LEASE, next_batch
from annotation.models import Judgment
from annotation.monitoring.progress import capacity_warning
from tests.factories import judge, judging_page, make_annotators, make_round

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def judge_all_assigned(annotator) -> int:
    """Judge every assigned statement until none are left and return their number."""
    n = 0
    while batch := next_batch(annotator, NOW):
        for task in batch:
            judge(annotator, task)
            n += 1
    return n


def test_annotator_gets_no_statements_beyond_quota():
    round = make_round(9, batch_size=4, max_per_annotator=6)
    first, second = make_annotators(round, 2)

    assert (judge_all_assigned(first), judge_all_assigned(second)) == (6, 6)


def test_assigned_tasks_count_towards_the_quota():
    [annotator] = make_annotators(make_round(9, batch_size=4, max_per_annotator=5), 1)

    for task in next_batch(annotator, NOW)[:3]:
        judge(annotator, task)

    assert len(next_batch(annotator, NOW)) == 2


def test_changed_answers_do_not_use_the_quota():
    [annotator] = make_annotators(make_round(9, batch_size=4, max_per_annotator=5), 1)
    [task, *_] = next_batch(annotator, NOW)

    for label in ("true", "false", "true"):
        judge(annotator, task, label)

    assert len(next_batch(annotator, NOW)) == 4


def test_late_answer_beyond_quota_is_stored_but_not_counted():
    round = make_round(9, batch_size=1, max_per_annotator=2)
    slow, other = make_annotators(round, 2)
    [late] = next_batch(slow, NOW)
    next_batch(other, NOW + LEASE * 2)  # the lease of the slow annotator has expired
    for moment in (3, 4):
        [task] = next_batch(slow, NOW + LEASE * moment)
        judge(slow, task)

    assert not judge(slow, late).is_counted
    assert Judgment.objects.counted().filter(annotator=slow).count() == 2


def test_assigned_tasks_take_precedence_over_late_answers_in_quota():
    round = make_round(9, batch_size=1, max_per_annotator=1)
    slow, other = make_annotators(round, 2)
    [late] = next_batch(slow, NOW)
    next_batch(other, NOW + LEASE * 2)
    [assigned] = next_batch(slow, NOW + LEASE * 3)

    assert [judge(slow, task).is_counted for task in (late, assigned)] == [False, True]


def test_quota_reached_page_thanks_the_annotator(client):
    [annotator] = make_annotators(make_round(3, max_per_annotator=1, name="pilot"), 1)
    judge_all_assigned(annotator)
    client.force_login(annotator.user)

    assert "You have reached the limit for this round. Thank you!" in client.get(judging_page()).text


def test_round_page_shows_number_of_missing_annotators(researcher_client, researcher):
    round = make_round(9, max_per_annotator=4, name="pilot", by=researcher)
    make_annotators(round, 3)

    page = researcher_client.get("/projects/default/rounds/pilot/").text

    assert "27 more judgments are required" in page
    assert "can only add 12" in page
    assert "Invite at least 4 more people" in page


def test_capacity_warning_without_annotators_mentions_none():
    warning = capacity_warning(make_round(9, max_per_annotator=9), 27)

    assert warning.endswith("each annotator can judge at most 9 statements. Invite at least 3 people.")
    assert "current annotators" not in warning


@pytest.mark.parametrize("layout", ["one", "page"])
def test_remaining_count_is_limited_by_quota(client, layout):
    [annotator] = make_annotators(make_round(9, max_per_annotator=4, batch_size=3, layout=layout, name="pilot"), 1)
    judge(annotator, next_batch(annotator, timezone.now())[0])
    client.force_login(annotator.user)

    assert "<span data-left>3</span> left" in client.get(judging_page()).text


def test_round_with_enough_annotators_has_no_capacity_warning():
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
def test_quota_is_minimum_of_cap_and_maximum(spec, share):
    assert make_round(50, judgments_per_task=2, **spec).quota == share


def test_dominance_cap_assumes_two_judgments_for_third_only_if_split():
    assert make_round(50, third_only_if_split=True, dominance_cap=0.1).quota == 10
