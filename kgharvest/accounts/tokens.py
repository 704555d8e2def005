"""API tokens: create and revoke.

A secret is `kgh_` followed by 43 random characters. Only its SHA-256 is stored: random secrets need no slow hash, and a
digest can be looked up in an index.
"""

import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from kgharvest.access import Action, check_may
from kgharvest.accounts.models import ApiTokenQuerySet
from kgharvest.audit.tables import AuditedTable, sha256
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import ApiToken, Project
from kgharvest.names import check_name

MARK = "kgh_"
LONGEST_DAYS = 366
MOST_TOKENS = 100  # unrevoked, unexpired tokens of one user

Scope = ApiToken.Scope
TOKENS = AuditedTable(ApiToken, "user_id", "scope", "digest", "project_id", "expires_at", "revoked_at", is_mutable=True)


class NewToken(NamedTuple):
    """A new token with its secret, which is shown only once."""

    token: ApiToken
    secret: str


@transaction.atomic
def create_token(
    user: AbstractBaseUser, name: str, scope: str, days: int, now: datetime, *, project: Project | None = None
) -> NewToken:
    """Create a token that is valid for `days` days.

    project: the only project that the token can access. Raises BadToken or BadName.
    """
    check_name(name, ApiToken._meta.get_field("name").max_length, "token")
    if scope not in Scope.values:
        raise DomainError("BadToken", f"Unknown scope {scope!r:.40}. Choose one of {', '.join(Scope.values)}.")
    if not 1 <= days <= LONGEST_DAYS:
        raise DomainError("BadToken", f"Invalid validity: {days} days. Choose 1 to {LONGEST_DAYS} days.")
    if project and not Project.objects.visible_to(user).filter(pk=project.pk).exists():
        raise DomainError(
            "BadToken", f"{user.get_username()} is not a member of the project {project}. Choose another project."
        )
    if user.api_tokens.valid(now).count() >= MOST_TOKENS:
        raise DomainError(
            "BadToken", f"{user.get_username()} already has {MOST_TOKENS} valid tokens. Revoke unused tokens first."
        )
    secret = MARK + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        prefix=secret[: ApiToken._meta.get_field("prefix").max_length],
        digest=sha256(secret),
        scope=scope,
        project=project,
        expires_at=now + timedelta(days=days),
    )
    record("token.made", token, user, scope=scope, days=days)
    return NewToken(token, secret)


@transaction.atomic
def revoke_token(token: ApiToken, now: datetime, by=None) -> int:
    """Revoke a token immediately; idempotent. Returns the number of revoked tokens (0 or 1).

    Users may revoke their tokens, and owners of a project the tokens bound to it. Raises NotAllowed.
    """
    if by != token.user:
        check_may(by, Action.MANAGE, token.project)
    n_revoked = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now)
    if n_revoked:
        record("token.revoked", token, by, token.project_id)
    return n_revoked


@transaction.atomic
def revoke_tokens(tokens: ApiTokenQuerySet, now: datetime, by=None) -> int:
    """Revoke the valid ones of `tokens`, and return their number. Raises NotAllowed."""
    return sum(revoke_token(token, now, by) for token in tokens.valid(now).select_related("user", "project"))
