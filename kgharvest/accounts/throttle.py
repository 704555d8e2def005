"""Limits on what people try: counted in the database, so that all processes and servers count together.

A limit of settings.LIMITS is a number of attempts in a window of seconds, which begins with the first of them. Attempts
are of an address or an account. Of IPv6 the first 64 bits are the address: a customer of any provider has as many.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest

from kgharvest.access import client_ip
from kgharvest.errors import DomainError
from kgharvest.models import Attempts


class TooManyAttempts(DomainError):
    """One more attempt than the limit allows."""


def network_of(request: HttpRequest) -> str | None:
    """Return whom limits count as one: the address, of IPv6 the network of its first 64 bits; None if unknown."""
    try:
        address = ip_address(client_ip(request) or "")
    except ValueError:  # a local socket, without a proxy that says more
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(ip_network((address, 64), strict=False).network_address if address.version == 6 else address)


def count_attempt(limit: str, who: str | None, now: datetime) -> int:
    """Count an attempt of `who`; return how many there were in this window, this one included."""
    _, window_s = settings.LIMITS[limit]
    return _count(f"{limit}:{who}", 1, window_s, now).n


@transaction.atomic
def _count(key: str, n: int, window_s: int, now: datetime) -> Attempts:
    ends_at = now + timedelta(seconds=window_s)
    attempts, is_new = Attempts.objects.select_for_update().get_or_create(key=key, defaults={"ends_at": ends_at})
    if is_new:
        Attempts.objects.filter(Q(ends_at__lte=now), ~Q(key=key)).delete()
    if attempts.ends_at <= now:
        attempts.n, attempts.ends_at = 0, ends_at
    attempts.n += n
    attempts.save()
    return attempts


# -- requests, of which there are too many to write each to the database -----------------------------------------------

BLOCKS = 20  # in which a process takes what a limit allows


def seconds_to_wait(key: str, most: int, window_s: int, now: datetime) -> float:
    """Count one of at most `most` requests in `window_s`; return 0, or after how many seconds there may be one more.

    A process takes a twentieth of the limit from the database at once and keeps count of it in its own memory: never
    are more allowed, and fewer by what other processes have taken and not used. Refusals ask the database once.
    """
    refused_until = cache.get(f"{key}:refused")
    if refused_until and refused_until > now:
        return (refused_until - now).total_seconds()
    with suppress(ValueError):  # no block, or one of a window that is over
        if cache.decr(f"{key}:left") >= 0:
            return 0.0
    block = max(1, most // BLOCKS)
    taken = _count(key, block, window_s, now)
    lasts_s = (taken.ends_at - now).total_seconds()
    granted = min(block, most - taken.n + block)
    if granted > 0:
        cache.set(f"{key}:left", granted - 1, lasts_s)
        return 0.0
    cache.set(f"{key}:refused", taken.ends_at, lasts_s)
    return lasts_s


def is_exhausted(limit: str, who: str | None, now: datetime) -> bool:
    """Return whether `who` has had as many attempts as the limit allows."""
    most, _ = settings.LIMITS[limit]
    return Attempts.objects.filter(key=f"{limit}:{who}", ends_at__gt=now, n__gte=most).exists()


def forget_attempts(limit: str, who: str) -> None:
    """Begin anew for `who`, who has just shown that the attempts were theirs."""
    Attempts.objects.filter(key=f"{limit}:{who}").delete()


def count_wrong_link(request: HttpRequest, now: datetime) -> bool:
    """Count a link, or code, behind which is nothing; return whether its address has had too many of these."""
    most, _ = settings.LIMITS["wrong_links"]
    return count_attempt("wrong_links", network_of(request), now) > most


def check_attempt(limit: str, who: str, now: datetime, sentence: str) -> None:
    """Count an attempt of `who`; raise TooManyAttempts with `sentence` if it is one too many."""
    most, _ = settings.LIMITS[limit]
    if count_attempt(limit, who, now) > most:
        raise TooManyAttempts(sentence)
