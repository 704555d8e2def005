"""Protection against server-side request forgery: URLs that users enter must lead to public internet addresses.

A hostname is resolved once, and the connection uses the resulting address, which prevents DNS rebinding.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from kgharvest.errors import DomainError

LONGEST_URL = 500
NAT64 = ip_network("64:ff9b::/96")
# Metadata services of clouds with addresses that are neither link-local nor private, or can be in an allowed network:
# Azure, Oracle Cloud, Alibaba Cloud, Amazon (IPv6), Google (IPv6)
METADATA = tuple(map(ip_address, ("168.63.129.16", "192.0.0.192", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
Address = IPv4Address | IPv6Address


class BadAddress(DomainError):
    """The URL is malformed or forbidden."""


class Target(NamedTuple):
    """Components of a URL, and the resolved address of its host. path: path with the query."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address


def resolve(url: str) -> Target:
    """Resolve `url`. Raises BadAddress if it is malformed or forbidden, and OSError if the hostname is unknown."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise BadAddress(f"Invalid URL {url!r:.80}: {error}.") from None
    if len(url) > LONGEST_URL or not url.isprintable() or not url.isascii() or " " in url:
        raise BadAddress(f"Invalid URL. Use at most {LONGEST_URL} printable ASCII characters without spaces.")
    if scheme not in ("http", "https") or not host:
        raise BadAddress(f"Invalid URL {url!r:.80}. Use the form https://host/path.")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("Remove the username and password from the URL. They would be stored in plain text.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    port = port or (443 if scheme == "https" else 80)
    if port not in settings.WEBHOOK_PORTS:
        allowed = ", ".join(map(str, list(settings.WEBHOOK_PORTS)[:5]))
        raise BadAddress(
            f"The port {port} is not allowed. Use one of {allowed}, or ask the operator to add it to "
            "KGHARVEST_WEBHOOK_PORTS."
        )
    try:
        results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part of the hostname between two dots is empty or too long
        raise BadAddress(f"Invalid hostname: {host!r:.80}.") from None
    addresses = [ip_address(str(socket_address[0]).partition("%")[0]) for *_, socket_address in results]
    for address in addresses:
        if not is_allowed(address):
            raise BadAddress(
                f"{host} resolves to {address}, which is not a public internet address. The operator can allow its "
                "network with KGHARVEST_WEBHOOK_NETWORKS."
            )
    if scheme == "http" and not all(map(_is_named_in_settings, addresses)):
        raise BadAddress(
            "Use https. Plain http is only for networks that the operator allows with KGHARVEST_WEBHOOK_NETWORKS."
        )
    return Target(scheme, host, port, path, addresses[0])


def is_allowed(address: Address) -> bool:
    """Return whether `address` is a public internet address or in settings.WEBHOOK_NETWORKS.

    Link-local addresses and metadata services of clouds are never allowed.
    """
    inner = _inner(address)
    if inner.is_link_local or inner in METADATA:
        return False
    is_special = inner.is_multicast or inner.is_reserved or (inner.version == 6 and inner.is_site_local)
    return _is_named_in_settings(address) or (inner.is_global and not is_special)


def _inner(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address, to which gateways forward requests, or `address` itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def _is_named_in_settings(address: Address) -> bool:
    return any(_inner(address) in network for network in settings.WEBHOOK_NETWORKS)
