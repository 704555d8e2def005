"""Limits on password guessing that do not lock out other users of the same name or IP address.

A browser that has logged in to an account has a signed cookie; its attempts for that account are counted separately.
All other attempts are counted per name and address, and per name (at most 100: NIST SP 800-63B, 3.2.2). An address is
never blocked: after many wrong passwords from it, each name gets FEW attempts. OWASP, "Slow Down Online Guessing
Attacks with Device Cookies".
"""

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

DEVICES = "kgharvest_devices"  # cookie: a random id per account of this browser, by the digest of the username
SALT = "kgharvest.accounts.sign_in.devices"
COOKIE_LASTS_S = 365 * 24 * 3600
MOST_NAMES = 5  # accounts remembered per browser
FEW = 3  # attempts per name from an address with too many wrong passwords
TOO_MANY = "Too many wrong passwords. Wait 15 minutes, then log in again."


class LoginForm(AuthenticationForm):
    """Login form. Counts each attempt before checking the password, so that parallel attempts obey the limit."""

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username")
        if name and self.cleaned_data.get("password"):
            check_password_attempt(self.request, name, timezone.now())
        return super().clean()


def check_password_attempt(request: HttpRequest, name: str, now: datetime) -> None:
    """Count a password attempt for `name`. Raises TooManyAttempts if the password must not be checked."""
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
    """Count a wrong password or unknown name for the client's address."""
    if network := network_of(request):
        count_attempt("wrong_passwords", network, now)


def count_right_password(request: HttpRequest, user: AbstractBaseUser) -> None:
    """Reset the counts of a name after a correct password."""
    name = user.get_username()
    forget_attempts("wrong_passwords_of_name", _name_at(name, network_of(request)))
    forget_attempts("wrong_passwords_everywhere", _digest(name))
    if device := _devices(request).get(_digest(name)):
        forget_attempts("wrong_passwords_of_device", device)


def remember_device(request: HttpRequest, response: HttpResponse, user: AbstractBaseUser) -> None:
    """Set the cookie that shows that `user` has logged in with this browser."""
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
    """Return a keyed digest of the name. Names are not stored, as people type passwords into the field."""
    return salted_hmac(SALT, name, algorithm="sha256").hexdigest()[:32]
