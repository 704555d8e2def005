"""Races for the places of a panel, with threads and a real database."""

from __future__ import annotations

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from kgharvest.contrib.recruiting.models import Submission
from kgharvest.contrib.recruiting.panels.services import complete, enter, finish, free_place, join, leave
from kgharvest.contrib.recruiting.pay.ledger import balance_of
from tests.factories import judge, make_round
from tests.kgharvest.contrib.recruiting.panel_factories import make_panel
from tests.postgres import at_once, on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

Status = Submission.Status


@pytest.mark.parametrize("places", [1, 3])
def test_concurrent_entries_never_exceed_the_places(places):
    panel = make_panel(make_round(4), places=places)

    outcomes = at_once(
        *[lambda number=number: enter(panel, f"p{number}", "", timezone.now()) for number in range(places + 4)]
    )

    names = [type(outcome).__name__ for outcome in outcomes]
    assert (names.count("Submission"), names.count("QuotaFull")) == (places, 4)
    assert panel.submissions.holding_places().count() == places


def test_concurrent_entries_of_one_participant_share_a_place():
    panel = make_panel(make_round(4), places=2)

    submissions = at_once(*[lambda: enter(panel, "p1", "", timezone.now())] * 4)
    annotators = at_once(*[lambda: join(submissions[0], agrees=True)] * 4)

    assert len(set(submissions)) == len(set(annotators)) == 1
    assert panel.round.annotators.count() == 1


def test_released_place_goes_to_one_of_several_entrants():
    panel = make_panel(make_round(4), places=1)
    first = enter(panel, "p0", "", timezone.now())
    leave(first, Status.RETURNED, timezone.now())

    outcomes = at_once(
        *[lambda number=number: enter(panel, f"p{number}", "", timezone.now()) for number in range(1, 5)]
    )

    assert sum(isinstance(outcome, Submission) for outcome in outcomes) == 1


def test_concurrent_finish_and_timeout_have_one_consistent_outcome():
    panel = make_panel(make_round(2), places=1, reward=250, statements_per_place=2)
    submission = enter(panel, "p1", "", timezone.now())
    annotator = join(submission, agrees=True)
    for task in next_batch(annotator, timezone.now()):
        judge(annotator, task)
    submission.refresh_from_db()

    at_once(
        lambda: finish(Submission.objects.get(pk=submission.pk), timezone.now()),
        lambda: leave(Submission.objects.get(pk=submission.pk), Status.RETURNED, timezone.now()),
        lambda: complete(Submission.objects.get(pk=submission.pk), timezone.now()),
    )

    submission.refresh_from_db()
    assert submission.status == Status.RETURNED
    assert balance_of(submission).owed == 0


def test_participant_who_finishes_during_a_release_keeps_the_place():
    panel = make_panel(make_round(2), places=1, reward=250)
    submission = enter(panel, "p1", "", timezone.now())
    join(submission, agrees=True)
    complete(Submission.objects.get(pk=submission.pk), timezone.now())

    assert submission.status == Status.ACTIVE  # the stale status on the page
    assert not free_place(submission, timezone.now())

    submission.refresh_from_db()
    assert submission.status == Status.COMPLETED


@on_postgresql
def test_module_passes_on_postgresql():
    assert run_on_postgresql(__file__).returncode == 0
