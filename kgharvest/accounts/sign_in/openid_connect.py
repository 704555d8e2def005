"""Login at an OpenID provider: authorization code flow with state, nonce, and PKCE (Authlib); accounts and roles.

OpenID Connect Core 1.0, section 3.1; PKCE is RFC 7636. settings.OPENID names the provider; its discovery document
contains the endpoints.
"""

import logging
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import chain, count
from typing import Any
from urllib.parse import urlencode

import httpx
from authlib.integrations.base_client import BaseApp, OAuth2Mixin, OAuthError, OpenIDMixin
from authlib.integrations.httpx_client import OAuth2Client
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.cache import cache
from django.db import IntegrityError, transaction
from django.utils.crypto import constant_time_compare
from joserfc.errors import JoseError

from kgharvest.accounts.projects import LastOwner, remove_member, set_role
from kgharvest.accounts.sign_in.models import GroupMembership, OpenIDIdentity
from kgharvest.environment import ROLES
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.models import Project

logger = logging.getLogger(__name__)

TIMEOUT_S = 10
METADATA_CACHED_S = 600  # lifetime of the cached discovery document
LEEWAY_S = 60  # accepted difference between clocks
# Accept only signatures by the provider's private key, neither "none" nor HMAC with the client secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class LoginRefused(DomainError):
    """The provider's response is missing or invalid, or the account may not log in."""


class Provider(OAuth2Mixin, OpenIDMixin, BaseApp):
    client_cls = OAuth2Client


def begin(redirect_uri: str) -> tuple[str, dict[str, str]]:
    """Return the provider's login URL, and the values to store in the browser's session for `finish`."""
    expected = _provider().create_authorization_url(redirect_uri)
    return expected.pop("url"), expected


def finish(expected: Mapping[str, str], answer: Mapping[str, str], redirect_uri: str) -> tuple[dict[str, Any], str]:
    """Return the claims about the person and the ID token. Raises LoginRefused.

    expected: the values that `begin` returned. answer: the query parameters of the provider's redirect.
    """
    if not expected or not constant_time_compare(expected["state"], answer.get("state", "")):
        raise LoginRefused("This login was started in another browser or has expired. Log in again.")
    if "error" in answer or "code" not in answer:
        raise LoginRefused(f"{settings.OPENID['name']} did not log you in. Try again or contact its operator.")
    provider = _provider()
    issuer = provider.server_metadata["issuer"]
    if answer.get("iss", issuer) != issuer:  # RFC 9207
        raise LoginRefused("The response came from an unexpected provider. Log in again.")
    try:
        token = provider.fetch_access_token(redirect_uri, code=answer["code"], code_verifier=expected["code_verifier"])
        return _claims(provider, token, expected["nonce"]), token["id_token"]
    except (OAuthError, JoseError, ValueError, KeyError) as error:
        logger.warning("login at %s refused: %s", issuer, type(error).__name__)
        raise LoginRefused(f"The response of {settings.OPENID['name']} could not be verified. Log in again.") from error
    except httpx.HTTPError as error:
        raise _silent(error) from error


def logout_address(id_token: str, return_to: str) -> str | None:
    """Return the URL that ends the session at the provider, or None (OpenID Connect RP-Initiated Logout)."""
    try:
        endpoint = discovered().get("end_session_endpoint")
    except LoginRefused:
        return None
    query = {
        "id_token_hint": id_token,
        "post_logout_redirect_uri": return_to,
        "client_id": settings.OPENID["client_id"],
    }
    return endpoint and f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def discovered() -> dict[str, Any]:
    """Return the provider's metadata (OpenID Connect Discovery 1.0), cached for ten minutes.

    Raises LoginRefused if the provider does not respond, the issuer differs, or an endpoint is missing.
    """
    issuer = settings.OPENID["issuer"]
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    metadata = cache.get(f"openid:{address}")
    if metadata is None:
        try:
            metadata = httpx.get(address, timeout=TIMEOUT_S).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise _silent(error) from error
        cache.set(f"openid:{address}", metadata, METADATA_CACHED_S)
    if metadata.get("issuer") != issuer:
        raise LoginRefused(
            f"The provider at {issuer} reports the issuer {metadata.get('issuer')}. Correct KGHARVEST_OIDC_ISSUER."
        )
    if missing := {"authorization_endpoint", "token_endpoint", "jwks_uri"} - metadata.keys():
        raise LoginRefused(f"The discovery document of {issuer} does not contain {', '.join(sorted(missing))}.")
    return metadata


def _silent(error: Exception) -> LoginRefused:
    logger.warning("the OpenID provider does not respond: %s", type(error).__name__)
    return LoginRefused(f"{settings.OPENID['name']} does not respond. Try again in a few minutes.")


def _provider() -> Provider:
    metadata, secret = discovered(), settings.OPENID["client_secret"]
    methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
    offered = metadata.get("id_token_signing_alg_values_supported", ALGORITHMS)
    provider = Provider(
        None,
        client_id=settings.OPENID["client_id"],
        client_secret=secret or None,
        client_kwargs={
            "token_endpoint_auth_method": method if secret else "none",
            "scope": settings.OPENID["scope"],
            "code_challenge_method": "S256",
            "timeout": TIMEOUT_S,
        },
    )
    algorithms = [algorithm for algorithm in ALGORITHMS if algorithm in offered]
    provider.server_metadata = {**metadata, "id_token_signing_alg_values_supported": algorithms}
    return provider


def _claims(provider: Provider, token: dict[str, Any], nonce: str) -> dict[str, Any]:
    """Return the verified claims of the ID token, merged with userinfo, which may contain the name and groups.

    Verifies signature, issuer, audience, nonce, and times. Raises JoseError, ValueError, or KeyError.
    """
    metadata = provider.server_metadata
    options = {"iss": {"value": metadata["issuer"]}, "aud": {"value": provider.client_id}}
    claims = provider.parse_id_token(token, nonce, options, leeway=LEEWAY_S)
    if claims is None:
        raise KeyError("id_token")
    userinfo = provider.userinfo(token=token) if "userinfo_endpoint" in metadata else claims
    if userinfo.get("sub") != claims["sub"]:
        raise ValueError("userinfo has a different subject")
    return {**userinfo, **claims}


# Accounts of OpenID identities. A person is identified by the provider's `sub`, never by a name or email address.

UNUSABLE_IN_NAMES = re.compile(r"[^\w.@+-]+")
LONGEST_NAME = 140


def account_of(claims: Mapping[str, Any], now: datetime) -> AbstractBaseUser:
    """Return the account of this identity, or a new account. Raises LoginRefused if the account is closed."""
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
    """Link this identity to `user`. Raises LoginRefused if the identity belongs to another account."""
    with transaction.atomic():
        identity, is_new = OpenIDIdentity.objects.get_or_create(
            issuer=claims["iss"], subject=claims["sub"], defaults={"user": user}
        )
        if identity.user_id != user.pk:
            raise LoginRefused("That identity is linked to another account. Log in with it or link a different one.")
        if is_new:
            record("openid.linked", identity, user)


def unlink(user: AbstractBaseUser, identity: OpenIDIdentity) -> None:
    """Unlink `identity` from `user`. Raises LoginRefused if there is no other way to log in."""
    if not user.has_usable_password() and not user.openid_identities.exclude(pk=identity.pk).exists():
        raise LoginRefused("This is the only way to log in to this account. Set a password first.")
    with transaction.atomic():
        unlinked = OpenIDIdentity(pk=identity.pk)  # delete() clears the primary key
        identity.delete()
        record("openid.unlinked", unlinked, user)


@transaction.atomic
def _with_new_account(claims: Mapping[str, Any]) -> OpenIDIdentity:
    """Create an account with the username that the provider suggests. If the username is taken, append a number."""
    users = get_user_model().objects
    suggested = str(claims.get("preferred_username") or claims.get("name") or "person")
    name = UNUSABLE_IN_NAMES.sub("-", suggested).strip("-")[:LONGEST_NAME] or "person"
    candidates = chain([name], (f"{name}-{number}" for number in count(2)))
    user = users.create_user(
        next(candidate for candidate in candidates if not users.filter(username__iexact=candidate).exists()),
        email=claims.get("email", "") if claims.get("email_verified") is True else "",
        first_name=str(claims.get("given_name", ""))[:150],
        last_name=str(claims.get("family_name", ""))[:150],
    )
    identity = OpenIDIdentity.objects.create(user=user, issuer=claims["iss"], subject=claims["sub"])
    record("openid.linked", identity, user)
    return identity


def roles_of(groups: Collection[str]) -> dict[str, str]:
    """Return, by project slug, the highest role that settings.OPENID assigns to members of these groups."""
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
