"""Commands to platforms about submissions, such as approvals and bonuses, with the outbox and the review of places.

A command is stored once per key of its submission and sent by a job. A payment is sent at most once, because it is
marked as uncertain in a committed transaction before it is sent. If the worker is then killed, the payment stays
uncertain until reconciliation or a researcher determines whether it was made (`settle`).
"""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, OuterRef, QuerySet
from django.utils import timezone

from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting import platforms
from kgharvest.contrib.recruiting.models import LONGEST_MESSAGE, Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable
from kgharvest.contrib.recruiting.panels.models import MOST_MONEY
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.services import holds_another_place, leave, move
from kgharvest.contrib.recruiting.pay import ledger as pay
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.jobs.outbox import Outbox, Outcome, Result, wait_after

logger = logging.getLogger(__name__)

SENDING_LASTS = timedelta(minutes=15)  # if the platform does not show a payment after this time, it was not made
MOST_AT_ONCE = 1000  # maximum approvals by a researcher at once, and in one platform request
FEWEST_AT_ONCE = 50  # minimum number of approvals in a bulk request; fewer approvals are sent individually
APPROVED_WITHIN = timedelta(minutes=15)  # time within which a bulk approval appears on the platform
SHORTEST_REJECTION = 100  # number of characters; Prolific's minimum for a rejection message

Kind, State, Status = PlatformCommand.Kind, PlatformCommand.State, Submission.Status

# Valid reasons for a rejection, by Prolific's category. Disagreement is not a valid reason, because rounds measure it.
GROUNDS = {
    "LOW_EFFORT": "answered without reading the statements",
    "TOO_QUICKLY": "too fast to have read the statements",
    "FAILED_CHECK": "failed announced attention checks",
    "FAILED_INSTRUCTIONS": "did not follow the instructions",
    "NO_CODE": "no completion code",
    "BAD_CODE": "wrong completion code",
    "NO_DATA": "judged nothing",
    "OTHER": "other, as explained in the message",
}
LONGEST_REASON = PayEntry._meta.get_field("reason").max_length

# Submission statuses that allow each kind of command.
ALLOWED_STATUSES = {
    Kind.APPROVE: (Status.COMPLETED, Status.TIMED_OUT),
    Kind.REJECT: (Status.COMPLETED,),
    Kind.RETURN: (Status.ACTIVE, Status.COMPLETED),
    Kind.SCREEN_OUT: (Status.ACTIVE, Status.COMPLETED, Status.SCREENED_OUT),
    Kind.BONUS: tuple(Status),
}


class NotAskable(DomainError):
    """The submission's status does not allow the command, or a decision already exists."""


class NotUncertain(DomainError):
    """The outcome of the command is already known, or cannot be known yet."""


# Creating commands


@transaction.atomic
def ask(
    submission: Submission, kind: str, key: str, *, amount: int = 0, message: str = "", category: str = "", by=None
) -> PlatformCommand:
    """Store a command and queue the job that sends it. A repeated key returns the existing command.

    amount: bonus in minor units, which is recorded as owed. message, category: explanation and category of a rejection.
    Raises NotAllowed, NotAskable, BadRejection, BadAmount, or PlatformRefused.
    """
    check_may(by, Action.WORK, submission.panel.project)
    submission = Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=submission.pk)
    existing = submission.commands.filter(key=key).first()
    if existing is not None:
        return existing
    _check(submission, Kind(kind), amount, message, category)
    command = submission.commands.create(
        kind=kind, key=key, amount=amount, message=message.strip(), category=category, created_by=by
    )
    panel = submission.panel
    facts = {"submission": submission.pk, "panel": panel.name}
    if kind == Kind.BONUS:
        pay.owe(submission, pay.Purpose.BONUS, key, amount, reason_of(command), command=command, by=by)
        record("bonus.granted", command, by, panel.project.pk, **facts, amount=money(amount, panel.currency))
    else:
        ground = f" ({GROUNDS[category]})" if category in GROUNDS else ""
        record("submission.decided", command, by, panel.project.pk, **facts, decision=f"{Kind(kind).label}{ground}")
    transaction.on_commit(lambda: outbox.enqueue_if_due(timezone.now()))
    return command


def reason_of(bonus: PlatformCommand) -> str:
    return bonus.message[:LONGEST_REASON] or "Bonus."


def _check(submission: Submission, kind: Kind, amount: int, message: str, category: str) -> None:
    platforms.check_not_closed(submission.panel)
    if submission.status not in ALLOWED_STATUSES[kind]:
        raise NotAskable(f"Cannot {kind.label}: submission {submission.pk} is {submission.status}.")
    if kind == Kind.BONUS:
        check_bonus(submission, amount)
        if not platforms.platform_of(submission.panel).has_api:
            raise NotAskable("This platform does not pay bonuses. Grant the bonus, pay it manually, then record it.")
        return
    decision = submission.commands.exclude(kind=Kind.BONUS).exclude(state=State.FAILED).first()
    if decision is not None:
        raise NotAskable(f"Submission {submission.pk} already has a decision: {decision.kind} ({decision.state}).")
    if kind == Kind.REJECT:
        check_rejection(message, category)


def check_bonus(submission: Submission, amount: int) -> None:
    if not 0 < amount <= MOST_MONEY:
        minimum, maximum, value = (money(sum_, submission.panel.currency) for sum_ in (1, MOST_MONEY, amount))
        raise DomainError("BadAmount", f"Invalid bonus: {value}. Enter {minimum} to {maximum} per participant.")


def check_rejection(message: str, category: str) -> None:
    """Raise BadRejection for an invalid category or message."""
    length = len(" ".join(message.split()))
    if category.strip().lower() == "disagreement":
        reason = (
            "Disagreement is not a valid reason: other annotators' labels are not ground truth, and the round "
            "measures disagreement. Approve the submission. If there are other reasons, exclude its judgments."
        )
    elif category not in GROUNDS:
        reason = f"Invalid category {category!r:.40}. Use one of {', '.join(GROUNDS)}."
    elif length < SHORTEST_REJECTION:
        reason = (
            f"Message too short: {length} characters. Explain the problem to the participant in at least "
            f"{SHORTEST_REJECTION} characters."
        )
    elif len(message) > LONGEST_MESSAGE:
        reason = f"Message too long: {len(message):,} characters. The maximum is {LONGEST_MESSAGE:,}."
    else:
        return
    raise DomainError("BadRejection", reason)


# Sending


class CommandOutbox(Outbox):
    """Outbox that sends commands one after another, as Prolific requires.

    Claiming a payment marks it as uncertain, so that it is sent at most once until it is settled.
    """

    job_kind = "platform_commands"
    model = PlatformCommand
    stage = "sending platform requests"
    states = {Result.RETRY: State.WAITING, Result.FAILED: State.FAILED, Result.UNCERTAIN: State.UNCERTAIN}

    def due(self, now: datetime) -> QuerySet[PlatformCommand]:
        return super().due(now).select_related("submission__panel__round__project")

    def unfinished(self) -> QuerySet[PlatformCommand]:
        return PlatformCommand.objects.unfinished()

    def claim_fields(self, command: PlatformCommand, now: datetime) -> dict[str, Any]:
        return {"state": State.UNCERTAIN, "next_try_at": now + SENDING_LASTS} if command.kind == Kind.BONUS else {}

    def claim(self, now: datetime) -> list[PlatformCommand]:
        return self.claim_approvals(now) or super().claim(now)

    def claim_approvals(self, now: datetime) -> list[PlatformCommand]:
        """Claim the untried approvals of one panel for a bulk request, if there are at least FEWEST_AT_ONCE.

        An approval that the platform does not show within APPROVED_WITHIN is sent individually.
        """
        untried = self.due(now).filter(kind=Kind.APPROVE, n_tries=0)
        by_panel = untried.order_by().values("submission__panel").annotate(n=Count("pk")).filter(n__gte=FEWEST_AT_ONCE)
        for panel in Panel.objects.filter(pk__in=by_panel.values("submission__panel")):
            if platforms.platform_of(panel).has_api:
                with transaction.atomic():
                    approvals = untried.filter(submission__panel=panel)
                    claimed = list(approvals.select_for_update(of=("self",), skip_locked=True)[:MOST_AT_ONCE])
                    for command in claimed:
                        command.n_tries, command.next_try_at = 1, now + APPROVED_WITHIN
                        command.retry_at = now + wait_after(1)  # next attempt if only one approval was claimed
                    PlatformCommand.objects.bulk_update(claimed, ["n_tries", "next_try_at"])
                return claimed
        return []

    def send(self, commands: Sequence[PlatformCommand]) -> None:
        """Send a command, or a bulk approval, which the platform executes in the background.

        Reconciliation confirms the approvals. Each unconfirmed approval is sent again individually.
        """
        if len(commands) == 1:
            super().send(commands)
            return
        sent = PlatformCommand.objects.waiting().filter(pk__in=[approval.pk for approval in commands], n_tries=1)
        platform = platforms.platform_of(commands[0].submission.panel)
        try:
            platform.approve_all([approval.submission for approval in commands])
        except platforms.PlatformUnavailable as reason:
            wait = max(wait_after(1), timedelta(seconds=reason.after_s or 0))
            sent.update(n_tries=0, next_try_at=timezone.now() + wait, error=str(reason)[:500])
        except DomainError as reason:
            logger.warning("Bulk approval of %s failed; approving them individually: %s", len(commands), reason)
            sent.update(next_try_at=timezone.now())

    def attempt(self, command: PlatformCommand) -> Outcome:
        try:
            platforms.platform_of(command.submission.panel).execute(command)
        except platforms.PlatformUnavailable as reason:
            return Outcome(Result.RETRY, str(reason), reason.after_s)
        except (platforms.PlatformRefused, Unreadable) as reason:  # if ids are unreadable, nothing was sent
            return Outcome(Result.FAILED, str(reason))
        except platforms.OutcomeUnknown as reason:
            return Outcome(Result.UNCERTAIN, str(reason))
        return Outcome(Result.DONE)

    def record(self, command: PlatformCommand, outcome: Outcome, now: datetime) -> None:
        if outcome.result is Result.DONE:
            finish(command, now)
        else:
            super().record(command, outcome, now)


outbox = CommandOutbox()


# Effects of finished commands


@transaction.atomic
def finish(command: PlatformCommand, now: datetime) -> bool:
    """Mark a command as done, and update pay and status. Return False if it was already done."""
    submission = Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=command.submission_id)
    undone = PlatformCommand.objects.filter(pk=command.pk).exclude(state=State.DONE)
    if not undone.update(state=State.DONE, done_at=now, error=""):
        return False
    command.refresh_from_db()
    purpose, kind = pay.Purpose, command.kind
    if kind == Kind.APPROVE:
        if not holds_another_place(submission):  # the participant may have timed out and then entered again
            move(submission, Status.ACTIVE, Status.COMPLETED, Status.TIMED_OUT, to=Status.APPROVED, ended_at=now)
        if not pay.balance_of(submission, purpose.REWARD).owed:
            pay.owe_in_all(submission, purpose.REWARD, submission.panel.reward, "The place was approved.")
        owed = pay.balance_of(submission, purpose.REWARD).owed
        pay.record_paid(submission, purpose.REWARD, pay.REWARD, owed, "Approved.", command=command)
    elif kind == Kind.REJECT:
        move(submission, Status.COMPLETED, to=Status.REJECTED, ended_at=now)
        reason = f"Rejected: {GROUNDS.get(command.category, command.category)}."
        pay.owe_in_all(submission, purpose.REWARD, 0, reason, command=command, by=command.created_by)
    elif kind == Kind.RETURN:
        if not platforms.platform_of(submission.panel).has_api:  # a platform with an API reports the return itself
            leave(submission, Status.RETURNED, now)
    elif kind == Kind.SCREEN_OUT:
        leave(submission, Status.SCREENED_OUT, now)
        if owed := pay.balance_of(submission, purpose.SCREEN_OUT).owed:
            pay.record_paid(submission, purpose.SCREEN_OUT, pay.SCREEN_OUT, owed, "Screened out.", command=command)
    else:
        pay.record_paid(submission, purpose.BONUS, command.key, command.amount, reason_of(command), command=command)
    return True


# Uncertain and failed commands


def settle(command: PlatformCommand, was_done: bool, now: datetime) -> bool:
    """Settle a command according to the platform's state. Return whether the command changed.

    was_done: True if the platform shows the command as done. It can be done there while it is still pending here,
    because somebody did it manually on the platform. now: time of the platform's state. A missing payment is retried
    only if it was sent at least SENDING_LASTS ago; before that, it may still be in progress.
    """
    if was_done:
        return finish(command, now)
    unpaid = PlatformCommand.objects.filter(pk=command.pk, state=State.UNCERTAIN, next_try_at__lte=now)
    return bool(unpaid.update(state=State.WAITING, next_try_at=now, error="The payment was not made. Retrying."))


def settle_by_hand(command: PlatformCommand, was_done: bool, by=None) -> None:
    """Settle an uncertain payment that a researcher has checked on the platform. A missing payment is retried.

    Raises NotAllowed, and NotUncertain if the outcome is already known or cannot be known yet.
    """
    panel, now = command.submission.panel, timezone.now()
    check_may(by, Action.WORK, panel.project)
    command.refresh_from_db()
    if command.state != State.UNCERTAIN:
        raise NotUncertain(f"Request {command.pk} is {command.get_state_display()}, so it cannot be settled.")
    if not was_done and now < command.next_try_at:
        minutes = ceil((command.next_try_at - now).total_seconds() / 60)
        raise NotUncertain(f"The payment may still be in progress. Check the platform again in {minutes} minutes.")
    with transaction.atomic():
        if settle(command, was_done, now):
            facts = {"submission": command.submission_id, "panel": panel.name, "kind": command.kind}
            outcome = "paid" if was_done else "not paid, retry"
            record("command.settled", command, by, panel.project.pk, **facts, outcome=outcome)
    outbox.enqueue_if_due(timezone.now())


@transaction.atomic
def resend(command: PlatformCommand, by=None) -> None:
    """Retry a failed command.

    Raises NotAllowed; PlatformRefused if the platform is closed; NotUncertain if the command has not failed; and
    NotAskable if the payment or another decision was made in the meantime.
    """
    check_may(by, Action.WORK, command.submission.panel.project)
    platforms.check_not_closed(command.submission.panel)
    submission = Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=command.submission_id)
    if submission.pay_entries.filter(side=pay.Side.PAID, key=command.key).exists():
        raise NotAskable(f"Request {command.pk} was paid in the meantime and cannot be retried.")
    failed = PlatformCommand.objects.filter(pk=command.pk, state=State.FAILED)
    try:
        with transaction.atomic():
            n_updated = failed.update(state=State.WAITING, next_try_at=timezone.now())
    except IntegrityError:
        raise NotAskable(f"Submission {submission.pk} received another decision in the meantime.") from None
    if not n_updated:
        raise NotUncertain(f"Request {command.pk} has not failed, so it cannot be retried.")
    transaction.on_commit(lambda: outbox.enqueue_if_due(timezone.now()))


# Review of completed places


def to_review(panel: Panel) -> QuerySet[Submission]:
    """Return completed submissions without a decision, earliest automatic approval first.

    If the platform is closed, return none.
    """
    if panel.is_platform_closed:
        return Submission.objects.none()
    decisions = PlatformCommand.objects.filter(submission=OuterRef("pk")).exclude(kind=Kind.BONUS)
    undecided = panel.submissions.filter(~Exists(decisions.exclude(state=State.FAILED)), status=Status.COMPLETED)
    return undecided.select_related("annotator").order_by(
        F("approves_itself_at").asc(nulls_last=True), "completed_at", "pk"
    )


def decide(submission: Submission, kind: str, *, message: str = "", category: str = "", by=None) -> PlatformCommand:
    """Store a decision: approve, reject, request a return, or screen out. If the same decision failed before, retry it.

    Raises NotAllowed, NotAskable, or BadRejection.
    """
    check_may(by, Action.WORK, submission.panel.project)
    failed = submission.commands.filter(kind=kind, state=State.FAILED)
    last = failed.order_by("-pk").first()
    if last is not None and (last.message, last.category) == (message.strip(), category):
        resend(last, by)
        return last
    n = failed.count()
    return ask(submission, kind, f"{kind}:{n + 1}" if n else kind, message=message, category=category, by=by)


def approve(panel: Panel, submissions: Collection[int] | None = None, by=None) -> int:
    """Approve up to MOST_AT_ONCE places that await review. Return the number of approvals.

    submissions: ids of the submissions to approve; default: all. Submissions with a decision are skipped. Raises
    NotAllowed or PlatformRefused.
    """
    check_may(by, Action.WORK, panel.project)
    platforms.check_not_closed(panel)
    undecided = to_review(panel).select_related("panel__round__project")
    if submissions is not None:
        undecided = undecided.filter(pk__in=submissions)
    n_approved = 0
    for submission in undecided[:MOST_AT_ONCE]:
        try:
            decide(submission, Kind.APPROVE, by=by)
        except (NotAskable, NotUncertain):
            continue
        n_approved += 1
    return n_approved
