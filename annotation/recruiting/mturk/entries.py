"""Whom MTurk says it sends, and the signed token that stands for them in forms, as a frame of its pages has no cookies.

Ids in addresses can be made up: they let somebody judge, and nothing is owed before MTurk's API has confirmed them
(MTurk.submissions).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from django.core import signing
from django.http import QueryDict

from annotation.models import Panel
from annotation.recruiting.mturk.hits import assignment_seconds
from kgharvest.errors import DomainError

SALT = "annotation.recruiting.mturk.entry"
NOT_ACCEPTED = "ASSIGNMENT_ID_NOT_AVAILABLE"  # the assignment of a preview
SUBMIT_TO = {True: "https://workersandbox.mturk.com", False: "https://www.mturk.com"}  # by Panel.is_sandbox
# What may show our pages in a frame, and where the form at the end may lead.
HOSTS = ["https://www.mturk.com", "https://worker.mturk.com", "https://workersandbox.mturk.com"]
ASSIGNMENT = re.compile(r"[A-Z0-9]{1,64}")
WORKER = re.compile(r"A[A-Z0-9]{1,63}")
LOADING_S = 300  # between accepting and the token's making


class BadEntry(DomainError):
    """An address or a form that MTurk did not make, or that is too old."""


@dataclass(frozen=True)
class Entry:
    """Somebody at work on an assignment of a panel. submit_to: where MTurk wants the form at the end."""

    panel: int
    assignment: str
    worker: str
    submit_to: str

    @property
    def token(self) -> str:
        """The entry, signed (HMAC-SHA256) with its time; whoever reads it learns the ids that they came with."""
        return signing.dumps(asdict(self), salt=SALT)


def is_preview(query: QueryDict) -> bool:
    return (query.get("assignmentId") or NOT_ACCEPTED) == NOT_ACCEPTED


def entry_of(panel: Panel, query: QueryDict) -> Entry:
    """Return what the address of the page says, which MTurk has written. Raises BadEntry."""
    assignment, worker = query.get("assignmentId", ""), query.get("workerId", "")
    if not (ASSIGNMENT.fullmatch(assignment) and WORKER.fullmatch(worker)):
        raise BadEntry("This address is not complete; open the HIT on Mechanical Turk once more.")
    submit_to = query.get("turkSubmitTo", SUBMIT_TO[panel.is_sandbox]).rstrip("/")
    if submit_to != SUBMIT_TO[panel.is_sandbox]:
        raise BadEntry("This page was opened by another site than Mechanical Turk; open the HIT there once more.")
    return Entry(panel.pk, assignment, worker, submit_to)


def entry_of_token(panel: Panel, token: str) -> Entry:
    """Return the entry that was signed for this panel. Raises BadEntry."""
    try:
        entry = Entry(**signing.loads(token, salt=SALT, max_age=assignment_seconds(panel) + LOADING_S))
    except signing.SignatureExpired:
        raise BadEntry("The time for this HIT is over; what you answered is stored.") from None
    except signing.BadSignature:
        entry = None
    if entry is None or entry.panel != panel.pk:
        raise BadEntry("This form is not complete; reload the page.")
    return entry
