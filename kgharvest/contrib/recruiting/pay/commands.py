"""Commands to platforms about submissions, such as approvals and bonuses, their outbox, and the review of places.

A command is stored once for each key of its submission, and a job sends it. A payment is sent at most once: it is
marked as uncertain, and that is committed, before it is sent. If the worker is killed after that, the payment stays
uncertain until reconciliation or a person decides whether it was made (`settle`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, OuterRef, QuerySet
from django.utils import timezone

from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import Unreadable
from kgharvest.contrib.recruiting.panels.models import MOST_MONEY
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.services import holds_another_place, leave, move
from kgharvest.contrib.recruiting.pay import ledger as pay
from kgharvest.contrib.recruiting.pay.models import LONGEST_MESSAGE
from kgharvest.contrib.recruiting.platforms import (
    Can,
    OutcomeUnknown,
    PlatformRefused,
    PlatformUnavailable,
    check_not_closed,
    platform_of,
)
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.jobs.outbox import Outbox, Outcome, Result, wait_after

logger = logging.getLogger(__name__)

SENDING_LASTS = timedelta(minutes=15)  # a payment that a platform shows none of so long after it was sent, was not made
MOST_AT_ONCE = 1000  # approvals, of a researcher and in one request to a platform
FEWEST_AT_ONCE = 50  # approvals in one request; fewer are sent one by one
APPROVED_WITHIN = timedelta(minutes=15)  # after that request, as reconciliation finds out
SHORTEST_REJECTION = 100  # characters of the message to whom is rejected, as Prolific asks for

Kind, State, Status = PlatformCommand.Kind, PlatformCommand.State, Submission.Status

# Grounds on which a person is not paid, by the names that Prolific has for them. What people think of a statement is
# none of them: disagreement is what a round measures.
GROUNDS = {
    "LOW_EFFORT": "answers given without reading the statements",
    "TOO_QUICKLY": "far too fast to have read the statements",
    "FAILED_CHECK": "failed checks that were announced",
    "FAILED_INSTRUCTIONS": "did not follow the instructions",
    "NO_CODE": "no completion code",
    "BAD_CODE": "a wrong completion code",
    "NO_DATA": "judged nothing",
    "OTHER": "other, as the message says",
}
DISAGREEMENT = "disagreement"
LONGEST_REASON = PayEntry._meta.get_field("reason").max_length

# What each kind may be asked for: submissions of these states. A bonus is for whoever took part.
ASKED_OF = {
    Kind.APPROVE: (Status.COMPLETED, Status.TIMED_OUT),
    Kind.REJECT: (Status.COMPLETED,),
    Kind.RETURN: (Status.ACTIVE, Status.COMPLETED),
    Kind.SCREEN_OUT: (Status.ACTIVE, Status.COMPLETED, Status.SCREENED_OUT),
    Kind.BONUS: tuple(Status),
}


class NotAskable(DomainError):
    """Asking for what a submission's status rules out, or for a second decision on it."""


class NotUncertain(DomainError):
    """Saying what came of a command of which that is known."""


# Creating commands


@transaction.atomic
def ask(
    submission: Submission, kind: str, key: str, *, amount: int = 0, message: str = "", category: str = "", by=None
) -> PlatformCommand:
    """Store what the platform is to do about a submission, and queue the job that tells it. The same key twice: once.

    amount: of a bonus, in minor units; it is owed from now on. message, category: of a rejection.
    Raises NotAllowed, NotAskable, BadRejection, BadAmount, PlatformRefused.
    """
    check_may(by, Action.WORK, submission.panel.project)
    submission = Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=submission.pk)
    known = submission.commands.filter(key=key).first()
    if known is not None:
        return known
    _check(submission, Kind(kind), amount, message, category)
    command = submission.commands.create(
        kind=kind, key=key, amount=amount, message=message.strip(), category=category, created_by=by
    )
    if kind == Kind.BONUS:
        reason = reason_of(command)
        pay.owe(submission, pay.Purpose.BONUS, key, amount, reason, command=command, by=by)
    _record_asked(submission, command, by)
    transaction.on_commit(lambda: outbox.enqueue_if_due(timezone.now()))
    return command


def reason_of(bonus: PlatformCommand) -> str:
    return bonus.message[:LONGEST_REASON] or "A bonus."


def _record_asked(submission: Submission, command: PlatformCommand, by) -> None:
    panel = submission.panel
    facts = {"submission": submission.pk, "panel": panel.name}
    if command.kind == Kind.BONUS:
        record("bonus.granted", command, by, panel.project.pk, **facts, amount=money(command.amount, panel.currency))
        return
    ground = f" ({GROUNDS[command.category]})" if command.category in GROUNDS else ""
    decision = f"{Kind(command.kind).label}{ground}"
    record("submission.decided", command, by, panel.project.pk, **facts, decision=decision)


def _check(submission: Submission, kind: Kind, amount: int, message: str, category: str) -> None:
    check_not_closed(submission.panel)
    if submission.status not in ASKED_OF[kind]:
        raise NotAskable(f"Submission {submission.pk} is {submission.status}; {kind.label} is not for those.")
    if kind == Kind.BONUS:
        check_bonus(submission, amount)
        if Can.BONUS not in platform_of(submission.panel).can:
            raise NotAskable("This platform pays no bonus by itself: grant it, pay it there, then note that.")
        return
    decided = submission.commands.exclude(kind=Kind.BONUS).exclude(state=State.FAILED).first()
    if decided is not None:
        raise NotAskable(f"About submission {submission.pk} is decided already: {decided.kind}, {decided.state}.")
    if kind == Kind.REJECT:
        check_rejection(message, category)


def check_bonus(submission: Submission, amount: int) -> None:
    if not 0 < amount <= MOST_MONEY:
        least, most, given = (money(value, submission.panel.currency) for value in (1, MOST_MONEY, amount))
        raise DomainError("BadAmount", f"A bonus is from {least} to {most} for one person, not {given}.")


def check_rejection(message: str, category: str) -> None:
    """Raise BadRejection, saying what is missing."""
    if category.strip().lower() == DISAGREEMENT:
        raise DomainError(
            "BadRejection",
            "Nobody is rejected for disagreement: what others say is not known to be true, and it is what the round "
            "measures. Approve the submission; exclude the judgments from the round if there are other reasons.",
        )
    if category not in GROUNDS:
        raise DomainError("BadRejection", f"Give one of these grounds: {', '.join(GROUNDS)}; not {category!r:.40}.")
    length = len(" ".join(message.split()))
    if length < SHORTEST_REJECTION:
        raise DomainError(
            "BadRejection",
            f"The message has {length} characters; explain in {SHORTEST_REJECTION} or more what was wrong, for the "
            "person who reads it.",
        )
    if len(message) > LONGEST_MESSAGE:
        raise DomainError("BadRejection", f"The message has {len(message):,} characters; {LONGEST_MESSAGE:,} at most.")


# Sending


class CommandOutbox(Outbox):
    """Sends commands one after another, as Prolific requires.

    The claim of a payment makes it uncertain, so that it is sent at most once until it is settled.
    """

    job_kind = "platform_commands"
    model = PlatformCommand
    stage = "telling platforms"
    states = {Result.RETRY: State.WAITING, Result.FAILED: State.FAILED, Result.UNCERTAIN: State.UNCERTAIN}

    def due(self, now: datetime) -> QuerySet[PlatformCommand]:
        return super().due(now).select_related("submission__panel__round__project")

    def unfinished(self) -> QuerySet[PlatformCommand]:
        return PlatformCommand.objects.unfinished()

    def claim_fields(self, command: PlatformCommand, now: datetime) -> dict[str, Any]:
        if command.kind == Kind.BONUS:
            return {"state": State.UNCERTAIN, "next_try_at": now + SENDING_LASTS}
        return {}

    def claim(self, now: datetime) -> list[PlatformCommand]:
        return self.claim_approvals(now) or super().claim(now)

    def claim_approvals(self, now: datetime) -> list[PlatformCommand]:
        """Claim never tried approvals of one panel for a single request; empty if there are fewer than FEWEST_AT_ONCE.

        An approval that the platform does not show within APPROVED_WITHIN is sent by itself.
        """
        untried = self.due(now).filter(kind=Kind.APPROVE, n_tries=0)
        by_panel = untried.order_by().values("submission__panel").annotate(n=Count("pk")).filter(n__gte=FEWEST_AT_ONCE)
        for panel in Panel.objects.filter(pk__in=by_panel.values("submission__panel")):
            if Can.APPROVE_ALL in platform_of(panel).can:
                with transaction.atomic():
                    of_panel = untried.filter(submission__panel=panel)
                    commands = list(of_panel.select_for_update(of=("self",), skip_locked=True)[:MOST_AT_ONCE])
                    marked = PlatformCommand.objects.filter(pk__in=[command.pk for command in commands])
                    marked.update(n_tries=1, next_try_at=now + APPROVED_WITHIN)
                return commands
        return []

    def send(self, commands: Sequence[PlatformCommand]) -> None:
        if len(commands) > 1:
            self.send_approvals(commands)
        else:
            super().send(commands)

    def send_approvals(self, approvals: Sequence[PlatformCommand]) -> None:
        """Have the platform approve many in the background. Reconciliation, or a further try of each, confirms them."""
        sent = PlatformCommand.objects.waiting().filter(pk__in=[approval.pk for approval in approvals], n_tries=1)
        try:
            platform_of(approvals[0].submission.panel).approve_all([approval.submission for approval in approvals])
        except PlatformUnavailable as reason:
            wait = max(wait_after(1), timedelta(seconds=reason.after_s or 0))
            sent.update(n_tries=0, next_try_at=timezone.now() + wait, error=str(reason)[:500])
        except DomainError as reason:
            logger.warning("Approving %s at once failed, so they are approved one by one: %s", len(approvals), reason)
            sent.update(next_try_at=timezone.now())

    def attempt(self, command: PlatformCommand) -> Outcome:
        try:
            platform_of(command.submission.panel).execute(command)
        except PlatformUnavailable as reason:
            return Outcome(Result.RETRY, str(reason), reason.after_s)
        except (PlatformRefused, Unreadable) as reason:  # Unreadable: the ids, so nothing was sent
            return Outcome(Result.FAILED, str(reason))
        except OutcomeUnknown as reason:
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
    """Mark a command as done and update pay and status; return False if it was done already."""
    submission = Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=command.submission_id)
    undone = PlatformCommand.objects.filter(pk=command.pk).exclude(state=State.DONE)
    if not undone.update(state=State.DONE, done_at=now, error=""):
        return False
    command.refresh_from_db()
    FOLLOWS[Kind(command.kind)](submission, command, now)
    return True


def _approved(submission: Submission, command: PlatformCommand, now: datetime) -> None:
    if not holds_another_place(submission):  # who timed out may have come again
        move(submission, Status.ACTIVE, Status.COMPLETED, Status.TIMED_OUT, to=Status.APPROVED, ended_at=now)
    if not pay.submission_balance(submission, pay.Purpose.REWARD).owed:
        pay.owe_in_all(submission, pay.Purpose.REWARD, submission.panel.reward, "The place was approved.")
    owed = pay.submission_balance(submission, pay.Purpose.REWARD).owed
    pay.record_paid(submission, pay.Purpose.REWARD, pay.REWARD, owed, "Approved.", command=command)


def _rejected(submission: Submission, command: PlatformCommand, now: datetime) -> None:
    move(submission, Status.COMPLETED, to=Status.REJECTED, ended_at=now)
    reason = f"Rejected: {GROUNDS.get(command.category, command.category)}."
    pay.owe_in_all(submission, pay.Purpose.REWARD, 0, reason, command=command, by=command.created_by)


def _returned(submission: Submission, command: PlatformCommand, now: datetime) -> None:
    """Where the platform tells of it, that says when the person has followed; elsewhere they are taken to have."""
    if Can.RECONCILE not in platform_of(submission.panel).can:
        leave(submission, Status.RETURNED, now)


def _screened_out(submission: Submission, command: PlatformCommand, now: datetime) -> None:
    leave(submission, Status.SCREENED_OUT, now)
    owed = pay.submission_balance(submission, pay.Purpose.SCREEN_OUT).owed
    if owed:
        pay.record_paid(submission, pay.Purpose.SCREEN_OUT, pay.SCREEN_OUT, owed, "Screened out.", command=command)


def _bonus_paid(submission: Submission, command: PlatformCommand, now: datetime) -> None:
    pay.record_paid(submission, pay.Purpose.BONUS, command.key, command.amount, reason_of(command), command=command)


FOLLOWS: dict[Kind, Callable[[Submission, PlatformCommand, datetime], None]] = {
    Kind.APPROVE: _approved,
    Kind.REJECT: _rejected,
    Kind.RETURN: _returned,
    Kind.SCREEN_OUT: _screened_out,
    Kind.BONUS: _bonus_paid,
}


# Uncertain and failed commands


def settle(command: PlatformCommand, was_done: bool, now: datetime) -> bool:
    """Let somebody who looked at the platform say whether it was done; return whether that changed anything.

    now: when they looked. A payment that was not there is sent again, but only if they looked SENDING_LASTS after it
    was sent: until then it may be under way. What waits to be sent, and is there, was done by somebody else's hand.
    """
    if was_done:
        return finish(command, now)
    unpaid = PlatformCommand.objects.filter(pk=command.pk, state=State.UNCERTAIN, next_try_at__lte=now)
    return bool(unpaid.update(state=State.WAITING, next_try_at=now, error="It was not made; it is sent again."))


def settle_by_hand(command: PlatformCommand, was_done: bool, by=None) -> None:
    """Let a person who looked at the platform say whether an uncertain payment was made. If not, it is sent again.

    Raises NotAllowed, NotUncertain where that is known, or not yet to be known.
    """
    panel, now = command.submission.panel, timezone.now()
    check_may(by, Action.WORK, panel.project)
    command.refresh_from_db()
    if command.state != State.UNCERTAIN:
        raise NotUncertain(f"Command {command.pk} is {command.state}, not uncertain; there is nothing to say.")
    if not was_done and now < command.next_try_at:
        minutes = ceil((command.next_try_at - now).total_seconds() / 60)
        raise NotUncertain(f"This payment may be under way still; look at the platform again in {minutes} minutes.")
    with transaction.atomic():
        if settle(command, was_done, now):
            outcome = "it was made" if was_done else "it was not made, send it again"
            facts = {"submission": command.submission_id, "panel": panel.name, "kind": command.kind}
            record("command.settled", command, by, panel.project.pk, **facts, outcome=outcome)
    outbox.enqueue_if_due(timezone.now())


@transaction.atomic
def resend(command: PlatformCommand, by=None) -> None:
    """Retry a failed command.

    Raises NotAllowed, PlatformRefused if the platform is closed, NotUncertain if the command has not failed, NotAskable
    if it was paid since or another decision was made.
    """
    check_may(by, Action.WORK, command.submission.panel.project)
    check_not_closed(command.submission.panel)
    submission = Submission.objects.select_for_update(of=("self",), no_key=True).get(pk=command.submission_id)
    if submission.pay_entries.filter(side=pay.Side.PAID, key=command.key).exists():
        raise NotAskable(f"What command {command.pk} asks for was paid by now; it is not sent again.")
    failed = PlatformCommand.objects.filter(pk=command.pk, state=State.FAILED)
    try:
        with transaction.atomic():
            n_again = failed.update(state=State.WAITING, next_try_at=timezone.now())
    except IntegrityError:
        raise NotAskable(f"About submission {submission.pk} something else is decided by now.") from None
    if not n_again:
        raise NotUncertain(f"Command {command.pk} has not failed; there is nothing to send again.")
    transaction.on_commit(lambda: outbox.enqueue_if_due(timezone.now()))


# Review of completed places


def to_review(panel: Panel) -> QuerySet[Submission]:
    """Return completed submissions without a decision, the earliest automatic approval first.

    Empty if the platform is closed, as no decision can be made.
    """
    if panel.is_platform_closed:
        return Submission.objects.none()
    decided = PlatformCommand.objects.filter(submission=OuterRef("pk")).exclude(kind=Kind.BONUS)
    undecided = panel.submissions.to_review().filter(~Exists(decided.exclude(state=State.FAILED)))
    return undecided.select_related("annotator").order_by(
        F("approves_itself_at").asc(nulls_last=True), "completed_at", "pk"
    )


def decide(submission: Submission, kind: str, *, message: str = "", category: str = "", by=None) -> PlatformCommand:
    """Have the platform approve, reject or ask to return, or screen out. What it refused before is sent once more.

    Raises NotAllowed, NotAskable, BadRejection.
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
    """Approve these of the places that wait for review, or all, MOST_AT_ONCE at most; return how many.

    Submissions with a decision are skipped. Raises NotAllowed, PlatformRefused.
    """
    check_may(by, Action.WORK, panel.project)
    check_not_closed(panel)
    waiting = to_review(panel).select_related("panel__round__project")
    if submissions is not None:
        waiting = waiting.filter(pk__in=submissions)
    n_approved = 0
    for submission in waiting[:MOST_AT_ONCE]:
        try:
            decide(submission, Kind.APPROVE, by=by)
        except (NotAskable, NotUncertain):
            continue
        n_approved += 1
    return n_approved
