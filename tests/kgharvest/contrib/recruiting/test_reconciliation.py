"""Reconciliation of submissions with their platform, independent of the order and repetition of updates."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, Platform, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.services import complete, enter
from kgharvest.contrib.recruiting.pay.commands import ask, outbox
from kgharvest.contrib.recruiting.pay.ledger import balance_of, owe
from kgharvest.contrib.recruiting.platforms import RemoteSubmission
from kgharvest.contrib.recruiting.reconciliation import apply_remote, apply_status
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("enqueued")]

Status = Submission.Status
NOW = timezone.now()
PLATFORM_STATUS = {
    Status.ACTIVE: "ACTIVE",
    Status.COMPLETED: "AWAITING REVIEW",
    Status.APPROVED: "APPROVED",
    Status.REJECTED: "REJECTED",
    Status.RETURNED: "RETURNED",
    Status.TIMED_OUT: "TIMED-OUT",
    Status.SCREENED_OUT: "SCREENED OUT",
}


@pytest.fixture
def panel() -> Panel:
    return Panel.objects.create(
        round=factories.make_round(),
        name="panel",
        platform=Platform.PROLIFIC,
        status=Panel.Status.PUBLISHED,
        external_id="study",
        places=2,
        reward=150,
    )


def enter_panel(panel: Panel, person: str = "ada", *, is_done: bool = False) -> Submission:
    submission = enter(panel, person, f"{person}'s", NOW)
    if is_done:
        complete(submission, NOW)
        owe(submission, "reward", "reward", panel.reward, "Done.")
    return submission


def remote(status: Status, person: str = "ada", minutes: float = 1, **fields) -> RemoteSubmission:
    at = NOW + timedelta(minutes=minutes)
    return RemoteSubmission(person, f"{person}'s", status, PLATFORM_STATUS[status], at, **fields)


def status_of(submission: Submission) -> str:
    submission.refresh_from_db()
    return submission.status


@pytest.mark.parametrize("status", [Status.RETURNED, Status.TIMED_OUT, Status.REJECTED, Status.SCREENED_OUT])
def test_unpaid_ended_place_becomes_free(panel, status):
    enter_panel(panel, "ada"), enter_panel(panel, "bea")

    assert apply_remote(panel, remote(status), NOW)

    assert panel.submissions.holding_places().count() == 1
    assert enter(panel, "cem", "cem's", NOW).status == Status.ACTIVE


def test_newest_platform_status_wins_in_any_order(panel):
    updates = [
        remote(Status.ACTIVE, minutes=1),
        remote(Status.TIMED_OUT, minutes=2),
        remote(Status.COMPLETED, minutes=3),
        remote(Status.APPROVED, minutes=4, reward_paid=150),
    ]
    for number, order in enumerate(itertools.permutations(updates)):
        panel.places = number + 1
        panel.save()
        person = f"person {number}"
        submission = enter_panel(panel, person, is_done=True)
        for update in order * 3:
            apply_remote(panel, replace(update, participant=person, session=f"{person}'s"), NOW)

        assert status_of(submission) == Status.APPROVED
        assert balance_of(submission) == (150, 150)
        assert submission.pay_entries.count() == 2


def test_late_code_reverts_a_timeout_but_not_a_local_end(panel):
    late, out = enter_panel(panel, "ada", is_done=True), enter_panel(panel, "bea")
    Submission.objects.filter(pk=out.pk).update(status=Status.SCREENED_OUT)

    apply_remote(panel, remote(Status.TIMED_OUT, minutes=1), NOW)
    assert status_of(late) == Status.TIMED_OUT
    apply_remote(panel, remote(Status.COMPLETED, minutes=2), NOW)
    for status in (Status.COMPLETED, Status.RETURNED):
        apply_remote(panel, remote(status, "bea"), NOW)

    assert (status_of(late), status_of(out)) == (Status.COMPLETED, Status.SCREENED_OUT)


def test_completed_place_is_owed_after_a_timeout_but_not_after_a_return(panel):
    panel.places = 3
    panel.save()
    returned, timed_out = enter_panel(panel, "ada", is_done=True), enter_panel(panel, "bea", is_done=True)

    apply_remote(panel, remote(Status.RETURNED), NOW)
    apply_remote(panel, remote(Status.TIMED_OUT, "bea"), NOW)

    assert balance_of(returned).owed == 0
    assert balance_of(timed_out).owed == 150


def test_completed_remote_submissions_are_created_and_active_ones_are_not(panel):
    assert not apply_remote(panel, remote(Status.ACTIVE), NOW)
    assert not panel.submissions.exists()

    assert apply_remote(panel, remote(Status.COMPLETED), NOW)

    submission = panel.submissions.get()
    assert (submission.status, submission.completed_at, submission.annotator) == (Status.COMPLETED, None, None)
    assert balance_of(submission).owed == 0


def test_unconfirmed_payment_is_matched_and_a_missing_one_stays_uncertain(panel):
    paid, unpaid = enter_panel(panel, "ada", is_done=True), enter_panel(panel, "bea", is_done=True)
    for submission in (paid, unpaid):
        ask(submission, PlatformCommand.Kind.BONUS, "bonus:floor", amount=40)
        outbox.claim(NOW + timedelta(hours=1))  # simulates a worker killed while sending

    hour, days = timedelta(hours=2) / timedelta(minutes=1), timedelta(days=30) / timedelta(minutes=1)
    apply_remote(panel, remote(Status.COMPLETED, "ada", hour, paid_bonuses=[40]), NOW)
    apply_remote(panel, remote(Status.COMPLETED, "bea", hour, paid_bonuses=[]), NOW)
    apply_remote(panel, remote(Status.COMPLETED, "bea", days, paid_bonuses=[]), NOW)

    assert (paid.commands.get().state, unpaid.commands.get().state) == ("done", "uncertain")
    assert balance_of(paid, "bonus") == (40, 40)
    assert balance_of(unpaid, "bonus") == (40, 0)


def test_unsent_bonus_is_not_matched_with_an_equal_manual_payment(panel):
    submission = enter_panel(panel, is_done=True)
    ask(submission, PlatformCommand.Kind.BONUS, "bonus:1", amount=40)

    apply_remote(panel, remote(Status.COMPLETED, paid_bonuses=[40]), NOW)

    assert submission.commands.get().state == PlatformCommand.State.WAITING
    assert balance_of(submission, "bonus") == (40, 40)


@pytest.mark.parametrize("state", ["waiting", "failed", "done"])
def test_approval_on_the_platform_settles_the_command(panel, state):
    submission = enter_panel(panel, is_done=True)
    ask(submission, PlatformCommand.Kind.APPROVE, "approve")
    submission.commands.update(state=state)

    apply_remote(panel, remote(Status.APPROVED, reward_paid=150), NOW)

    assert submission.commands.get().state == PlatformCommand.State.DONE
    assert balance_of(submission) == (150, 150)


def test_approved_first_place_is_recorded_as_paid_after_a_second_entry(panel):
    first = enter_panel(panel, is_done=True)
    apply_remote(panel, remote(Status.TIMED_OUT, minutes=1), NOW)
    enter(panel, "ada", "another", NOW)

    apply_remote(panel, remote(Status.APPROVED, minutes=2, reward_paid=150), NOW)

    assert status_of(first) == Status.TIMED_OUT  # a participant can hold only one place
    assert balance_of(first) == (150, 150)


def test_bonuses_paid_on_the_platform_are_recorded_once(panel):
    submission = enter_panel(panel, is_done=True)

    for minutes, amounts in enumerate([[50], [50, 50], [50, 50, 25]], start=1):
        for _ in range(2):
            apply_remote(panel, remote(Status.COMPLETED, minutes=minutes, paid_bonuses=amounts), NOW)

    assert balance_of(submission, "bonus").paid == 125


def test_panel_stops_with_the_platform_study_and_stays_stopped(panel):
    for status in (Panel.Status.PAUSED, Panel.Status.PUBLISHED, None, Panel.Status.STOPPED, Panel.Status.PAUSED):
        apply_status(panel, status, NOW)

    panel.refresh_from_db()
    assert (panel.status, panel.ended_reason) == (Panel.Status.STOPPED, "Ended on the platform.")
    assert [event.history_sentence for event in panel.round.events.filter(kind="panel_moved").order_by("pk")] == [
        "noted that the panel panel is paused: Paused on the platform.",
        "noted that the panel panel is stopped: Ended on the platform.",
    ]


def test_refused_bonus_paid_on_the_platform_is_recorded_once(panel):
    submission = enter_panel(panel, is_done=True)
    command = ask(submission, PlatformCommand.Kind.BONUS, "bonus:1", amount=40)
    PlatformCommand.objects.filter(pk=command.pk).update(state=PlatformCommand.State.FAILED, n_tries=1)

    for _ in range(2):
        apply_remote(panel, remote(Status.COMPLETED, paid_bonuses=[40]), NOW)

    command.refresh_from_db()
    assert command.state == PlatformCommand.State.DONE
    assert balance_of(submission, "bonus") == (40, 40)
