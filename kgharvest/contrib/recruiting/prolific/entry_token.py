"""Verification of Prolific's signed entry token, which proves that Prolific issued the entry link.

A JWT signed with a key from /.well-known/study/jwks.json, valid for two minutes, for this host, the link's parameters,
and this submission. Reference: `is_external_study_url_secure` in Prolific's API documentation.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from kgharvest.contrib.recruiting.models import Panel
from kgharvest.contrib.recruiting.panels.links import parameters as parameter_names
from kgharvest.contrib.recruiting.platforms import EntryRefused
from kgharvest.contrib.recruiting.prolific.client import Client

PARAMETER = "prolific_token"
ISSUER = "https://www.prolific.com"
LEEWAY_S = 60  # tolerated clock difference
KEYS_LAST_S = 3600  # cache time; Prolific asks for a daily refresh
BAD_LINK = "Prolific did not issue this link. Go back to Prolific and open the study from there again."


def check_entry(panel: Panel, parameters: Mapping[str, str]) -> bool:
    """Return True if Prolific signed the parameters of the entry link, False if there is no signature.

    Raises EntryRefused if the signature is invalid, or missing although the study requires one; PlatformUnavailable if
    Prolific's keys cannot be fetched.
    """
    token = parameters.get(PARAMETER, "")
    if not token:
        if panel.platform_options.get("signs_entry"):
            raise EntryRefused(BAD_LINK)
        return False
    try:
        claims = _claims(token)
    except (JoseError, ValueError):
        raise EntryRefused(BAD_LINK) from None
    signed, audience = claims.get("prolific"), claims.get("aud")
    has_parameters = isinstance(signed, dict) and all(
        signed.get(name, "") == parameters.get(name, "") for name in parameter_names(panel) if name
    )
    has_submission = claims.get("sub") == parameters.get(panel.session_parameter)
    has_host = isinstance(audience, str) and urlsplit(audience).netloc == urlsplit(settings.ORIGIN).netloc
    if not (has_parameters and has_submission and has_host):
        raise EntryRefused(BAD_LINK)
    return True


def _claims(token: str) -> dict:
    """Return the claims of a token with a valid signature and validity period. Raises JoseError, ValueError."""
    try:
        decoded = jwt.decode(token, _keys(), algorithms=["RS256"])
    except InvalidKeyIdError:  # Prolific may have new keys
        decoded = jwt.decode(token, _keys(refresh=True), algorithms=["RS256"])
    jwt.JWTClaimsRegistry(
        leeway=LEEWAY_S, iss={"essential": True, "value": ISSUER}, exp={"essential": True}, sub={"essential": True}
    ).validate(decoded.claims)
    return decoded.claims


def _keys(refresh: bool = False) -> KeySet:
    """Return Prolific's keys from the cache; `refresh` fetches them again, at most once a minute."""
    keys, is_fresh = cache.get("prolific:keys"), cache.get("prolific:keys:fresh")
    if keys is None or (refresh and not is_fresh):
        keys = Client().keys()
        cache.set("prolific:keys", keys, KEYS_LAST_S)
        cache.set("prolific:keys:fresh", True, 60)
    return KeySet.import_key_set(keys)
