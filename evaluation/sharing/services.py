"""Links by which reviewers and co-authors read a frozen report without an account: made, found, revoked."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.hashers import check_password, make_password
from django.db import transaction

from evaluation.models import Report, ReportShare
from kgharvest.access import Action, check_may
from kgharvest.accounts.throttle import TooManyAttempts, check_attempt, count_attempt, forget_attempts, is_exhausted
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.names import check_name

LONGEST_DAYS = 366
SHORTEST_PASSWORD, LONGEST_PASSWORD = 8, 128
MOST_SHARES = 50  # open ones of a report
TOO_MANY = "Too many passwords were tried on this link; wait a while, or ask for a new link."


class WrongPassword(DomainError):
    """Not the password of the link."""


class NewShare(NamedTuple):
    """A link just made; `secret` is its last part, shown now and never again."""

    share: ReportShare
    secret: str


@transaction.atomic
def share_report(report: Report, name: str, days: int, now: datetime, *, password: str = "", by=None) -> NewShare:
    """Make a link to the report that is good for so many days. name: for whom it is. Raises NotAllowed, BadShare.

    Raises BadName.
    """
    check_may(by, Action.WORK, report.project)
    check_name(name, ReportShare._meta.get_field("name").max_length, "link")
    if not 1 <= days <= LONGEST_DAYS:
        raise DomainError("BadShare", f"A link is good for 1 to {LONGEST_DAYS} days; choose a number between.")
    if password and not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise DomainError(
            "BadShare", f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters; or leave it out."
        )
    if report.shares.usable(now).count() >= MOST_SHARES:
        raise DomainError("BadShare", f"There are {MOST_SHARES} open links to this report; revoke some first.")
    secret = secrets.token_urlsafe(32)
    share = report.shares.create(
        name=name,
        token_hash=_hash(secret),
        password=make_password(password) if password else "",
        expires_at=now + timedelta(days=days),
        created_by=by,
    )
    record("report.shared", report, by, round=report.round, report=report.pk, days=days)
    return NewShare(share, secret)


@transaction.atomic
def revoke_share(share: ReportShare, now: datetime, by=None) -> None:
    """Let the link serve no more. Twice is once. Raises NotAllowed."""
    report = share.report
    check_may(by, Action.WORK, report.project)
    if ReportShare.objects.filter(pk=share.pk, revoked_at=None).update(revoked_at=now):
        record("report.share_revoked", report, by, round=report.round, report=report.pk)


def find_share(secret: str, now: datetime) -> ReportShare | None:
    """Return the usable link of this secret; None for a wrong, an expired and a revoked one alike."""
    shares = ReportShare.objects.usable(now).select_related("report__round")
    return shares.defer("report__document", "report__abridged").filter(token_hash=_hash(secret)).first()


def open_share(share: ReportShare, password: str, network: str | None, now: datetime) -> None:
    """Let somebody in. network: where they are. Raises WrongPassword, TooManyAttempts."""
    if not share.password:
        return
    who = f"{share.pk}:{network}"
    check_attempt("share_passwords", who, now, TOO_MANY)
    if is_exhausted("share_passwords_everywhere", str(share.pk), now):
        raise TooManyAttempts(TOO_MANY)
    if not check_password(password[:LONGEST_PASSWORD], share.password):
        count_attempt("share_passwords_everywhere", str(share.pk), now)
        raise WrongPassword("This is not the password of the link.")
    forget_attempts("share_passwords", who)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
