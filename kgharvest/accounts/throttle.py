"""Rate limits, counted in the database and therefore shared by all processes and servers.

Each limit in settings.LIMITS is a number of attempts and a window in seconds. The window starts with the first attempt.
Attempts are counted per account or IP address. IPv6 addresses are counted per /64 network, because providers assign one
such network to each customer.
"""

import secrets
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import AbstractBaseUser
from django.core import signing
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import salted_hmac

from kgharvest.access import client_ip
from kgharvest.errors import DomainError
from kgharvest.models import Attempts


class TooManyAttempts(DomainError):
    """The limit on attempts is exceeded."""


def network_of(request: HttpRequest) -> str | None:
    """Return the client's IPv4 address or IPv6 /64 network, or None if unknown."""
    try:
        address = ip_address(client_ip(request) or "")
    except ValueError:  # a local socket without a proxy header
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(ip_network((address, 64), strict=False).network_address if address.version == 6 else address)


def count_attempt(limit: str, who: str | None, now: datetime) -> int:
    """Count an attempt of `who`; return the number of attempts in this window, including this one."""
    _, window_s = settings.LIMITS[limit]
    return add_attempts(f"{limit}:{who}", 1, window_s, now).n


@transaction.atomic
def add_attempts(key: str, n: int, window_s: int, now: datetime) -> Attempts:
    """Add `n` attempts to the current window of `key`. If the window has ended, start a new one."""
    ends_at = now + timedelta(seconds=window_s)
    attempts, is_new = Attempts.objects.select_for_update().get_or_create(key=key, defaults={"ends_at": ends_at})
    if is_new:
        Attempts.objects.filter(Q(ends_at__lte=now), ~Q(key=key)).delete()
    if attempts.ends_at <= now:
        attempts.n, attempts.ends_at = 0, ends_at
    attempts.n += n
    attempts.save()
    return attempts


def is_exhausted(limit: str, who: str | None, now: datetime) -> bool:
    """Return whether `who` has used all attempts that the limit allows."""
    most, _ = settings.LIMITS[limit]
    return Attempts.objects.filter(key=f"{limit}:{who}", ends_at__gt=now, n__gte=most).exists()


def forget_attempts(limit: str, who: str) -> None:
    """Reset the count of `who` after a successful attempt."""
    Attempts.objects.filter(key=f"{limit}:{who}").delete()


def count_wrong_link(request: HttpRequest, now: datetime) -> bool:
    """Count an invalid link or code; return whether the client's address has exceeded the limit."""
    most, _ = settings.LIMITS["wrong_links"]
    return count_attempt("wrong_links", network_of(request), now) > most


def check_attempt(limit: str, who: str, now: datetime, sentence: str) -> None:
    """Count an attempt of `who`. Raises TooManyAttempts with `sentence` if the limit is exceeded."""
    most, _ = settings.LIMITS[limit]
    if count_attempt(limit, who, now) > most:
        raise TooManyAttempts(sentence)


# Passwords

DEVICES = "kgharvest_devices"  # cookie: {digest of a username: random id}, for accounts used in this browser
SALT = "kgharvest.accounts.sign_in.devices"
COOKIE_LASTS_S = 365 * 24 * 3600
MOST_NAMES = 5  # accounts remembered per browser
FEW = 3  # attempts per name and address, after too many wrong passwords from the address or for the name
TOO_MANY = "Too many wrong passwords. Wait 15 minutes, then log in again."


class LoginForm(AuthenticationForm):
    """Login form. Counts each attempt before checking the password, so that parallel attempts obey the limit."""

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username")
        if name and self.cleaned_data.get("password"):
            check_password_attempt(self.request, name, timezone.now())
        return super().clean()


def check_password_attempt(request: HttpRequest, name: str, now: datetime) -> None:
    """Count a password attempt for `name`. Raises TooManyAttempts if the password must not be checked.

    One person's wrong passwords do not lock out other people who use the same name or IP address. A browser that has
    logged in to an account has a signed cookie; its attempts for that account are counted separately. All other
    attempts are counted per pair of name and address. Names and addresses are never blocked: after many wrong passwords
    from an address, each name gets FEW attempts from it, and after many for a name, it gets FEW from each address. See
    OWASP, "Slow Down Online Guessing Attacks with Device Cookies".
    """
    if device := _devices(request).get(_digest(name)):
        most, _ = settings.LIMITS["wrong_passwords_of_device"]
        if count_attempt("wrong_passwords_of_device", device, now) <= most:
            return
    network = network_of(request)
    n = count_attempt("wrong_passwords_of_name", _name_at(name, network), now)
    n_everywhere = count_attempt("wrong_passwords_everywhere", _digest(name), now)
    most, _ = settings.LIMITS["wrong_passwords_of_name"]
    most_everywhere, _ = settings.LIMITS["wrong_passwords_everywhere"]
    is_slowed = n_everywhere > most_everywhere or (network and is_exhausted("wrong_passwords", network, now))
    if n > (FEW if is_slowed else most):
        raise TooManyAttempts(TOO_MANY)


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
    """Return a keyed digest of the name. Names are not stored, because people type passwords into the field."""
    return salted_hmac(SALT, name, algorithm="sha256").hexdigest()[:32]
