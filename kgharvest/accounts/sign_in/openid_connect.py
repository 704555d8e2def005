"""Logging in at an OpenID provider: the authorization code flow with state, nonce and PKCE.

OpenID Connect Core 1.0, section 3.1; PKCE is RFC 7636. settings.OPENID names the provider, of which the rest is known
from its discovery document.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from django.conf import settings
from django.core.cache import cache
from django.utils.crypto import constant_time_compare
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from kgharvest.errors import DomainError

logger = logging.getLogger(__name__)

TIMEOUT_S = 10
KNOWN_FOR_S = 600  # what discovery and keys are kept for
LEEWAY_S = 60  # that clocks may differ by
# Signatures by keys that only the provider has: neither none nor those with the client's secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class LoginRefused(DomainError):
    """The provider did not say who this is, or said so in a way that is not to be trusted."""


def begin(redirect_uri: str) -> tuple[str, dict[str, str]]:
    """Return the provider's address to log in at, and what `finish` must be given: kept in this browser's session."""
    expected = {"nonce": secrets.token_urlsafe(32), "verifier": secrets.token_urlsafe(64)}
    endpoint = discovered()["authorization_endpoint"]
    with _client(redirect_uri) as client:
        address, expected["state"] = client.create_authorization_url(
            endpoint, nonce=expected["nonce"], code_verifier=expected["verifier"]
        )
    return address, expected


def finish(expected: Mapping[str, str], answer: Mapping[str, str], redirect_uri: str) -> tuple[dict[str, Any], str]:
    """Return the claims about who logged in, and the ID token that says so. Raises LoginRefused.

    expected: what `begin` returned. answer: the parameters with which the provider sent the browser back.
    """
    if not expected or not constant_time_compare(expected["state"], answer.get("state", "")):
        raise LoginRefused("This log-in was begun in another browser or too long ago; begin again.")
    if "error" in answer or "code" not in answer:
        raise LoginRefused(f"{settings.OPENID['name']} did not log you in; begin again, or ask who runs it.")
    metadata = discovered()
    if answer.get("iss", metadata["issuer"]) != metadata["issuer"]:  # RFC 9207
        raise LoginRefused("The answer comes from another provider than the one that was asked; begin again.")
    try:
        with _client(redirect_uri) as client:
            token = client.fetch_token(
                metadata["token_endpoint"], code=answer["code"], code_verifier=expected["verifier"]
            )
            claims = _claims(token.get("id_token", ""), expected["nonce"], metadata)
            return {**_more_claims(client, claims, metadata), **claims}, token["id_token"]
    except (OAuthError, JoseError, ValueError, KeyError) as error:
        logger.warning("log-in at %s refused: %s", metadata["issuer"], type(error).__name__)
        raise LoginRefused(f"What {settings.OPENID['name']} says of you cannot be trusted; begin again.") from error
    except httpx.HTTPError as error:
        raise _silent(error) from error


def logout_address(id_token: str, return_to: str) -> str | None:
    """Return where the session at the provider is ended, None if nowhere (OpenID Connect RP-Initiated Logout)."""
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
    """Return the provider's metadata (OpenID Connect Discovery 1.0). Raises LoginRefused if it does not answer."""
    issuer = settings.OPENID["issuer"]
    metadata = _fetched(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if metadata.get("issuer") != issuer:
        raise LoginRefused(
            f"The provider at {issuer} calls itself {metadata.get('issuer')}; write that into KGHARVEST_OIDC_ISSUER."
        )
    return metadata


def _fetched(address: str, again: bool = False) -> dict[str, Any]:
    """Return the JSON object at `address`, which is kept for some minutes unless it is asked for `again`."""
    key = f"openid:{address}"
    if not again and (known := cache.get(key)):
        return known
    try:
        response = httpx.get(address, timeout=TIMEOUT_S).raise_for_status()
        document = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise _silent(error) from error
    cache.set(key, document, KNOWN_FOR_S)
    return document


def _silent(error: Exception) -> LoginRefused:
    logger.warning("the OpenID provider does not answer: %s", type(error).__name__)
    return LoginRefused(f"{settings.OPENID['name']} does not answer; try again in a few minutes.")


def _client(redirect_uri: str) -> OAuth2Client:
    secret = settings.OPENID["client_secret"]
    known = discovered().get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    method = "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"
    return OAuth2Client(
        client_id=settings.OPENID["client_id"],
        client_secret=secret or None,
        token_endpoint_auth_method=method if secret else "none",
        scope=settings.OPENID["scope"],
        redirect_uri=redirect_uri,
        code_challenge_method="S256",
        timeout=TIMEOUT_S,
    )


def _claims(id_token: str, nonce: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the ID token says, once its signature, issuer, audience, nonce and times hold.

    Raises JoseError or ValueError.
    """
    offered = metadata.get("id_token_signing_alg_values_supported", ALGORITHMS)
    algorithms = [algorithm for algorithm in ALGORITHMS if algorithm in offered]
    try:
        token = jwt.decode(id_token, _keys(metadata), algorithms=algorithms)
    except InvalidKeyIdError:  # the provider has new keys
        token = jwt.decode(id_token, _keys(metadata, again=True), algorithms=algorithms)
    client_id = settings.OPENID["client_id"]
    jwt.JWTClaimsRegistry(
        leeway=LEEWAY_S,
        iss={"essential": True, "value": metadata["issuer"]},
        aud={"essential": True, "value": client_id},
        nonce={"essential": True, "value": nonce},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    ).validate(token.claims)
    if token.claims.get("azp", client_id) != client_id:
        raise ValueError("the ID token was issued to another client")
    return dict(token.claims)


def _keys(metadata: Mapping[str, Any], again: bool = False) -> KeySet:
    return KeySet.import_key_set(_fetched(metadata["jwks_uri"], again))


def _more_claims(client: OAuth2Client, claims: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the provider says at its userinfo endpoint, where some put names and groups, if it has one."""
    if "userinfo_endpoint" not in metadata:
        return {}
    userinfo = client.get(metadata["userinfo_endpoint"]).raise_for_status().json()
    if userinfo.get("sub") != claims["sub"]:
        raise ValueError("userinfo is about somebody else")
    return userinfo
