"""Limits on guessing passwords that stop whoever guesses, not whoever shares an address or a name with them.

A browser that has logged in under a name carries a signed cookie, and its tries at that name are counted alone. Those
of all others are counted by name and address, and by name (at most 100: NIST SP 800-63B, 3.2.2). An address is never
closed: where many passwords were wrong, each name gets FEW tries. OWASP, "Slow Down Online Guessing Attacks with Device
Cookies".
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import AbstractBaseUser
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import salted_hmac

from kgharvest.accounts.throttle import (
    TooManyAttempts,
    check_attempt,
    count_attempt,
    forget_attempts,
    is_exhausted,
    network_of,
)

DEVICES = "kgharvest_devices"  # the cookie: a number of this browser's own for each name, by the name's digest
SALT = "kgharvest.accounts.sign_in.devices"
COOKIE_LASTS_S = 365 * 24 * 3600
MOST_NAMES = 5  # that one browser is known by
FEW = 3  # wrong passwords for one name from an address from which too many were wrong
TOO_MANY = "A wrong password was tried too often; wait a quarter of an hour, then log in again."


class LoginForm(AuthenticationForm):
    """Counts each try before the password is looked at, so that many at the same moment are no more than the limit."""

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username")
        if name and self.cleaned_data.get("password"):
            check_password_attempt(self.request, name, timezone.now())
        return super().clean()


def check_password_attempt(request: HttpRequest, name: str, now: datetime) -> None:
    """Count a password that is tried for `name`. Raises TooManyAttempts if it is not to be looked at."""
    if device := _devices(request).get(_digest(name)):
        most, _ = settings.LIMITS["wrong_passwords_of_device"]
        if count_attempt("wrong_passwords_of_device", device, now) <= most:
            return
    network = network_of(request)
    n = count_attempt("wrong_passwords_of_name", _name_at(name, network), now)
    if network and n > FEW and is_exhausted("wrong_passwords", network, now):
        raise TooManyAttempts(TOO_MANY)
    most, _ = settings.LIMITS["wrong_passwords_of_name"]
    if n > most:
        raise TooManyAttempts(TOO_MANY)
    check_attempt("wrong_passwords_everywhere", _digest(name), now, TOO_MANY)


def count_wrong_password(request: HttpRequest, now: datetime) -> None:
    """Count a password that was wrong, or for a name that nobody has, with its address."""
    if network := network_of(request):
        count_attempt("wrong_passwords", network, now)


def count_right_password(request: HttpRequest, user: AbstractBaseUser) -> None:
    """Begin anew for a name whose password was just right."""
    name = user.get_username()
    forget_attempts("wrong_passwords_of_name", _name_at(name, network_of(request)))
    forget_attempts("wrong_passwords_everywhere", _digest(name))
    if device := _devices(request).get(_digest(name)):
        forget_attempts("wrong_passwords_of_device", device)


def remember_device(request: HttpRequest, response: HttpResponse, user: AbstractBaseUser) -> None:
    """Have the browser show from now on that `user` has logged in there."""
    digest, devices = _digest(user.get_username()), _devices(request)
    devices = {**devices, digest: devices.get(digest) or secrets.token_hex(8)}
    response.set_cookie(
        DEVICES,
        signing.dumps(dict([*devices.items()][-MOST_NAMES:]), salt=SALT),
        max_age=COOKIE_LASTS_S,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _devices(request: HttpRequest) -> dict[str, str]:
    try:
        return signing.loads(request.COOKIES.get(DEVICES, ""), salt=SALT)
    except signing.BadSignature:
        return {}


def _name_at(name: str, network: str | None) -> str:
    return f"{_digest(name)}:{network}"


def _digest(name: str) -> str:
    """Return what the name is recognized by: people type passwords in its place, which must not be stored."""
    return salted_hmac(SALT, name, algorithm="sha256").hexdigest()[:32]
