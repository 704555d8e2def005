"""Webhook addresses: public internet addresses only, and none inside the private network."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from ipaddress import ip_address, ip_network

import pytest

from kgharvest.webhooks import addresses, delivery
from kgharvest.webhooks.addresses import BadAddress, is_allowed, resolve
from kgharvest.webhooks.delivery import post
from tests.kgharvest.webhooks.receiver import receiving


def resolving_to(monkeypatch, *texts: str) -> None:
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, port, **kwargs: [(0, 0, 0, "", (text, port)) for text in texts]
    )


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::", "2002:c0a8:101::1", "fec0::1",
        "168.63.129.16", "192.0.0.192", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "64:ff9b::a83f:8110",
    ],
)  # fmt: skip
def test_non_public_address_is_rejected(address):
    assert not is_allowed(ip_address(address))


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "168.63.129.16", "192.0.0.192", "100.100.100.200", "fe80::1", "::ffff:169.254.1.1"]
)
def test_allowed_networks_never_include_cloud_metadata_and_link_local_addresses(settings, address):
    settings.WEBHOOK_NETWORKS = [ip_network("0.0.0.0/0"), ip_network("::/0")]

    assert not is_allowed(ip_address(address))
    assert is_allowed(ip_address("10.0.0.1"))


@pytest.mark.parametrize("port", [22, 6379, 8443])
def test_only_configured_ports_are_allowed(monkeypatch, settings, port):
    resolving_to(monkeypatch, "93.184.216.34")
    url = f"https://example.org:{port}/hook"

    with pytest.raises(BadAddress, match=rf"{port}.*KGHARVEST_WEBHOOK_PORTS"):
        resolve(url)
    settings.WEBHOOK_PORTS = [port]
    assert resolve(url).port == port
    with pytest.raises(BadAddress, match="443"):
        resolve("https://example.org/hook")


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::6810:84e5", "64:ff9b::5db8:d822", "::ffff:8.8.8.8"])
def test_public_address_is_allowed(address):
    assert is_allowed(ip_address(address))


def test_host_with_one_private_address_is_rejected(monkeypatch):
    resolving_to(monkeypatch, "93.184.216.34", "10.0.0.1")

    with pytest.raises(BadAddress, match=r"10\.0\.0\.1, which is not a public internet address"):
        resolve("https://example.org/")


def test_allowed_network_permits_plain_http(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)

    assert str(resolve("http://127.0.0.1:8080/hook").address) == "127.0.0.1"
    with pytest.raises(BadAddress, match="Use https"):
        resolve("http://93.184.216.34/")


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "ftp://example.org/", "https://", "https:///path", "https://user:key@example.org/",
        "https://example.org:99999/", "https://[::1", "https://exa mple.org/", "https://example.org/\r\nX: y",
        "https://exämple.org/", "javascript:alert(1)", "https://example.org/" + 500 * "a", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_a_malformed_url_is_rejected(url):
    with pytest.raises(BadAddress):
        resolve(url)


def test_dns_rebinding_does_not_change_the_target(monkeypatch, settings):
    """The connection uses the checked address. The name is not resolved a second time."""
    with receiving() as (url, receiver):
        resolved_hosts = []
        port = int(url.split(":")[2].split("/")[0])

        def getaddrinfo(host, *args, **kwargs):
            resolved_hosts.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(addresses.socket, "getaddrinfo", getaddrinfo)
        settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
        settings.WEBHOOK_PORTS = range(65536)
        answer = post(f"http://rebound.example:{port}/hook", b"{}", {})

    assert answer.error == ""
    assert resolved_hosts.count("rebound.example") == 1
    assert receiver.requests[0][0]["Host"] == f"rebound.example:{port}"


def test_address_is_checked_again_when_sending(monkeypatch):
    resolving_to(monkeypatch, "192.168.0.7")

    answer = post("https://example.org/", b"{}", {})

    assert answer.status is None
    assert "192.168.0.7, which is not a public internet address" in answer.error


def start_server(script) -> int:
    """Start a thread that runs `script` on the first connection. Return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection, listener:
            connection.recv(65536)
            script(connection)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def dribble(connection) -> None:
    try:
        while True:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: "[:1])
            time.sleep(0.02)
    except OSError:
        pass


def flood(connection) -> None:
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1000\r\n" + 4096 * b"a" + b"\r\n")
    except OSError:
        pass


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (dribble, "No response"),
        (lambda connection: connection.sendall(b"rubbish\r\n\r\n"), "No response"),
        (lambda connection: None, "No response"),
        (lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nX: " + 70_000 * b"a"), "No response"),
        (flood, ""),  # the response body is not read
    ],
)
def test_delivery_attempt_ends_for_any_server_behavior(settings, monkeypatch, script, error):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    monkeypatch.setattr(delivery, "ANSWER_TIMEOUT_S", 0.4)

    answer = post(f"http://127.0.0.1:{start_server(script)}/", b"{}", {})

    assert bool(answer.error) == bool(error)
    assert error in answer.error


def test_a_certificate_for_another_name_is_refused(settings, tmp_path):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    create = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    options = ["-subj", "/CN=other.example", "-keyout", str(key), "-out", str(certificate), "-days", "1"]
    subprocess.run([*create, *options], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)

    def serve():
        with suppress(OSError):
            listener.accept()

    threading.Thread(target=serve, daemon=True).start()
    answer = post(f"https://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})

    assert answer.error.startswith("TLS failed")
