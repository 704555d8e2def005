"""Prolific as a recruiting platform: studies, submissions and pay of one panel."""

from __future__ import annotations

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

APPROVES_ITSELF_AFTER = timedelta(days=21)  # of waiting for review
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
STUDY_STATUSES = {  # a study whose places are taken awaits review: nobody new comes, who is at work goes on
    "ACTIVE": Panel.Status.PUBLISHED,
    "PUBLISHING": Panel.Status.PUBLISHED,
    "AWAITING REVIEW": Panel.Status.PUBLISHED,
    "PAUSED": Panel.Status.PAUSED,
    "COMPLETED": Panel.Status.STOPPED,
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")  # of a submission; a link that was made up may have anything
SHOWS_WITHIN = timedelta(minutes=1)  # who has come to us is in Prolific's API by then, wherever it is asked
GONE = "GONE"  # what we write of a submission that Prolific does not know


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
        """Return what the places cost by Prolific's calculator. Paid screen-outs and bonuses come on top."""
        rewards = self.panel.reward * self.panel.places
        return Cost(rewards, self.client.cost(self.panel.reward, self.panel.places) - rewards)

    def publish(self) -> str:
        """Make the study or take up the draft that there is, and let people in; return its id. Twice is once."""
        document = study_document(self.panel)
        study = self._find() or self.client.create_study(document)
        if study["status"] == "UNPUBLISHED":
            self.client.update_study(study["id"], document)
            self._transition(study, "PUBLISH")
            return study["id"]
        # The study can be older than the last edit of the panel if nobody heard that it was published.
        reward = self.client.study(study["id"])["reward"]
        if reward != self.panel.reward:
            raise PlatformRefused(
                f"This panel's study is published at Prolific with a reward of {money(reward, self.panel.currency)}; "
                "give the panel that reward, or stop the study there and make another panel."
            )
        if study["status"] == "PAUSED":
            self._transition(study, "START")
        elif study["status"] == "COMPLETED":
            raise PlatformRefused("This study has ended at Prolific; make another panel for more people.")
        return study["id"]

    def _find(self) -> dict[str, Any] | None:
        """Return the panel's study, also where nobody heard that it was made."""
        if self.panel.external_id:
            return self.client.study(self.panel.external_id)
        ours = internal_name(self.panel)
        return next((study for study in self.client.studies() if study.get("internal_name") == ours), None)

    def pause(self) -> None:
        self._move("PAUSE", "ACTIVE")

    def resume(self) -> None:
        check_ready(self.panel)
        self._move("START", "PAUSED")

    def stop(self) -> None:
        self._move("STOP", "ACTIVE", "PAUSED")

    def _move(self, action: str, *from_statuses: str) -> None:
        """Let the study go on to another status, if it has one of these; else it was done before."""
        study = self.client.study(self.panel.external_id)
        if study["status"] in from_statuses:
            self._transition(study, action)

    def _transition(self, study: dict[str, Any], action: str) -> None:
        """Move a study. Where the answer to a try was lost, the next one is refused, and it has moved all the same."""
        try:
            self.client.move_study(study["id"], action)
        except PlatformRefused:
            if self.client.study(study["id"])["status"] == study["status"]:
                raise

    def status(self) -> str | None:
        return STUDY_STATUSES.get(self.client.study(self.panel.external_id)["status"])

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield every submission of the study; those whose payments are in doubt with their bonuses.

        Who holds a place here by a link that was made up is unknown there: that place is given back.
        """
        in_doubt = self.panel.submissions.filter(
            commands__kind=Kind.BONUS, commands__state=PlatformCommand.State.UNCERTAIN
        )
        asked_singly = {submission.session_id for submission in in_doubt}
        listed = set()
        for row, asked_at in self.client.submissions(self.panel.external_id):
            listed.add(row["id"])
            if row["id"] not in asked_singly:
                yield remote_submission(self.panel, row, row["participant_id"], asked_at)
        at_work = self.panel.submissions.filter(
            status__in=[Status.ACTIVE, Status.COMPLETED], entered_at__lt=datetime.now(UTC) - SHOWS_WITHIN
        )
        unlisted = {submission.session_id: submission for submission in at_work}.keys() - listed
        for session in sorted(asked_singly | unlisted - {""}):
            yield self.submission(session)

    def submission(self, session: str) -> RemoteSubmission:
        """Return one submission with its bonuses, as Prolific has it now; RETURNED where it knows none."""
        asked_at = datetime.now(UTC)
        row = self.client.submission(session) if NAME.fullmatch(session) else None
        if row is None or row["study_id"] != self.panel.external_id:
            return RemoteSubmission("", session, Status.RETURNED, GONE, asked_at)
        return remote_submission(self.panel, row, row["participant"], asked_at)

    def execute(self, command: PlatformCommand) -> None:
        session = command.submission.session_id
        if not NAME.fullmatch(session):
            raise PlatformRefused("This submission came without Prolific's id for it, so it cannot be named there.")
        EXECUTE[Kind(command.kind)](self, command, session)

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        sessions = [submission.session_id for submission in submissions]
        self.client.approve_all([session for session in sessions if NAME.fullmatch(session)])

    def _approve(self, command: PlatformCommand, session: str) -> None:
        try:
            self.client.move_submission(session, "APPROVE")
        except PlatformRefused:
            row = self.client.submission(session)
            if row is None or STATUSES.get(row["status"]) != Status.ACTIVE:
                raise
            sentence = "This person has not entered the code at Prolific yet; they are approved once they have."
            raise PlatformUnavailable(sentence) from None

    def _reject(self, command: PlatformCommand, session: str) -> None:
        """Refuse what Prolific would refuse before it is sent."""
        if len(command.message) < SHORTEST_REJECTION:
            raise PlatformRefused(
                f"Prolific takes a rejection with a message of {SHORTEST_REJECTION} characters or more; this one has "
                f"{len(command.message)}."
            )
        if command.category not in REJECTION_CATEGORIES:
            raise PlatformRefused(f"Prolific knows these categories of rejection: {', '.join(REJECTION_CATEGORIES)}.")
        self.client.move_submission(session, "REJECT", message=command.message, rejection_category=command.category)

    def _request_return(self, command: PlatformCommand, session: str) -> None:
        self.client.request_return(session, command.message or "Other")

    def _screen_out(self, command: PlatformCommand, session: str) -> None:
        code = {"completion_code": self.panel.screen_out_code} if self.panel.screen_out_code else {}
        self.client.move_submission(session, "SCREEN_OUT", **code)

    def _pay_bonus(self, command: PlatformCommand, session: str) -> None:
        """Set a bonus up, store its id, then pay it: whoever dies between has paid nothing."""
        if not command.external_id:
            bonus = self.client.set_up_bonus(self.panel.external_id, session, command.amount)
            if bonus.get("amount") is not None and round(bonus["amount"]) != command.amount:
                raise PlatformRefused(
                    f"Prolific set up a bonus of {bonus['amount']} cents for one of {command.amount}; it is not paid."
                )
            being_sent = PlatformCommand.objects.filter(state=PlatformCommand.State.UNCERTAIN)
            mine = being_sent.filter(pk=command.pk, n_tries=command.n_tries)
            if not mine.update(external_id=bonus["id"]):
                raise PlatformRefused("Somebody has sent or settled this bonus meanwhile; it is not paid from here.")
            command.external_id = bonus["id"]
        self.client.pay_bonus(command.external_id)


EXECUTE = {
    Kind.APPROVE: Prolific._approve,
    Kind.REJECT: Prolific._reject,
    Kind.RETURN: Prolific._request_return,
    Kind.SCREEN_OUT: Prolific._screen_out,
    Kind.BONUS: Prolific._pay_bonus,
}


def remote_submission(panel: Panel, row: dict[str, Any], participant: str, asked_at: datetime) -> RemoteSubmission:
    """Read a row of the list of submissions, or a submission alone, which has its bonuses."""
    status = STATUSES.get(row["status"], Status.ACTIVE)
    paid = {Status.APPROVED: panel.reward, Status.SCREENED_OUT: panel.screen_out_reward}
    is_whole = row["status"] != "PARTIALLY APPROVED"  # of which Prolific does not say how much that was
    completed_at = parse_datetime(row.get("completed_at") or "")
    waits = status == Status.COMPLETED and completed_at is not None
    bonuses = row.get("bonus_payments")
    return RemoteSubmission(
        participant=participant,
        session=row["id"],
        status=status,
        platform_status=row["status"],
        at=asked_at,
        approves_itself_at=completed_at + APPROVES_ITSELF_AFTER if waits else None,
        paid_bonuses=None if bonuses is None else [round(amount) for amount in bonuses],
        reward_paid=paid.get(status) if is_whole else None,
    )
