"""Platforms are told each thing once; payments are sent once at most, whatever goes wrong."""

from __future__ import annotations

import multiprocessing
import signal
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from kgharvest.contrib.recruiting.models import PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable
from kgharvest.contrib.recruiting.panels.services import leave
from kgharvest.contrib.recruiting.pay import commands
from kgharvest.contrib.recruiting.pay.bonuses import grant_bonus
from kgharvest.contrib.recruiting.pay.commands import (
    SENDING_LASTS,
    NotAskable,
    NotUncertain,
    ask,
    outbox,
    resend,
    settle,
    settle_by_hand,
)
from kgharvest.contrib.recruiting.pay.ledger import Balance, balance_of
from kgharvest.contrib.recruiting.platforms import OutcomeUnknown, PlatformRefused, PlatformUnavailable
from kgharvest.events.models import Event
from kgharvest.jobs import ledger
from kgharvest.models import Job
from tests.kgharvest.contrib.recruiting.pay.standing_in import DIES, StandIn, complete_place, done, payments
from tests.postgres import at_once
from tests.refusals import refused

WHY = "You judged all sixty statements as True within forty seconds, which is not enough time to read any one of them."
State, Status = PlatformCommand.State, Submission.Status


@pytest.fixture
def submission(panel, enqueued) -> Submission:
    return complete_place(panel)


def run_job() -> Job:
    """Do what a worker does with the job that is queued."""
    outbox.enqueue_if_due(timezone.now())
    job = Job.objects.get(kind=outbox.job_kind, status="queued")
    ledger.run_job(job.pk)
    job.refresh_from_db()
    return job


def time_passes() -> None:
    """Let whatever was to wait have waited for long enough."""
    PlatformCommand.objects.update(next_try_at=timezone.now())


def state_of(command: PlatformCommand) -> str:
    command.refresh_from_db()
    return command.state


# -- asking ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_asked_twice_is_done_once(submission):
    first, second = ask(submission, "approve", "approve"), ask(submission, "approve", "approve")
    run_job()

    assert first == second
    assert done() == {f"approve {submission.pk} approve 0": 1}
    assert state_of(first) == State.DONE


@pytest.mark.django_db
def test_an_approved_submission_is_paid_and_its_status_follows(submission, researcher):
    command = ask(submission, "approve", "approve", by=researcher)
    run_job()
    submission.refresh_from_db()

    assert submission.status == Status.APPROVED
    assert submission.ended_at is not None
    assert balance_of(submission) == Balance(200, 200)
    assert submission.pay_entries.get(side="paid").command == command
    sentences = [entry.sentence for entry in Event.objects.order_by("pk")][-2:]
    assert sentences == [
        f"requested for submission {submission.pk} of the panel panel: Approve",
        f"noted that submission {submission.pk} of the panel panel was paid USD 2.00 as reward",
    ]


@pytest.mark.django_db
def test_a_rejected_submission_is_owed_nothing_any_more(submission):
    ask(submission, "reject", "reject", message=WHY, category="TOO_QUICKLY")
    run_job()
    submission.refresh_from_db()

    assert submission.status == Status.REJECTED
    assert balance_of(submission) == Balance(0, 0)
    assert submission.pay_entries.last().reason == "Rejected: too fast to have read the statements."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("message", "category", "complaint"),
    [
        (WHY, "disagreement", "Disagreement is not a valid reason"),
        (WHY, " Disagreement ", "Disagreement is not a valid reason"),
        (WHY, "", "Invalid category"),
        (WHY, "LAZY", "Invalid category"),
        ("You were too fast.", "TOO_QUICKLY", "Message too short: 18 characters"),
        ("no" + " " * 200 + "good", "TOO_QUICKLY", "Message too short: 7 characters"),
        ("x" * 2001, "OTHER", "The maximum is 2,000"),
    ],
)
def test_rejection_requires_a_reason_and_an_explanation(submission, message, category, complaint):
    with refused("BadRejection", match=complaint):
        ask(submission, "reject", "reject", message=message, category=category)

    assert not submission.commands.exists()


@pytest.mark.django_db
def test_a_submission_is_decided_once(submission):
    ask(submission, "approve", "approve")

    with pytest.raises(NotAskable, match=r"already has a decision: approve \(waiting\)"):
        ask(submission, "reject", "reject", message=WHY, category="LOW_EFFORT")


@pytest.mark.django_db
def test_active_submission_cannot_be_approved(submission):
    Submission.objects.filter(pk=submission.pk).update(status=Status.ACTIVE)

    with pytest.raises(NotAskable, match=f"submission {submission.pk} is active"):
        ask(submission, "approve", "approve")


@pytest.mark.django_db
@pytest.mark.parametrize("amount", [0, -1, 1_000_001])
def test_a_bonus_is_of_something_and_not_of_everything(submission, amount):
    with refused("BadAmount"):
        ask(submission, "bonus", "bonus:1", amount=amount)


@pytest.mark.django_db
def test_a_screened_out_person_is_paid_for_the_time_it_took(make_panel, enqueued):
    panel = make_panel(screen_out_reward=30)
    submission = complete_place(panel)
    commands.pay.owe(submission, "screen_out", "screen_out", 30, "The check.")

    ask(submission, "screen_out", "screen_out")
    run_job()
    submission.refresh_from_db()

    assert submission.status == Status.SCREENED_OUT
    assert balance_of(submission, "screen_out") == Balance(30, 30)


@pytest.mark.django_db
def test_requested_return_takes_effect_when_the_platform_reports_it(submission):
    ask(submission, "return", "return")
    run_job()
    submission.refresh_from_db()

    assert submission.status == Status.COMPLETED


@pytest.mark.django_db
def test_by_hand_they_have_returned_at_once(make_panel, enqueued):
    submission = complete_place(make_panel(by_hand=True))

    ask(submission, "return", "return")
    run_job()
    submission.refresh_from_db()

    assert submission.status == Status.RETURNED


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_unavailable_platform_is_retried_after_the_requested_time(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    StandIn.trouble = [PlatformUnavailable("The platform asks to wait.", after_s=7200)]
    run_job()

    assert state_of(command) == State.WAITING
    assert command.next_try_at > timezone.now() + timedelta(minutes=119)
    assert command.error == "The platform asks to wait."
    time_passes()
    run_job()
    assert payments() == {(submission.pk, "bonus:1"): 1}
    assert balance_of(submission, "bonus") == Balance(150, 150)


@pytest.mark.django_db
def test_refused_command_fails_with_its_reason_until_retried(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    StandIn.trouble = [PlatformRefused("Your wallet is empty.")]
    run_job()

    assert (state_of(command), command.error) == (State.FAILED, "Your wallet is empty.")
    assert balance_of(submission, "bonus") == Balance(150, 0)
    resend(command)
    run_job()
    assert payments() == {(submission.pk, "bonus:1"): 1}
    with pytest.raises(NotAskable, match="was paid in the meantime"):
        resend(command)


@pytest.mark.django_db
def test_failed_event_does_not_delay_the_others(panel, enqueued):
    ada, bea = complete_place(panel, "ada"), complete_place(panel, "bea")
    ask(ada, "approve", "approve"), ask(bea, "approve", "approve")
    StandIn.trouble = [PlatformRefused("Not this one.")]
    run_job()

    assert done() == {f"approve {bea.pk} approve 0": 1}


@pytest.mark.django_db
def test_uncertain_payment_is_not_retried_until_checked(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    StandIn.trouble = [OutcomeUnknown("No answer came.")]
    run_job()

    assert state_of(command) == State.UNCERTAIN
    time_passes()
    assert outbox.claim(timezone.now()) == []


@pytest.mark.django_db
def test_settling_too_early_is_refused(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    StandIn.trouble = [OutcomeUnknown("No answer came.")]
    run_job()

    assert not settle(command, False, timezone.now() + SENDING_LASTS - timedelta(seconds=5))
    with pytest.raises(NotUncertain, match="again in 15 minutes"):
        settle_by_hand(command, False)

    assert state_of(command) == State.UNCERTAIN


@pytest.mark.django_db
def test_payment_is_recorded_if_made_and_retried_if_not(submission, researcher):
    made, lost = (ask(submission, "bonus", key, amount=150) for key in ("bonus:1", "bonus:2"))
    StandIn.trouble = [OutcomeUnknown("No answer came."), OutcomeUnknown("No answer came.")]
    run_job()
    time_passes()
    settle_by_hand(made, True, researcher)
    settle_by_hand(lost, False, researcher)
    run_job()

    assert payments() == {(submission.pk, "bonus:2"): 1}
    assert (state_of(made), state_of(lost)) == (State.DONE, State.DONE)
    assert balance_of(submission, "bonus") == Balance(300, 300)


@pytest.mark.django_db
def test_settled_twice_is_paid_once(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    assert outbox.claim(timezone.now()) == [command]

    assert settle(command, True, timezone.now())
    assert not settle(command, True, timezone.now())

    assert balance_of(submission, "bonus") == Balance(150, 150)


@pytest.mark.django_db
def test_late_result_of_an_attempt_does_not_revert_a_settled_payment(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    claimed = outbox.claim(timezone.now())
    settle(command, True, timezone.now())
    StandIn.trouble = [OutcomeUnknown("No answer came.")]

    outbox.send(claimed)

    assert state_of(command) == State.DONE


@pytest.mark.django_db
def test_the_message_of_a_bonus_is_why_the_ledger_says_it_was_paid(submission):
    grant_bonus(submission, 50, "Thank you for the comments.")
    run_job()

    assert {entry.reason for entry in submission.pay_entries.filter(purpose="bonus")} == {"Thank you for the comments."}


@pytest.mark.django_db
def test_submission_without_platform_id_fails_without_delaying_others(panel, enqueued):
    ada, bea = complete_place(panel, "ada"), complete_place(panel, "bea")
    unreadable, other = ask(ada, "bonus", "bonus:1", amount=150), ask(bea, "approve", "approve")
    StandIn.trouble = [Unreadable("This was encrypted when SECRET_KEY was another one.")]
    run_job()

    assert (state_of(unreadable), state_of(other)) == (State.FAILED, State.DONE)
    assert unreadable.error == "This was encrypted when SECRET_KEY was another one."


@pytest.mark.django_db
def test_timed_out_first_place_is_paid_after_a_second_entry(panel, enqueued):
    first = complete_place(panel)
    leave(first, Status.TIMED_OUT, timezone.now())
    Submission.objects.filter(pk=first.pk).update(platform_status="TIMED-OUT")
    complete_place(panel, annotator=first.annotator, session="another")

    command = ask(first, "approve", "approve")
    run_job()

    first.refresh_from_db()
    assert state_of(command) == State.DONE
    assert first.status == Status.TIMED_OUT  # a person holds one place
    assert balance_of(first) == Balance(200, 200)


# -- many approvals ----------------------------------------------------------------------------------------------------


@pytest.fixture
def many(panel, enqueued, monkeypatch) -> list[PlatformCommand]:
    monkeypatch.setattr(commands, "FEWEST_AT_ONCE", 3)
    return [ask(complete_place(panel, person), "approve", "approve") for person in ("ada", "bea", "cem")]


def n_at_once() -> list[int]:
    return [line.count(" ") for line in done() if line.startswith("approve_all")]


@pytest.mark.django_db
def test_many_approvals_are_one_request(many):
    run_job()

    assert n_at_once() == [3]
    assert {state_of(command) for command in many} == {State.WAITING}  # until the platform shows them approved


@pytest.mark.django_db
def test_unconfirmed_bulk_approvals_are_sent_individually(many):
    run_job()
    time_passes()
    run_job()

    assert done().total() == 1 + 3
    assert {state_of(command) for command in many} == {State.DONE}


@pytest.mark.django_db
def test_refused_bulk_approval_is_sent_individually(many):
    StandIn.trouble = [PlatformRefused("One of them has returned."), PlatformRefused("This one has returned.")]
    run_job()

    assert [state_of(command) for command in many] == [State.FAILED, State.DONE, State.DONE]


@pytest.mark.django_db
def test_many_approvals_wait_for_a_platform_that_is_away(many):
    StandIn.trouble = [PlatformUnavailable("The platform asks to wait.", after_s=7200)]
    run_job()

    assert done().total() == 0
    assert {command.next_try_at > timezone.now() + timedelta(minutes=119) for command in fresh(many)} == {True}
    time_passes()
    run_job()
    assert n_at_once() == [3]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("trouble", "state", "n_minutes"),
    [
        (PlatformUnavailable("The platform asks to wait.", after_s=7200), State.WAITING, 119),
        (PlatformRefused("This one has returned."), State.FAILED, 0),
    ],
)
def test_a_bulk_claim_of_one_approval_records_its_outcome(submission, monkeypatch, trouble, state, n_minutes):
    """Other workers may lock all approvals but one."""
    monkeypatch.setattr(commands, "FEWEST_AT_ONCE", 1)
    command = ask(submission, "approve", "approve")
    StandIn.trouble = [trouble]
    run_job()

    assert (state_of(command), command.error) == (state, str(trouble))
    assert command.next_try_at > timezone.now() + timedelta(minutes=n_minutes)


def fresh(many: list[PlatformCommand]) -> list[PlatformCommand]:
    return list(PlatformCommand.objects.filter(pk__in=[command.pk for command in many]))


# -- at the same moment ------------------------------------------------------------------------------------------------


@pytest.fixture
def of_threads(transactional_db, make_panel, enqueued) -> Submission:
    return complete_place(make_panel())


def test_concurrent_approvals_store_one_command(of_threads):
    asked = at_once(*[lambda: ask(of_threads, "approve", "approve")] * 4)

    assert {command.pk for command in asked} == {of_threads.commands.get().pk}


def test_concurrent_conflicting_decisions_store_one(of_threads):
    approve = lambda: ask(of_threads, "approve", "approve")  # noqa: E731
    reject = lambda: ask(of_threads, "reject", "reject", message=WHY, category="LOW_EFFORT")  # noqa: E731

    outcomes = at_once(approve, reject)

    assert [type(outcome) for outcome in outcomes].count(NotAskable) == 1
    assert of_threads.commands.count() == 1


def test_workers_that_send_at_once_pay_each_bonus_once(of_threads):
    for number in range(8):
        ask(of_threads, "bonus", f"bonus:{number}", amount=10 + number)

    def work() -> int:
        n_sent = 0
        while claimed := outbox.claim(timezone.now()):
            outbox.send(claimed)
            n_sent += 1
        return n_sent

    assert sum(at_once(*[work] * 3)) == 8
    assert payments() == {(of_threads.pk, f"bonus:{number}"): 1 for number in range(8)}
    assert balance_of(of_threads, "bonus") == Balance(108, 108)


# -- killed ------------------------------------------------------------------------------------------------------------


def be_a_worker() -> None:
    connections.close_all()
    while claimed := outbox.claim(timezone.now()):
        outbox.send(claimed)
    connections.close_all()


def work_in_a_process() -> int:
    connections.close_all()
    worker = multiprocessing.get_context("fork").Process(target=be_a_worker)
    worker.start()
    worker.join(60)
    return worker.exitcode


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("when", "was_paid"), [("before", False), ("after", True)])
def test_a_worker_killed_while_it_pays_never_pays_twice(of_threads, monkeypatch, when, was_paid):
    command = ask(of_threads, "bonus", "bonus:1", amount=150)
    monkeypatch.setenv(DIES, when)
    assert work_in_a_process() == -signal.SIGKILL
    monkeypatch.delenv(DIES)

    assert state_of(command) == State.UNCERTAIN
    assert work_in_a_process() == 0  # nothing is sent by whoever comes after
    assert payments().total() == was_paid
    assert balance_of(of_threads, "bonus") == Balance(150, 0)

    assert settle(command, was_paid, timezone.now() + SENDING_LASTS)
    time_passes()
    assert work_in_a_process() == 0
    assert payments() == {(of_threads.pk, "bonus:1"): 1}
    assert balance_of(of_threads, "bonus") == Balance(150, 150)


@pytest.mark.timeout(120)
def test_a_worker_killed_while_it_approves_leaves_it_to_the_next_one(of_threads, monkeypatch):
    command = ask(of_threads, "approve", "approve")
    monkeypatch.setenv(DIES, "before")
    assert work_in_a_process() == -signal.SIGKILL
    monkeypatch.delenv(DIES)

    assert state_of(command) == State.WAITING
    time_passes()
    assert work_in_a_process() == 0
    assert state_of(command) == State.DONE
