"""The signed entry token of studies whose workspace has it: shows that Prolific sent whoever comes by the link.

A JWT by one of the keys at /.well-known/study/jwks.json, as Prolific's API reference has it under
`is_external_study_url_secure`: valid for two minutes, about this address, its parameters and this submission.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from kgharvest.contrib.recruiting.models import Panel
from kgharvest.contrib.recruiting.platforms import EntryRefused
from kgharvest.contrib.recruiting.prolific.client import Client

PARAMETER = "prolific_token"
ISSUER = "https://www.prolific.com"
LEEWAY_S = 60  # that clocks may differ by
KEYS_LAST_S = 3600  # Prolific asks to look for new ones daily
WITHOUT = "This link is not as Prolific gives it. Please go back to Prolific and open the study from there once more."


def check_entry(panel: Panel, parameters: Mapping[str, str]) -> bool:
    """Return True if Prolific has signed the parameters of the entry link, False if they carry no signature.

    Raises EntryRefused if the signature is invalid, or missing although the study requires one; PlatformUnavailable if
    Prolific's keys cannot be fetched.
    """
    token = parameters.get(PARAMETER, "")
    if not token:
        if panel.platform_options.get("signs_entry"):
            raise EntryRefused(WITHOUT)
        return False
    try:
        claims = _claims(token)
    except (JoseError, ValueError):
        raise EntryRefused(WITHOUT) from None
    signed = claims.get("prolific")
    names = (panel.participant_parameter, panel.study_parameter, panel.session_parameter)
    is_about_this = isinstance(signed, dict) and all(
        signed.get(name, "") == parameters.get(name, "") for name in names if name
    )
    is_of_this_submission = claims.get("sub") == parameters.get(panel.session_parameter)
    audience = claims.get("aud")
    is_for_us = isinstance(audience, str) and urlsplit(audience).netloc == urlsplit(settings.ORIGIN).netloc
    if not (is_about_this and is_of_this_submission and is_for_us):
        raise EntryRefused(WITHOUT)
    return True


def _claims(token: str) -> dict:
    """Return what a token says whose signature and times hold. Raises JoseError, ValueError."""
    try:
        decoded = jwt.decode(token, _keys(), algorithms=["RS256"])
    except InvalidKeyIdError:  # Prolific has new keys
        decoded = jwt.decode(token, _keys(again=True), algorithms=["RS256"])
    jwt.JWTClaimsRegistry(
        leeway=LEEWAY_S, iss={"essential": True, "value": ISSUER}, exp={"essential": True}, sub={"essential": True}
    ).validate(decoded.claims)
    return decoded.claims


def _keys(again: bool = False) -> KeySet:
    """Return Prolific's keys, kept for an hour; unknown ones make this ask again once a minute at most."""
    known, is_fresh = cache.get("prolific:keys"), cache.get("prolific:keys:fresh")
    if known is None or (again and not is_fresh):
        known = Client().keys()
        cache.set("prolific:keys", known, KEYS_LAST_S)
        cache.set("prolific:keys:fresh", True, 60)
    return KeySet.import_key_set(known)
