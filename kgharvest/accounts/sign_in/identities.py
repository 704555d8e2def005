"""Accounts of people at an OpenID provider, and the project roles that their groups there give them.

The provider's `sub` identifies a person, never a name or an email address.
"""

from __future__ import annotations

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
    """Return the account of this identity, a new one for a new identity. Raises LoginRefused if it is closed."""
    known = OpenIDIdentity.objects.filter(issuer=claims["iss"], subject=claims["sub"])
    identity = known.select_related("user").first()
    if identity is None:
        try:
            identity = _with_new_account(claims)
        except IntegrityError:  # of two log-ins at the same moment the other was first, or took the name
            identity = known.select_related("user").first() or _with_new_account(claims)
    if not identity.user.is_active:
        raise LoginRefused("This account is closed; ask who runs this installation.")
    known.update(last_login_at=now)
    return identity.user


def link(user: AbstractBaseUser, claims: Mapping[str, Any]) -> None:
    """Let this identity log in as `user`. Raises LoginRefused if it belongs to another account."""
    with transaction.atomic():
        identity, is_new = OpenIDIdentity.objects.get_or_create(
            issuer=claims["iss"], subject=claims["sub"], defaults={"user": user}
        )
        if identity.user_id != user.pk:
            raise LoginRefused("That account logs in as somebody else here; log in with it, or use another.")
        if is_new:
            record("openid.linked", identity, user)


def unlink(user: AbstractBaseUser, identity: OpenIDIdentity) -> None:
    """Delete the link of `identity` to `user`. Raises LoginRefused if there is no other way to log in."""
    others = user.openid_identities.exclude(pk=identity.pk)
    if not user.has_usable_password() and not others.exists():
        raise LoginRefused("There is no other way to log in to this account; set a password first.")
    with transaction.atomic():
        unlinked = OpenIDIdentity(pk=identity.pk)  # deleting takes the number off the row
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
    """Return the name that the provider suggests, with a number if another account has it."""
    suggested = str(claims.get("preferred_username") or claims.get("name") or "person")
    name = UNUSABLE_IN_NAMES.sub("-", suggested).strip("-")[:LONGEST_NAME] or "person"
    candidates = chain([name], (f"{name}-{number}" for number in count(2)))
    users = get_user_model().objects
    return next(candidate for candidate in candidates if not users.filter(username__iexact=candidate).exists())


# Roles by groups


def roles_of(groups: Collection[str]) -> dict[str, str]:
    """Return the highest role that settings.OPENID gives to members of `groups` in each project, by slug."""
    given = [(slug, role) for group, slug, role in settings.OPENID["groups"] if group in groups]
    return {slug: min((role for other, role in given if other == slug), key=ROLES.index) for slug, _ in given}


@transaction.atomic
def set_group_roles(user: AbstractBaseUser, claims: Mapping[str, Any]) -> None:
    """Set the roles that the person's groups at the provider give now. Roles that an owner gave stay as they are."""
    groups = claims.get(settings.OPENID["groups_claim"])
    wanted = roles_of([groups] if isinstance(groups, str) else groups if isinstance(groups, list) else [])
    for member in user.memberships.filter(by_groups__isnull=False).exclude(project__slug__in=wanted):
        try:
            remove_member(member.project, user)
        except LastOwner as refusal:
            logger.warning("A membership by groups stays: %s", refusal)
    for project in Project.objects.filter(slug__in=wanted).exclude(
        pk__in=user.memberships.filter(by_groups__isnull=True).values("project")
    ):
        _give(project, user, wanted[project.slug])


def _give(project: Project, user: AbstractBaseUser, role: str) -> None:
    known = user.memberships.filter(project=project).first()
    if known is not None and known.role == role:
        return
    try:
        member = set_role(project, user, role)
    except LastOwner as refusal:
        logger.warning("A role by groups stays: %s", refusal)
    else:
        GroupMembership.objects.get_or_create(member=member)
