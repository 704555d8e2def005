"""OpenID identities of accounts, and project roles derived from groups at the provider.

A person is identified by the provider's `sub`, never by a name or email address.
"""

import logging
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import chain, count
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from kgharvest.accounts.projects import LastOwner, remove_member, set_role
from kgharvest.accounts.sign_in.models import GroupMembership, OpenIDIdentity
from kgharvest.accounts.sign_in.openid_connect import LoginRefused
from kgharvest.environment import ROLES
from kgharvest.events.recording import record
from kgharvest.models import Project

logger = logging.getLogger(__name__)

UNUSABLE_IN_NAMES = re.compile(r"[^\w.@+-]+")
LONGEST_NAME = 140


def account_of(claims: Mapping[str, Any], now: datetime) -> AbstractBaseUser:
    """Return the account of this identity; create it for a new identity. Raises LoginRefused if it is closed."""
    matching = OpenIDIdentity.objects.filter(issuer=claims["iss"], subject=claims["sub"])
    identity = matching.select_related("user").first()
    if identity is None:
        try:
            identity = _with_new_account(claims)
        except IntegrityError:  # a simultaneous login created the identity or took the username
            identity = matching.select_related("user").first() or _with_new_account(claims)
    if not identity.user.is_active:
        raise LoginRefused("This account is closed. Contact the operator of this installation.")
    matching.update(last_login_at=now)
    return identity.user


def link(user: AbstractBaseUser, claims: Mapping[str, Any]) -> None:
    """Link this identity to `user`. Raises LoginRefused if it belongs to another account."""
    with transaction.atomic():
        identity, is_new = OpenIDIdentity.objects.get_or_create(
            issuer=claims["iss"], subject=claims["sub"], defaults={"user": user}
        )
        if identity.user_id != user.pk:
            raise LoginRefused("That identity is linked to another account. Log in with it or link a different one.")
        if is_new:
            record("openid.linked", identity, user)


def unlink(user: AbstractBaseUser, identity: OpenIDIdentity) -> None:
    """Delete the link of `identity` to `user`. Raises LoginRefused if there is no other way to log in."""
    others = user.openid_identities.exclude(pk=identity.pk)
    if not user.has_usable_password() and not others.exists():
        raise LoginRefused("This is the only way to log in to this account. Set a password first.")
    with transaction.atomic():
        unlinked = OpenIDIdentity(pk=identity.pk)  # delete() clears the primary key
        identity.delete()
        record("openid.unlinked", unlinked, user)


@transaction.atomic
def _with_new_account(claims: Mapping[str, Any]) -> OpenIDIdentity:
    users = get_user_model().objects
    user = users.create_user(
        _free_name(claims),
        email=claims.get("email", "") if claims.get("email_verified") is True else "",
        first_name=str(claims.get("given_name", ""))[:150],
        last_name=str(claims.get("family_name", ""))[:150],
    )
    identity = OpenIDIdentity.objects.create(user=user, issuer=claims["iss"], subject=claims["sub"])
    record("openid.linked", identity, user)
    return identity


def _free_name(claims: Mapping[str, Any]) -> str:
    """Return the username suggested by the provider, with a number if it is taken."""
    suggested = str(claims.get("preferred_username") or claims.get("name") or "person")
    name = UNUSABLE_IN_NAMES.sub("-", suggested).strip("-")[:LONGEST_NAME] or "person"
    candidates = chain([name], (f"{name}-{number}" for number in count(2)))
    users = get_user_model().objects
    return next(candidate for candidate in candidates if not users.filter(username__iexact=candidate).exists())


def roles_of(groups: Collection[str]) -> dict[str, str]:
    """Return the highest role that settings.OPENID gives to members of `groups` in each project, by slug."""
    roles: dict[str, str] = {}
    for group, slug, role in settings.OPENID["groups"]:
        if group in groups:
            roles[slug] = min(role, roles.get(slug, role), key=ROLES.index)
    return roles


@transaction.atomic
def set_group_roles(user: AbstractBaseUser, claims: Mapping[str, Any]) -> None:
    """Apply the roles of the user's current groups at the provider. Roles assigned by owners do not change."""
    groups = claims.get(settings.OPENID["groups_claim"])
    group_roles = roles_of([groups] if isinstance(groups, str) else groups if isinstance(groups, list) else [])
    for member in user.memberships.filter(by_groups__isnull=False).exclude(project__slug__in=group_roles):
        try:
            remove_member(member.project, user)
        except LastOwner as refusal:
            logger.warning("Group membership kept: %s", refusal)
    by_owners = user.memberships.filter(by_groups__isnull=True).values("project")
    for project in Project.objects.filter(slug__in=group_roles).exclude(pk__in=by_owners):
        role = group_roles[project.slug]
        if user.memberships.filter(project=project, role=role).exists():
            continue
        try:
            member = set_role(project, user, role)
        except LastOwner as refusal:
            logger.warning("Group role kept: %s", refusal)
        else:
            GroupMembership.objects.get_or_create(member=member)
