"""Share links, with which reviewers and co-authors read a frozen report without an account."""

import secrets
from datetime import datetime, timedelta

from django.contrib.auth.hashers import check_password, make_password
from django.db import transaction

from evaluation.models import Report, ReportShare
from kgharvest.access import Action, check_may
from kgharvest.accounts.throttle import TooManyAttempts, check_attempt, count_attempt, forget_attempts, is_exhausted
from kgharvest.audit.tables import sha256
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.names import check_name

LONGEST_DAYS = 366
SHORTEST_PASSWORD, LONGEST_PASSWORD = 8, 128
MOST_SHARES = 50  # maximum number of active links per report
TOO_MANY = "Too many incorrect passwords. Wait a while, or ask for a new link."


class WrongPassword(DomainError):
    """Incorrect password for a link."""


@transaction.atomic
def share_report(
    report: Report, name: str, days: int, now: datetime, *, password: str = "", with_statements: bool = False, by=None
) -> ReportShare:
    """Create a link that expires after `days`. name: the recipient. Raises NotAllowed, BadShare, or BadName.

    The attribute `secret` of the result is the last part of the link's URL and is not stored.
    """
    check_may(by, Action.WORK, report.project)
    check_name(name, ReportShare._meta.get_field("name").max_length, "link")
    if not 1 <= days <= LONGEST_DAYS:
        raise DomainError("BadShare", f"Invalid period: {days} days. Choose 1 to {LONGEST_DAYS} days.")
    if password and not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise DomainError(
            "BadShare",
            f"The password must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters. Change or omit it.",
        )
    if report.shares.usable(now).count() >= MOST_SHARES:
        raise DomainError("BadShare", f"This report has {MOST_SHARES} active links. Revoke some first.")
    secret = secrets.token_urlsafe(32)
    share = report.shares.create(
        name=name,
        token_hash=sha256(secret),
        password=make_password(password) if password else "",
        with_statements=with_statements,
        expires_at=now + timedelta(days=days),
        created_by=by,
    )
    record("report.shared", report, by, round=report.round, report=report.pk, days=days)
    share.secret = secret
    return share


@transaction.atomic
def revoke_share(share: ReportShare, now: datetime, by=None) -> None:
    """Revoke a link. Idempotent. Raises NotAllowed."""
    report = share.report
    check_may(by, Action.WORK, report.project)
    if ReportShare.objects.filter(pk=share.pk, revoked_at=None).update(revoked_at=now):
        record("report.share_revoked", report, by, round=report.round, report=report.pk)


def find_share(secret: str, now: datetime) -> ReportShare | None:
    """Return the active link with this secret, or None if the secret is wrong or the link is expired or revoked."""
    shares = ReportShare.objects.usable(now).select_related("report__round")
    return shares.defer("report__document", "report__abridged").filter(token_hash=sha256(secret)).first()


def open_share(share: ReportShare, password: str, network: str | None, now: datetime) -> None:
    """Check the password of a link. network: the client's network. Raises WrongPassword or TooManyAttempts."""
    if not share.password:
        return
    who = f"{share.pk}:{network}"
    check_attempt("share_passwords", who, now, TOO_MANY)
    if is_exhausted("share_passwords_everywhere", str(share.pk), now):
        raise TooManyAttempts(TOO_MANY)
    if not check_password(password[:LONGEST_PASSWORD], share.password):
        count_attempt("share_passwords_everywhere", str(share.pk), now)
        raise WrongPassword("Incorrect password.")
    forget_attempts("share_passwords", who)
