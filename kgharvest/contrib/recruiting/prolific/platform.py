"""Prolific as a recruiting platform: study, submissions, and pay of one panel."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils.dateparse import parse_datetime

from kgharvest.contrib.recruiting.models import Panel, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.pay.commands import SHORTEST_REJECTION
from kgharvest.contrib.recruiting.platforms import (
    Can,
    Cost,
    PlatformRefused,
    PlatformUnavailable,
    RecruitingPlatform,
    RemoteSubmission,
)
from kgharvest.contrib.recruiting.prolific.client import Client
from kgharvest.contrib.recruiting.prolific.entry_token import check_entry
from kgharvest.contrib.recruiting.prolific.study import check_ready, internal_name, option_problems, study_document

APPROVES_ITSELF_AFTER = timedelta(days=21)  # after completion
REJECTION_CATEGORIES = (
    "TOO_QUICKLY", "TOO_SLOWLY", "FAILED_INSTRUCTIONS", "INCOMP_LONGITUDINAL", "FAILED_CHECK", "LOW_EFFORT",
    "MALINGERING", "NO_CODE", "BAD_CODE", "NO_DATA", "UNSUPP_DEVICE", "OTHER",
)  # fmt: skip

Status, Kind = Submission.Status, PlatformCommand.Kind

STATUSES = {
    "RESERVED": Status.ACTIVE,
    "ACTIVE": Status.ACTIVE,
    "AWAITING REVIEW": Status.COMPLETED,
    "APPROVED": Status.APPROVED,
    "PARTIALLY APPROVED": Status.APPROVED,
    "REJECTED": Status.REJECTED,
    "RETURNED": Status.RETURNED,
    "TIMED-OUT": Status.TIMED_OUT,
    "SCREENED OUT": Status.SCREENED_OUT,
}
STUDY_STATUSES = {  # AWAITING REVIEW: all places are taken, current participants continue
    "ACTIVE": Panel.Status.PUBLISHED,
    "PUBLISHING": Panel.Status.PUBLISHED,
    "AWAITING REVIEW": Panel.Status.PUBLISHED,
    "PAUSED": Panel.Status.PAUSED,
    "COMPLETED": Panel.Status.STOPPED,
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")  # valid submission ids; a forged link can contain anything
SHOWS_WITHIN = timedelta(minutes=1)  # after this time, Prolific's API shows every participant who entered here
GONE = "GONE"  # platform status of a submission that Prolific does not have


class Prolific(RecruitingPlatform):
    can = frozenset(Can)

    def __init__(self, panel: Panel, client: Client | None = None):
        super().__init__(panel)
        self._given_client = client

    @property
    def client(self) -> Client:
        if self._given_client is None:
            self._given_client = Client()
        return self._given_client

    def check_entry(self, parameters: Mapping[str, str]) -> bool:
        return check_entry(self.panel, parameters)

    def option_problems(self) -> Iterator[str]:
        return option_problems(self.panel)

    def cost(self) -> Cost:
        """Return the cost of the places by Prolific's calculator, without paid screen-outs and bonuses."""
        rewards = self.panel.reward * self.panel.places
        return Cost(rewards, self.client.cost(self.panel.reward, self.panel.places) - rewards)

    def publish(self) -> str:
        """Create the study or reuse its draft, and publish it; return its id. Idempotent."""
        document = study_document(self.panel)
        study = self._existing_study() or self.client.create_study(document)
        if study["status"] == "UNPUBLISHED":
            self.client.update_study(study["id"], document)
            self._transition(study, "PUBLISH")
            return study["id"]
        # If the answer to an earlier publication was lost, the panel may have been edited since.
        reward = self.client.study(study["id"])["reward"]
        if reward != self.panel.reward:
            raise PlatformRefused(
                f"The study is already published on Prolific with a reward of {money(reward, self.panel.currency)}. "
                "Set the panel's reward to this amount, or stop the study there and create another panel."
            )
        if study["status"] == "PAUSED":
            self._transition(study, "START")
        elif study["status"] == "COMPLETED":
            raise PlatformRefused("This study has ended on Prolific. Create another panel to recruit participants.")
        return study["id"]

    def _existing_study(self) -> dict[str, Any] | None:
        """Return the panel's study or None; a study whose creation was not confirmed is found by its internal name."""
        if self.panel.external_id:
            return self.client.study(self.panel.external_id)
        name = internal_name(self.panel)
        return next((study for study in self.client.studies() if study.get("internal_name") == name), None)

    def pause(self) -> None:
        self._move("PAUSE", "ACTIVE")

    def resume(self) -> None:
        check_ready(self.panel)
        self._move("START", "PAUSED")

    def stop(self) -> None:
        self._move("STOP", "ACTIVE", "PAUSED")

    def _move(self, action: str, *from_statuses: str) -> None:
        """Move the study if it has one of these statuses; otherwise it was moved before."""
        study = self.client.study(self.panel.external_id)
        if study["status"] in from_statuses:
            self._transition(study, action)

    def _transition(self, study: dict[str, Any], action: str) -> None:
        try:
            self.client.move_study(study["id"], action)
        except PlatformRefused:  # also if the answer to an earlier, successful attempt was lost
            if self.client.study(study["id"])["status"] == study["status"]:
                raise

    def status(self) -> str | None:
        return STUDY_STATUSES.get(self.client.study(self.panel.external_id)["status"])

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield every submission of the study, including bonuses for those with an uncertain payment.

        Submissions entered with a forged link are missing on Prolific; they are yielded as returned.
        """
        uncertain = self.panel.submissions.filter(
            commands__kind=Kind.BONUS, commands__state=PlatformCommand.State.UNCERTAIN
        )
        single_requests = {submission.session_id for submission in uncertain}
        listed = set()
        for row, asked_at in self.client.submissions(self.panel.external_id):
            listed.add(row["id"])
            if row["id"] not in single_requests:
                yield remote_submission(self.panel, row, row["participant_id"], asked_at)
        unfinished = self.panel.submissions.filter(
            status__in=[Status.ACTIVE, Status.COMPLETED], entered_at__lt=datetime.now(UTC) - SHOWS_WITHIN
        )
        unlisted = {submission.session_id for submission in unfinished} - listed
        for session in sorted(single_requests | unlisted - {""}):
            yield self.submission(session)

    def submission(self, session: str) -> RemoteSubmission:
        """Return the current state of a submission with its bonuses; RETURNED if Prolific does not have it."""
        asked_at = datetime.now(UTC)
        row = self.client.submission(session) if NAME.fullmatch(session) else None
        if row is None or row["study_id"] != self.panel.external_id:
            return RemoteSubmission("", session, Status.RETURNED, GONE, asked_at)
        return remote_submission(self.panel, row, row["participant"], asked_at)

    def execute(self, command: PlatformCommand) -> None:
        session = command.submission.session_id
        if not NAME.fullmatch(session):
            raise PlatformRefused("This submission has no Prolific id. Process it manually on Prolific.")
        if command.kind == Kind.APPROVE:
            self._approve(session)
        elif command.kind == Kind.REJECT:
            self._reject(command, session)
        elif command.kind == Kind.RETURN:
            self.client.request_return(session, command.message or "Other")
        elif command.kind == Kind.SCREEN_OUT:
            code = {"completion_code": self.panel.screen_out_code} if self.panel.screen_out_code else {}
            self.client.move_submission(session, "SCREEN_OUT", **code)
        else:
            self._pay_bonus(command, session)

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        sessions = [submission.session_id for submission in submissions]
        self.client.approve_all([session for session in sessions if NAME.fullmatch(session)])

    def _approve(self, session: str) -> None:
        try:
            self.client.move_submission(session, "APPROVE")
        except PlatformRefused:
            row = self.client.submission(session)
            if row is None or STATUSES.get(row["status"]) != Status.ACTIVE:
                raise
            sentence = "The participant has not entered the code on Prolific yet. Approval follows once they have."
            raise PlatformUnavailable(sentence) from None

    def _reject(self, command: PlatformCommand, session: str) -> None:
        """Reject the submission. Raises PlatformRefused if the message or category is invalid on Prolific."""
        if len(command.message) < SHORTEST_REJECTION:
            raise PlatformRefused(
                f"Rejection message too short: {len(command.message)} characters. Prolific requires at least "
                f"{SHORTEST_REJECTION}."
            )
        if command.category not in REJECTION_CATEGORIES:
            raise PlatformRefused(f"Invalid rejection category. Prolific accepts {', '.join(REJECTION_CATEGORIES)}.")
        self.client.move_submission(session, "REJECT", message=command.message, rejection_category=command.category)

    def _pay_bonus(self, command: PlatformCommand, session: str) -> None:
        """Set up the bonus, store its id, then pay it: an interruption before the last step pays nothing."""
        if not command.external_id:
            bonus = self.client.set_up_bonus(self.panel.external_id, session, command.amount)
            if bonus.get("amount") is not None and round(bonus["amount"]) != command.amount:
                raise PlatformRefused(
                    f"Not paid: Prolific set up a bonus of {bonus['amount']} cents instead of {command.amount}."
                )
            sending = PlatformCommand.objects.filter(state=PlatformCommand.State.UNCERTAIN)
            claim = sending.filter(pk=command.pk, n_tries=command.n_tries)
            if not claim.update(external_id=bonus["id"]):
                raise PlatformRefused("Not paid: this bonus was sent or settled in the meantime.")
            command.external_id = bonus["id"]
        self.client.pay_bonus(command.external_id)


def remote_submission(panel: Panel, row: dict[str, Any], participant: str, asked_at: datetime) -> RemoteSubmission:
    """Parse a submission from the list or from a single request, which also contains bonuses."""
    status = STATUSES.get(row["status"], Status.ACTIVE)
    paid = {Status.APPROVED: panel.reward, Status.SCREENED_OUT: panel.screen_out_reward}
    is_full = row["status"] != "PARTIALLY APPROVED"  # Prolific does not state the amount of a partial approval
    completed_at = parse_datetime(row.get("completed_at") or "")
    awaits_review = status == Status.COMPLETED and completed_at is not None
    bonuses = row.get("bonus_payments")
    return RemoteSubmission(
        participant=participant,
        session=row["id"],
        status=status,
        platform_status=row["status"],
        at=asked_at,
        approves_itself_at=completed_at + APPROVES_ITSELF_AFTER if awaits_review else None,
        paid_bonuses=None if bonuses is None else [round(amount) for amount in bonuses],
        reward_paid=paid.get(status) if is_full else None,
    )
