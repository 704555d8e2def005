"""Hourly pay, computed by hand: the amount owed divided by the active time."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from annotation.judging.judgments import Answer, submit_judgment
from annotation.models import Annotator, Judgment, Training
from kgharvest.contrib.recruiting.models import Submission
from kgharvest.contrib.recruiting.pay.hourly import active_times, hourly_pay
from kgharvest.contrib.recruiting.pay.ledger import owe, record_paid
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel as make_other_panel
from tests.kgharvest.contrib.recruiting.pay.standing_in import complete_place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]


def test_two_dollars_for_six_minutes_are_twenty_per_hour(panel):
    complete_place(panel, seconds=(60,) * 6)

    [work] = hourly_pay(panel).works

    assert work.active_s == 360
    assert work.hourly == 2000  # cents: 2.00 for a tenth of an hour


def test_median_is_reported_from_five_participants(panel):
    for number, seconds in enumerate((60, 90, 120, 180)):  # 120.00, 80.00, 60.00 and 40.00 an hour
        complete_place(panel, f"person {number}", seconds=(seconds,))
    few = hourly_pay(panel)
    complete_place(panel, "the fifth", seconds=(360,))  # 20.00 an hour

    assert few.median is None
    assert few.reason == "4 completed so far; the median requires 5 participants"
    assert hourly_pay(panel).median == 6000


def test_participants_without_measured_time_are_excluded_from_the_median(panel):
    for number in range(5):
        complete_place(panel, f"person {number}", seconds=(None, None))

    pay = hourly_pay(panel)

    assert (len(pay.works), pay.n, pay.median) == (5, 0, None)
    assert pay.reason == "active time is known for only 0 participants; the median requires 5"


def test_unmeasured_answers_count_as_the_mean_of_the_others(panel):
    half_measured, third_measured = (
        complete_place(panel, "ada", seconds=(30, None)),
        complete_place(panel, "bea", seconds=(30, None, None)),
    )

    times = active_times(panel)

    assert times[half_measured.pk] == 60
    assert third_measured.pk not in times


def test_superseded_judgments_count_and_time_is_capped_per_statement(panel):
    submission = complete_place(panel, seconds=(100,))
    Judgment.objects.update(seconds=5000)  # possible in imported judgments
    [judgment] = Judgment.objects.all()
    submit_judgment(submission.annotator, Answer(judgment.task_id, "false", uuid4(), 40), timezone.now())

    assert active_times(panel)[submission.pk] == 600 + 40


def test_training_counts_from_its_start_to_its_end(panel):
    submission = complete_place(panel, seconds=(100,))
    start = submission.entered_at
    Training.objects.create(
        annotator=submission.annotator, n_answered=2, started_at=start, finished_at=start + timedelta(seconds=50)
    )
    Training.objects.create(  # an hour's absence
        annotator=submission.annotator, n_answered=1, started_at=start, finished_at=start + timedelta(hours=1)
    )

    assert active_times(panel)[submission.pk] == 100 + 50 + 600


def test_judgments_count_for_the_place_they_were_made_in(panel):
    first = complete_place(panel, "ada", seconds=(100, 100))
    other = make_other_panel(panel.round, platform=panel.platform, reward=100)
    Annotator.objects.filter(pk=first.annotator_id).update(place_size=4)
    second = complete_place(other, "ada", seconds=(30,), annotator=first.annotator)

    assert active_times(panel) == {first.pk: 200}
    assert active_times(other) == {second.pk: 30}


def test_pay_excludes_returned_and_rejected_submissions(panel):
    completed, returned, rejected = (complete_place(panel, name, seconds=(60,)) for name in ("ada", "bea", "cem"))
    Submission.objects.filter(pk=returned.pk).update(status=Submission.Status.RETURNED)
    Submission.objects.filter(pk=rejected.pk).update(status=Submission.Status.REJECTED)

    assert [work.submission for work in hourly_pay(panel).works] == [completed]


def test_owed_and_paid_bonuses_count_once(panel):
    submission = complete_place(panel, seconds=(60,))
    owe(submission, "bonus", "bonus:1", 50, "Thank you.")
    record_paid(submission, "bonus", "bonus:1", 50, "Thank you.")
    record_paid(submission, "bonus", "bonus:there:70:1", 70, "At the platform.")

    [work] = hourly_pay(panel).works

    assert work.balance == (250, 120)
    assert work.earned == 250
    assert work.hourly == 250 * 60


def test_hourly_pay_uses_a_constant_number_of_queries(panel, django_assert_num_queries):
    complete_place(panel, "ada", seconds=(10,))
    with django_assert_num_queries(5):
        hourly_pay(panel)
    for number in range(6):
        complete_place(panel, f"person {number}", seconds=(10,))
    with django_assert_num_queries(5):
        hourly_pay(panel)
