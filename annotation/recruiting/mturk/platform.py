"""Amazon Mechanical Turk through boto3, one HIT a panel; in its sandbox, where nobody is paid, unless told otherwise.

Credentials come from AWS's usual environment alone. What MTurk says is passed on without the ids in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
)
from django.conf import settings
from django.utils import timezone

from annotation.models import Panel, PlatformCommand, Submission
from annotation.recruiting.mturk.hits import (
    annotation_of,
    assignment_seconds,
    cents,
    cost_of,
    dollars,
    lifetime_seconds,
    new_hit,
    request_token,
)
from annotation.recruiting.panels.identifiers import digest, encrypted
from annotation.recruiting.platforms import (
    Can,
    Cost,
    OutcomeUnknown,
    PlatformRefused,
    PlatformUnavailable,
    RemoteSubmission,
)

REGION = "us-east-1"  # the only one that MTurk is in
SANDBOX = "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
PRODUCTION = "https://mturk-requester.us-east-1.amazonaws.com"
TIMEOUT_S = 20
LARGEST_PAGE = 100
SHOWS_WITHIN = timedelta(minutes=5)  # what was submitted is in MTurk's lists by then
LATER = {"ThrottlingException", "Throttling", "RequestLimitExceeded", "TooManyRequestsException"}
NOT_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)
STATUSES = {  # of MTurk's assignments, with the time that says since when
    "Submitted": (Submission.Status.COMPLETED, "SubmitTime"),
    "Approved": (Submission.Status.APPROVED, "ApprovalTime"),
    "Rejected": (Submission.Status.REJECTED, "RejectionTime"),
}
ID = re.compile(r"\b(?=\w*\d)[A-Z0-9]{10,64}\b")


@cache
def client_at(endpoint: str) -> Any:
    """Return a client for all threads; making one reads a megabyte of descriptions."""
    # Whoever calls tries again, later: what is tried again at once would only be throttled once more.
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S)
    return boto3.session.Session().client("mturk", region_name=REGION, endpoint_url=endpoint, config=config)


class MTurk:
    """See RecruitingPlatform. MTurk neither asks people to return nor screens them out."""

    can = frozenset(
        {Can.PUBLISH, Can.PAUSE, Can.STOP, Can.ADD_PLACES, Can.RECONCILE, Can.APPROVE, Can.REJECT, Can.BONUS}
    )

    def __init__(self, panel: Panel):
        self.panel = panel
        self._client = client_at(settings.MTURK_ENDPOINT or (SANDBOX if panel.is_sandbox else PRODUCTION))

    # -- the study -----------------------------------------------------------------------------------------------------

    def cost(self) -> Cost:
        return cost_of(self.panel)

    def balance(self) -> int:
        """Return what the account has to spend, in cents; the sandbox's is made up."""
        return cents(self._call("get_account_balance")["AvailableBalance"])

    def publish(self) -> str:
        if self.panel.external_id:
            self.resume()
            return self.panel.external_id
        hit = new_hit(self.panel)
        if known := self._hit_made_before():
            return known
        if not self.panel.is_sandbox and self.balance() < self.cost().total:
            raise PlatformRefused(
                f"The MTurk account has USD {dollars(self.balance())}, and this panel costs "
                f"USD {dollars(self.cost().total)}, fees included; prepay the difference first."
            )
        return self._call("create_hit", **hit)["HIT"]["HITId"]

    def _hit_made_before(self) -> str | None:
        """Return the HIT of this panel where an earlier CreateHIT was done and its answer lost."""
        ours = annotation_of(self.panel)
        hit = next((hit for hit in self._pages("list_hits", "HITs") if hit.get("RequesterAnnotation") == ours), None)
        if hit is not None and cents(hit["Reward"]) != self.panel.reward:  # the panel was edited since
            raise PlatformRefused(
                f"This panel's HIT is published at MTurk with a reward of USD {hit['Reward']}; give the panel that "
                "reward, or expire the HIT there and make another panel."
            )
        return hit["HITId"] if hit else None

    def pause(self) -> None:
        """Take nobody new; whoever has accepted an assignment may finish it."""
        self._call("update_expiration_for_hit", HITId=self.panel.external_id, ExpireAt=datetime(2001, 1, 1, tzinfo=UTC))

    def stop(self) -> None:
        self.pause()

    def resume(self) -> None:
        """Take people again, and as many as the panel now has places."""
        hit = self._call("get_hit", HITId=self.panel.external_id)["HIT"]
        if (n_more := self.panel.places - hit["MaxAssignments"]) > 0:
            self._call(
                "create_additional_assignments_for_hit",
                HITId=self.panel.external_id,
                NumberOfAdditionalAssignments=n_more,
                UniqueRequestToken=request_token(f"places.{self.panel.pk}", self.panel.places),
            )
        until = timezone.now() + timedelta(seconds=lifetime_seconds(self.panel))
        self._call("update_expiration_for_hit", HITId=self.panel.external_id, ExpireAt=until)

    # -- who took part -------------------------------------------------------------------------------------------------

    def submissions(self) -> Iterator[RemoteSubmission]:
        """Yield what was submitted, and what was accepted here and is past its time without having been."""
        overdue = timezone.now() - timedelta(seconds=assignment_seconds(self.panel)) - SHOWS_WITHIN
        abandoned = list(self.panel.submissions.filter(status=Submission.Status.ACTIVE, entered_at__lt=overdue))
        bonuses = self._bonuses()
        submitted = set()
        for assignment in self._pages("list_assignments_for_hit", "Assignments", HITId=self.panel.external_id):
            session = digest(assignment["AssignmentId"])
            submitted.add(session)
            self._confirm(assignment, session)
            yield self._remote(assignment, bonuses.get(session))
        for submission in abandoned:
            submission.refresh_from_db()  # _confirm may have given it another assignment
            if submission.session_digest not in submitted:
                ended_at = submission.entered_at + timedelta(seconds=assignment_seconds(self.panel))
                ids = submission.participant_id, submission.session_id
                yield RemoteSubmission(*ids, Submission.Status.TIMED_OUT, "Abandoned", ended_at)

    def _bonuses(self) -> dict[str, list[int]]:
        """Return the bonuses paid, by the digest of their assignment: where there are any, or some may be under way."""
        asked = PlatformCommand.objects.unfinished().filter(submission__panel=self.panel)
        bonuses: dict[str, list[int]] = {
            session: []
            for session in asked.filter(kind=PlatformCommand.Kind.BONUS).values_list(
                "submission__session_digest", flat=True
            )
        }
        for payment in self._pages("list_bonus_payments", "BonusPayments", HITId=self.panel.external_id):
            bonuses.setdefault(digest(payment["AssignmentId"]), []).append(cents(payment["BonusAmount"]))
        return bonuses

    def _confirm(self, assignment: dict[str, Any], session: str) -> None:
        """Give a person's submission the assignment that they submitted: who returns a HIT and accepts it again has
        another one than they came with, and what the address of our page said may have been made up."""
        if not self.panel.submissions.filter(session_digest=session).exists():
            theirs = self.panel.submissions.filter(participant_digest=digest(assignment["WorkerId"]))
            theirs.filter(status=Submission.Status.ACTIVE).update(
                session=encrypted(assignment["AssignmentId"]), session_digest=session
            )

    def _remote(self, assignment: dict[str, Any], bonuses: list[int] | None) -> RemoteSubmission:
        status, since = STATUSES[assignment["AssignmentStatus"]]
        return RemoteSubmission(
            participant=assignment["WorkerId"],
            session=assignment["AssignmentId"],
            status=status,
            platform_status=assignment["AssignmentStatus"],
            at=assignment.get(since),
            approves_itself_at=assignment.get("AutoApprovalTime"),
            paid_bonuses=bonuses,
            reward_paid=self.panel.reward if status == Submission.Status.APPROVED else None,
        )

    # -- commands ------------------------------------------------------------------------------------------------------

    def execute(self, command: PlatformCommand) -> None:
        does = {
            PlatformCommand.Kind.APPROVE: self._approve,
            PlatformCommand.Kind.REJECT: self._reject,
            PlatformCommand.Kind.BONUS: self._send_bonus,
        }.get(command.kind)
        if does is None:
            raise PlatformRefused("MTurk neither asks people to return an assignment nor screens them out; approve it.")
        does(command, self._assignment_of(command.submission))

    def _assignment_of(self, submission: Submission) -> dict[str, Any]:
        """Return what MTurk has under the submission's assignment. Raises PlatformRefused if it is somebody else's."""
        assignment = self._call("get_assignment", AssignmentId=submission.session_id)["Assignment"]
        if assignment["WorkerId"] != submission.participant_id:
            raise PlatformRefused("MTurk says that this assignment is somebody else's; whoever came here made it up.")
        return assignment

    def _approve(self, command: PlatformCommand, assignment: dict[str, Any]) -> None:
        status = assignment["AssignmentStatus"]
        if status == "Approved":
            return
        if status == "Rejected":
            raise PlatformRefused("This assignment was rejected; take that back on MTurk's pages, and we find it.")
        feedback = {"RequesterFeedback": command.message} if command.message else {}
        self._call("approve_assignment", AssignmentId=assignment["AssignmentId"], **feedback)

    def _reject(self, command: PlatformCommand, assignment: dict[str, Any]) -> None:
        if assignment["AssignmentStatus"] == "Rejected":
            return
        if assignment["AssignmentStatus"] == "Approved":
            raise PlatformRefused("This assignment is approved and paid; it cannot be rejected any more.")
        if not command.message.strip():
            raise PlatformRefused("Tell the person why their work is rejected.")
        self._call(
            "reject_assignment", AssignmentId=assignment["AssignmentId"], RequesterFeedback=command.message.strip()
        )

    def _send_bonus(self, command: PlatformCommand, assignment: dict[str, Any]) -> None:
        """Pay a bonus once. MTurk refuses the same token for a day; after that the reference in its reason tells."""
        token = request_token("bonus", command.pk)
        reason = f"{command.message.strip() or 'Thank you for your work.'} (reference {token[:12]})"
        if self._is_paid(assignment, reason):
            return
        try:
            self._call(
                "send_bonus",
                is_payment=True,
                WorkerId=assignment["WorkerId"],
                AssignmentId=assignment["AssignmentId"],
                BonusAmount=dollars(command.amount),
                Reason=reason,
                UniqueRequestToken=token,
            )
        except PlatformRefused:
            if not self._is_paid(assignment, reason):  # what it refuses may be the token, used a moment ago
                raise

    def _is_paid(self, assignment: dict[str, Any], reason: str) -> bool:
        payments = self._pages("list_bonus_payments", "BonusPayments", AssignmentId=assignment["AssignmentId"])
        return any(payment["Reason"] == reason for payment in payments)

    # -- the wire ------------------------------------------------------------------------------------------------------

    def _pages(self, operation: str, rows: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        more: dict[str, str] = {}
        while True:
            page = self._call(operation, **parameters, MaxResults=LARGEST_PAGE, **more)
            yield from page.get(rows, [])
            if not page.get("NextToken"):
                return
            more = {"NextToken": page["NextToken"]}

    def _call(self, operation: str, *, is_payment: bool = False, **parameters: Any) -> dict[str, Any]:
        """Return the answer of MTurk. Raises PlatformRefused, PlatformUnavailable, OutcomeUnknown (payments only)."""
        try:
            return getattr(self._client, operation)(**parameters)
        except (NoCredentialsError, PartialCredentialsError):
            raise PlatformRefused(
                "This server has no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from None
        except ParamValidationError as error:
            raise PlatformRefused(f"MTurk would not take this: {_without_ids(error)}") from None
        except ClientError as error:
            raise _told(error, is_payment) from None
        except NOT_SENT:
            raise PlatformUnavailable("MTurk cannot be reached; this will be tried again.") from None
        except (HTTPClientError, BotoCoreError):
            raise _lost(is_payment) from None


def _told(error: ClientError, is_payment: bool) -> Exception:
    """Return what MTurk's refusal is for us: "later", or no, or after its own failure perhaps a payment."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if error.response["Error"]["Code"] in LATER or status == 429:
        return PlatformUnavailable("MTurk asks to slow down; this will be tried again.")
    if status >= 500:
        return _lost(is_payment)
    reason = error.response["Error"].get("Message") or error.response["Error"]["Code"]
    return PlatformRefused(f"MTurk refused: {_without_ids(reason)}")


def _lost(is_payment: bool) -> Exception:
    if is_payment:
        return OutcomeUnknown("A bonus was sent to MTurk and no answer came; reconciling finds out if it was paid.")
    return PlatformUnavailable("MTurk did not answer; this will be tried again.")


def _without_ids(text: object) -> str:
    return ID.sub("[id]", " ".join(str(text).split()))[:400]
