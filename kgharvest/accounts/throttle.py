"""Rate limits, counted in the database and so shared by all processes and servers.

Each limit in settings.LIMITS is a number of attempts and a window in seconds, which starts with the first attempt.
Attempts are counted per account or IP address; for IPv6 per /64 network, as each customer of a provider has one.
"""

from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest

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
    """Add `n` attempts to the window of `key`, which starts now if the last one has ended."""
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
    """Return whether `who` has used all attempts of the limit."""
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
