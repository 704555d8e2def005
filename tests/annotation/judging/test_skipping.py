"""Skipping and reporting: neither is a judgment, and exactly k stays within reach."""

from datetime import timedelta

import pytest
from django.utils import timezone

from annotation.judging.assignment import LEASE, next_batch
from annotation.judging.judgments import n_skipped, reassign_skipped, report_statement, skip_task
from annotation.models import Assignment, Label, StatementReport
from annotation.rounds.models import RoundNotOpen
from annotation.rounds.services import close_round
from tests.factories import judge, make_annotators, make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def assigned_tasks(annotator):
    return next_batch(annotator, timezone.now())


def test_a_skipped_task_goes_to_somebody_else_at_once():
    annotator, other = make_annotators(make_round(1, judgments_per_task=1), 2)
    [task] = assigned_tasks(annotator)

    skip_task(annotator, task.pk)

    assert assigned_tasks(annotator) == []
    assert assigned_tasks(other) == [task]


def test_skipping_twice_gives_one_lease_back():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)

    skip_task(annotator, task.pk)
    skip_task(annotator, task.pk)

    task.refresh_from_db()
    assert (task.n_leased, n_skipped(annotator)) == (0, 1)


def test_what_was_skipped_can_be_had_again_so_that_k_people_reach_k_judgments():
    round = make_round(2, judgments_per_task=2)
    for annotator in make_annotators(round, 2):
        skip_task(annotator, assigned_tasks(annotator)[0].pk)
        judge(annotator, *assigned_tasks(annotator))

    for annotator in round.annotators.all():
        assert reassign_skipped(annotator) == 1
        judge(annotator, *assigned_tasks(annotator))

    assert list(round.tasks.values_list("n_judgments", flat=True)) == [2, 2]


def test_skipping_what_one_has_judged_keeps_the_judgment():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)
    judge(annotator, task, Label.FALSE)

    skip_task(annotator, task.pk)

    task.refresh_from_db()
    assert (task.n_false, task.n_leased) == (1, 0)
    assert annotator.assignments.get().status == Assignment.Status.DONE


def test_an_answer_to_what_was_skipped_counts_while_it_is_wanted():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)
    skip_task(annotator, task.pk)

    assert judge(annotator, task).is_counted


def test_skipping_after_the_lease_ended_takes_nothing_from_its_next_holder():
    slow, quick = make_annotators(make_round(1, judgments_per_task=1), 2)
    [task] = next_batch(slow, NOW)
    next_batch(quick, NOW + LEASE + timedelta(seconds=1))

    skip_task(slow, task.pk)

    task.refresh_from_db()
    assert task.n_leased == 1


def test_what_one_was_not_given_can_neither_be_skipped_nor_reported():
    owner, stranger = make_annotators(make_round(1), 2)
    [task] = assigned_tasks(owner)

    for act in (lambda: skip_task(stranger, task.pk), lambda: report_statement(stranger, task.pk, "other", "", NOW)):
        with refused("NotAssigned"):
            act()


def test_a_closed_round_takes_no_skip():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = assigned_tasks(annotator)
    close_round(round)

    with pytest.raises(RoundNotOpen):
        skip_task(annotator, task.pk)


def test_a_second_report_replaces_the_first():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)

    report_statement(annotator, task.pk, "other", "hm", NOW)
    report_statement(annotator, task.pk, "unreadable", "What is it?", NOW)

    assert StatementReport.objects.values_list("reason", "comment").get() == ("unreadable", "What is it?")


@pytest.mark.parametrize(("reason", "comment"), [("bad", ""), ("other", "x" * 1001)])
def test_a_report_that_cannot_be_is_refused(reason, comment):
    [annotator] = make_annotators(make_round(1), 1)
    [task] = assigned_tasks(annotator)

    with refused("BadAnswer"):
        report_statement(annotator, task.pk, reason, comment, NOW)
