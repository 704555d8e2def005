"""Skipping and reporting: neither is a judgment, and tasks can still reach exactly k judgments."""

from datetime import timedelta

import pytest
from django.utils import timezone

from annotation.judging.assignment import LEASE, next_batch, release_batch
from annotation.judging.judgments import n_skipped, reassign_skipped, report_statement, skip_task
from annotation.judging.models import SKIPPED_AT_FIRST
from annotation.models import Assignment, Label, StatementReport
from annotation.rounds.models import RoundNotOpen
from annotation.rounds.services import close_round
from tests.factories import judge, make_annotators, make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def assigned_tasks(annotator):
    return next_batch(annotator, timezone.now())


def test_skipped_task_is_assigned_to_another_annotator_immediately():
    annotator, other = make_annotators(make_round(1, judgments_per_task=1), 2)
    [task] = assigned_tasks(annotator)

    skip_task(annotator, task.pk)

    assert assigned_tasks(annotator) == []
    assert assigned_tasks(other) == [task]


def test_skipping_twice_releases_one_lease():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)

    skip_task(annotator, task.pk)
    skip_task(annotator, task.pk)

    task.refresh_from_db()
    assert (task.n_leased, n_skipped(annotator)) == (0, 1)


def test_skipped_tasks_can_be_reassigned_to_reach_k_judgments():
    round = make_round(2, judgments_per_task=2)
    for annotator in make_annotators(round, 2):
        skip_task(annotator, assigned_tasks(annotator)[0].pk)
        judge(annotator, *assigned_tasks(annotator))

    for annotator in round.annotators.all():
        assert reassign_skipped(annotator) == 1
        judge(annotator, *assigned_tasks(annotator))

    assert list(round.tasks.values_list("n_judgments", flat=True)) == [2, 2]


def test_skipping_a_judged_task_keeps_the_judgment():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)
    judge(annotator, task, Label.FALSE)

    skip_task(annotator, task.pk)

    task.refresh_from_db()
    assert (task.n_false, task.n_leased) == (1, 0)
    assert annotator.assignments.get().status == Assignment.Status.DONE


def test_answer_to_skipped_task_counts_while_task_is_incomplete():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)
    skip_task(annotator, task.pk)

    assert judge(annotator, task).is_counted


def test_skipping_after_lease_expiry_keeps_lease_of_next_annotator():
    slow, quick = make_annotators(make_round(1, judgments_per_task=1), 2)
    [task] = next_batch(slow, NOW)
    next_batch(quick, NOW + LEASE + timedelta(seconds=1))

    skip_task(slow, task.pk)

    task.refresh_from_db()
    assert task.n_leased == 1


def test_skipping_is_limited_until_statements_are_judged():
    [annotator] = make_annotators(make_round(30, batch_size=1), 1)
    for _ in range(SKIPPED_AT_FIRST):
        skip_task(annotator, assigned_tasks(annotator)[0].pk)
    [task] = assigned_tasks(annotator)

    with refused("SkipLimit"):
        skip_task(annotator, task.pk)
    assert assigned_tasks(annotator) == [task]
    judge(annotator, task)
    judge(annotator, *assigned_tasks(annotator))
    skip_task(annotator, assigned_tasks(annotator)[0].pk)


def test_skipping_again_at_the_limit_changes_nothing():
    [annotator] = make_annotators(make_round(30, batch_size=1), 1)
    [judged] = assigned_tasks(annotator)
    judge(annotator, judged)
    for _ in range(SKIPPED_AT_FIRST):
        [task] = assigned_tasks(annotator)
        skip_task(annotator, task.pk)

    skip_task(annotator, task.pk)
    skip_task(annotator, judged.pk)

    assert n_skipped(annotator) == SKIPPED_AT_FIRST


@pytest.mark.parametrize("return_statements", [reassign_skipped, release_batch])
def test_returned_statements_come_before_new_ones(return_statements):
    [annotator] = make_annotators(make_round(30, batch_size=5), 1)
    batch = assigned_tasks(annotator)
    if return_statements is reassign_skipped:
        for task in batch:
            skip_task(annotator, task.pk)

    return_statements(annotator)

    assert assigned_tasks(annotator) == batch


def test_unassigned_task_cannot_be_skipped_or_reported():
    owner, stranger = make_annotators(make_round(1), 2)
    [task] = assigned_tasks(owner)

    for act in (lambda: skip_task(stranger, task.pk), lambda: report_statement(stranger, task.pk, "other", "", NOW)):
        with refused("NotAssigned"):
            act()


def test_skip_in_closed_round_is_rejected():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = assigned_tasks(annotator)
    close_round(round)

    with pytest.raises(RoundNotOpen):
        skip_task(annotator, task.pk)


def test_second_report_replaces_the_first():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)

    report_statement(annotator, task.pk, "other", "hm", NOW)
    report_statement(annotator, task.pk, "unreadable", "What is it?", NOW)

    assert StatementReport.objects.values_list("reason", "comment").get() == ("unreadable", "What is it?")


@pytest.mark.parametrize(("reason", "comment"), [("bad", ""), ("other", "x" * 1001)])
def test_invalid_report_is_rejected(reason, comment):
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)

    with refused("BadAnswer"):
        report_statement(annotator, task.pk, reason, comment, NOW)
