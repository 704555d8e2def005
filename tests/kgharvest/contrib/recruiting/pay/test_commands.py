"""Platform commands: each is executed once, and payments are sent at most once despite failures."""

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
from tests.kgharvest.contrib.recruiting.pay.standing_in import (
    KILL_VARIABLE,
    StandIn,
    complete_place,
    execution_counts,
    payments,
)
from tests.postgres import at_once
from tests.refusals import refused

WHY = "You judged all sixty statements as True within forty seconds, which is not enough time to read any one of them."
State, Status = PlatformCommand.State, Submission.Status


@pytest.fixture
def submission(panel, enqueued) -> Submission:
    return complete_place(panel)


def run_job() -> Job:
    """Run the queued job like a worker."""
    outbox.enqueue_if_due(timezone.now())
    job = Job.objects.get(kind=outbox.job_kind, status="queued")
    ledger.run_job(job.pk)
    job.refresh_from_db()
    return job


def time_passes() -> None:
    """Make all pending commands due."""
    PlatformCommand.objects.update(next_try_at=timezone.now())


def state_of(command: PlatformCommand) -> str:
    command.refresh_from_db()
    return command.state


# Requests


@pytest.mark.django_db
def test_repeated_command_is_executed_once(submission):
    first, second = ask(submission, "approve", "approve"), ask(submission, "approve", "approve")
    run_job()

    assert first == second
    assert execution_counts() == {f"approve {submission.pk} approve 0": 1}
    assert state_of(first) == State.DONE


@pytest.mark.django_db
def test_approval_pays_the_submission_and_updates_its_status(submission, researcher):
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
def test_rejected_submission_is_owed_nothing(submission):
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
def test_second_decision_on_a_submission_is_rejected(submission):
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
def test_bonus_amount_must_be_within_limits(submission, amount):
    with refused("BadAmount"):
        ask(submission, "bonus", "bonus:1", amount=amount)


@pytest.mark.django_db
def test_screened_out_person_is_paid_the_screen_out_reward(make_panel, enqueued):
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
def test_manual_return_takes_effect_immediately(make_panel, enqueued):
    submission = complete_place(make_panel(by_hand=True))

    ask(submission, "return", "return")
    run_job()
    submission.refresh_from_db()

    assert submission.status == Status.RETURNED


# Failures


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

    assert execution_counts() == {f"approve {bea.pk} approve 0": 1}


@pytest.mark.django_db
def test_uncertain_payment_is_not_retried_until_checked(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    StandIn.trouble = [OutcomeUnknown("No answer came.")]
    run_job()

    assert state_of(command) == State.UNCERTAIN
    time_passes()
    assert outbox.claim(timezone.now()) == []


@pytest.mark.django_db
def test_settling_too_early_is_rejected(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    StandIn.trouble = [OutcomeUnknown("No answer came.")]
    run_job()

    assert not settle(command, False, timezone.now() + SENDING_LASTS - timedelta(seconds=5))
    with pytest.raises(NotUncertain, match="again in 15 minutes"):
        settle_by_hand(command, False)

    assert state_of(command) == State.UNCERTAIN


@pytest.mark.django_db
def test_payment_is_recorded_if_made_and_retried_if_not(submission, researcher):
    paid, unpaid = (ask(submission, "bonus", key, amount=150) for key in ("bonus:1", "bonus:2"))
    StandIn.trouble = [OutcomeUnknown("No answer came."), OutcomeUnknown("No answer came.")]
    run_job()
    time_passes()
    settle_by_hand(paid, True, researcher)
    settle_by_hand(unpaid, False, researcher)
    run_job()

    assert payments() == {(submission.pk, "bonus:2"): 1}
    assert (state_of(paid), state_of(unpaid)) == (State.DONE, State.DONE)
    assert balance_of(submission, "bonus") == Balance(300, 300)


@pytest.mark.django_db
def test_repeated_settlement_is_recorded_once(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    assert outbox.claim(timezone.now()) == [command]

    assert settle(command, True, timezone.now())
    assert not settle(command, True, timezone.now())

    assert balance_of(submission, "bonus") == Balance(150, 150)


@pytest.mark.django_db
def test_late_result_of_an_attempt_does_not_revert_a_settled_payment(submission):
    command = ask(submission, "bonus", "bonus:1", amount=150)
    batch = outbox.claim(timezone.now())
    settle(command, True, timezone.now())
    StandIn.trouble = [OutcomeUnknown("No answer came.")]

    outbox.send(batch)

    assert state_of(command) == State.DONE


@pytest.mark.django_db
def test_bonus_message_is_the_reason_in_the_ledger(submission):
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
    assert first.status == Status.TIMED_OUT  # a participant can hold only one place
    assert balance_of(first) == Balance(200, 200)


# Bulk approvals


@pytest.fixture
def approvals(panel, enqueued, monkeypatch) -> list[PlatformCommand]:
    monkeypatch.setattr(commands, "FEWEST_AT_ONCE", 3)
    return [ask(complete_place(panel, person), "approve", "approve") for person in ("ada", "bea", "cem")]


def bulk_sizes() -> list[int]:
    return [line.count(" ") for line in execution_counts() if line.startswith("approve_all")]


@pytest.mark.django_db
def test_bulk_approval_is_one_request(approvals):
    run_job()

    assert bulk_sizes() == [3]
    assert {state_of(command) for command in approvals} == {State.WAITING}  # until the platform confirms the approvals


@pytest.mark.django_db
def test_unconfirmed_bulk_approvals_are_sent_individually(approvals):
    run_job()
    time_passes()
    run_job()

    assert execution_counts().total() == 1 + 3
    assert {state_of(command) for command in approvals} == {State.DONE}


@pytest.mark.django_db
def test_refused_bulk_approval_is_sent_individually(approvals):
    StandIn.trouble = [PlatformRefused("One of them has returned."), PlatformRefused("This one has returned.")]
    run_job()

    assert [state_of(command) for command in approvals] == [State.FAILED, State.DONE, State.DONE]


@pytest.mark.django_db
def test_bulk_approval_is_retried_for_an_unavailable_platform(approvals):
    StandIn.trouble = [PlatformUnavailable("The platform asks to wait.", after_s=7200)]
    run_job()

    assert execution_counts().total() == 0
    assert {command.next_try_at > timezone.now() + timedelta(minutes=119) for command in reload(approvals)} == {True}
    time_passes()
    run_job()
    assert bulk_sizes() == [3]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("trouble", "state", "n_minutes"),
    [
        (PlatformUnavailable("The platform asks to wait.", after_s=7200), State.WAITING, 119),
        (PlatformRefused("This one has returned."), State.FAILED, 0),
    ],
)
def test_bulk_claim_of_one_approval_records_its_outcome(submission, monkeypatch, trouble, state, n_minutes):
    """Other workers can lock all approvals except one."""
    monkeypatch.setattr(commands, "FEWEST_AT_ONCE", 1)
    command = ask(submission, "approve", "approve")
    StandIn.trouble = [trouble]
    run_job()

    assert (state_of(command), command.error) == (state, str(trouble))
    assert command.next_try_at > timezone.now() + timedelta(minutes=n_minutes)


def reload(approvals: list[PlatformCommand]) -> list[PlatformCommand]:
    return list(PlatformCommand.objects.filter(pk__in=[command.pk for command in approvals]))


# Concurrency


@pytest.fixture
def shared_submission(transactional_db, make_panel, enqueued) -> Submission:
    return complete_place(make_panel())


def test_concurrent_approvals_store_one_command(shared_submission):
    results = at_once(*[lambda: ask(shared_submission, "approve", "approve")] * 4)

    assert {command.pk for command in results} == {shared_submission.commands.get().pk}


def test_concurrent_conflicting_decisions_store_one(shared_submission):
    approve = lambda: ask(shared_submission, "approve", "approve")  # noqa: E731
    reject = lambda: ask(shared_submission, "reject", "reject", message=WHY, category="LOW_EFFORT")  # noqa: E731

    outcomes = at_once(approve, reject)

    assert [type(outcome) for outcome in outcomes].count(NotAskable) == 1
    assert shared_submission.commands.count() == 1


def test_concurrent_workers_pay_each_bonus_once(shared_submission):
    for number in range(8):
        ask(shared_submission, "bonus", f"bonus:{number}", amount=10 + number)

    def work() -> int:
        n_sent = 0
        while batch := outbox.claim(timezone.now()):
            outbox.send(batch)
            n_sent += 1
        return n_sent

    assert sum(at_once(*[work] * 3)) == 8
    assert payments() == {(shared_submission.pk, f"bonus:{number}"): 1 for number in range(8)}
    assert balance_of(shared_submission, "bonus") == Balance(108, 108)


# Killed workers


def send_all() -> None:
    connections.close_all()
    while batch := outbox.claim(timezone.now()):
        outbox.send(batch)
    connections.close_all()


def run_worker_process() -> int:
    connections.close_all()
    worker = multiprocessing.get_context("fork").Process(target=send_all)
    worker.start()
    worker.join(60)
    return worker.exitcode


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("when", "was_paid"), [("before", False), ("after", True)])
def test_payment_of_a_killed_worker_is_not_repeated(shared_submission, monkeypatch, when, was_paid):
    command = ask(shared_submission, "bonus", "bonus:1", amount=150)
    monkeypatch.setenv(KILL_VARIABLE, when)
    assert run_worker_process() == -signal.SIGKILL
    monkeypatch.delenv(KILL_VARIABLE)

    assert state_of(command) == State.UNCERTAIN
    assert run_worker_process() == 0  # the next worker sends nothing
    assert payments().total() == was_paid
    assert balance_of(shared_submission, "bonus") == Balance(150, 0)

    assert settle(command, was_paid, timezone.now() + SENDING_LASTS)
    time_passes()
    assert run_worker_process() == 0
    assert payments() == {(shared_submission.pk, "bonus:1"): 1}
    assert balance_of(shared_submission, "bonus") == Balance(150, 150)


@pytest.mark.timeout(120)
def test_approval_of_a_killed_worker_is_retried(shared_submission, monkeypatch):
    command = ask(shared_submission, "approve", "approve")
    monkeypatch.setenv(KILL_VARIABLE, "before")
    assert run_worker_process() == -signal.SIGKILL
    monkeypatch.delenv(KILL_VARIABLE)

    assert state_of(command) == State.WAITING
    time_passes()
    assert run_worker_process() == 0
    assert state_of(command) == State.DONE
