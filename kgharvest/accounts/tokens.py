"""Tokens by which programs use the API: made, found by what a request carries, revoked.

A token is 43 random characters after `kgh_`; the database has its SHA-256 alone. Nobody can guess one, so no slow hash
is needed, and it is found by one look into an index.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q

from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import ApiToken, Project
from kgharvest.names import check_name

MARK = "kgh_"
USE_NOTED_EVERY = timedelta(minutes=1)
LONGEST_DAYS = 366
MOST_TOKENS = 100  # valid ones of one user

Scope = ApiToken.Scope


class NewToken(NamedTuple):
    """A token just made; `secret` is what programs send, shown now and never again."""

    token: ApiToken
    secret: str


@transaction.atomic
def create_token(
    user: AbstractBaseUser, name: str, scope: str, days: int, now: datetime, *, project: Project | None = None
) -> NewToken:
    """Make a token that is valid for so many days. project: the only one that it is to reach.

    Raises BadToken or BadName.
    """
    check_name(name, ApiToken._meta.get_field("name").max_length, "token")
    if scope not in Scope.values:
        raise DomainError("BadToken", f"There is no scope {scope!r:.40}; choose one of {', '.join(Scope.values)}.")
    if not 1 <= days <= LONGEST_DAYS:
        raise DomainError("BadToken", f"A token is valid for 1 to {LONGEST_DAYS} days; choose a number between.")
    if project and not Project.objects.visible_to(user).filter(pk=project.pk).exists():
        raise DomainError(
            "BadToken", f"{user.get_username()} is no member of the project {project}; choose another one."
        )
    if ApiToken.objects.valid(now).filter(user=user).count() >= MOST_TOKENS:
        raise DomainError(
            "BadToken", f"There are {MOST_TOKENS} valid tokens of {user.get_username()}; revoke some first."
        )
    secret = MARK + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        prefix=secret[: ApiToken._meta.get_field("prefix").max_length],
        digest=digest_of(secret),
        scope=scope,
        project=project,
        expires_at=now + timedelta(days=days),
    )
    record("token.made", token, user, scope=scope, days=days)
    return NewToken(token, secret)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def find_token(secret: str, now: datetime) -> ApiToken | None:
    """Return the valid token that is `secret`, with its user, or None; note that it was used.

    The user knows to which project the token is bound: what `kgharvest.access` allows goes by that.
    """
    token = ApiToken.objects.valid(now).select_related("user").filter(digest=digest_of(secret)).first()
    if token:
        token.user.bound_to = token.project_id
        if token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY:
            is_due = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
            ApiToken.objects.filter(is_due, pk=token.pk).update(last_used_at=now)
    return token


@transaction.atomic
def revoke_token(token: ApiToken, now: datetime) -> None:
    """Close the door to whoever has the token, at once. Revoking it again changes nothing."""
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        record("token.revoked", token, token.user)
