"""Where addresses that people give may lead: to the internet, not to this machine or the network that it stands in.

A name is resolved once and the connection goes to that very address, so that a name that means another address a moment
later leads nowhere else.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from kgharvest.errors import DomainError

LONGEST_URL = 500
NAT64 = ip_network("64:ff9b::/96")
Address = IPv4Address | IPv6Address


class BadAddress(DomainError):
    """An address to which nothing may be sent."""


class Target(NamedTuple):
    """What a URL leads to. path: with its query."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address


def resolve(url: str) -> Target:
    """Return where `url` leads now. Raises BadAddress if nothing may be sent there, OSError if its name is unknown."""
    scheme, host, port, path = split(url)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part between two dots is empty or too long
        raise BadAddress(f"{host!r:.80} is no name of a host.") from None
    addresses = [ip_address(str(socket_address[0]).partition("%")[0]) for *_, socket_address in found]
    for address in addresses:
        if not is_allowed(address):
            raise BadAddress(
                f"{host} is {address}, which is no address of the internet; the operator may allow its network with "
                "KGHARVEST_WEBHOOK_NETWORKS."
            )
    if scheme == "http" and not all(map(_is_named_in_settings, addresses)):
        raise BadAddress(
            "Write https; plain http is for networks that the operator allows with KGHARVEST_WEBHOOK_NETWORKS."
        )
    return Target(scheme, host, port, path, addresses[0])


def split(url: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port, and path with query. Raises BadAddress."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise BadAddress(f"{url!r:.80} is no address ({error}).") from None
    if len(url) > LONGEST_URL or not url.isprintable() or not url.isascii() or " " in url:
        raise BadAddress(f"An address has at most {LONGEST_URL} letters, digits and signs of ASCII, without spaces.")
    if scheme not in ("http", "https") or not host:
        raise BadAddress(f"{url!r:.80} is no address; write https://host/path.")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("Leave user and password out of the address; they would be stored in plain text.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return scheme, host, port or (443 if scheme == "https" else 80), path


def is_allowed(address: Address) -> bool:
    """Return whether anything may be sent to `address`: one of the internet's, or of a network that settings allow."""
    inner = _inner(address)
    is_special = inner.is_multicast or inner.is_reserved or (inner.version == 6 and inner.is_site_local)
    return _is_named_in_settings(address) or (inner.is_global and not is_special)


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does: a gateway sends to that one."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def _is_named_in_settings(address: Address) -> bool:
    return any(_inner(address) in network for network in settings.WEBHOOK_NETWORKS)
