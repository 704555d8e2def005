"""Client address behind proxies."""

import pytest

from kgharvest.access import client_ip

PROXY = "10.0.0.1"


@pytest.mark.parametrize(
    ("n_proxies", "forwarded", "address"),
    [
        (0, "198.51.100.7", PROXY),  # not set by a trusted proxy
        (1, "198.51.100.7", "198.51.100.7"),
        (1, "203.0.113.9, 198.51.100.7", "198.51.100.7"),  # the client forged the first address
        (2, "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        (2, "198.51.100.7", PROXY),
        (1, "", PROXY),
        (1, "unknown", PROXY),
        (1, "2001:db8::1", "2001:db8::1"),
    ],
)
def test_client_address_comes_from_trusted_proxies(rf, settings, n_proxies, forwarded, address):
    settings.PROXY_COUNT = n_proxies

    assert client_ip(rf.get("/", REMOTE_ADDR=PROXY, headers={"x-forwarded-for": forwarded})) == address
