"""Brokers with TLS: a broker without a valid certificate receives no password."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError

from kgharvest.environment import broker_tls

SERVER = "127.0.0.1"


@pytest.fixture(scope="module", params=[f"IP:{SERVER}", "DNS:broker.example.org"])
def server(request, tmp_path_factory) -> Iterator[tuple[int, str, str, list[bytes]]]:
    """TLS server on this machine: its port, the name in its certificate, the certificate file, and received data."""
    folder = tmp_path_factory.mktemp("certificate")
    files = f"-keyout {folder}/key.pem -out {folder}/certificate.pem -addext subjectAltName={request.param}"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=broker {files}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    received: list[bytes] = []
    with socket.create_server((SERVER, 0)) as listener:
        Thread(target=record_connections, args=[listener, context, received], daemon=True).start()
        yield listener.getsockname()[1], request.param, f"{folder}/certificate.pem", received


def record_connections(listener: socket.socket, context: ssl.SSLContext, received: list[bytes]) -> None:
    """Record the first bytes of each encrypted connection, and close it."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # closed
            return
        with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as encrypted:
            received.append(encrypted.recv(100))


@pytest.mark.parametrize("scheme", ["amqps", "rediss"])
@pytest.mark.parametrize("is_trusted", [True, False])
def test_broker_needs_a_trusted_certificate_for_its_name(scheme, is_trusted, server, monkeypatch):
    port, certificate_name, certificate, received = server
    received.clear()
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
    url = f"{scheme}://:password@{SERVER}:{port}/0"

    with Connection(url, ssl=broker_tls(url), connect_timeout=10) as broker, pytest.raises(OperationalError) as failed:
        broker.ensure_connection(max_retries=1, interval_start=0)

    is_valid = is_trusted and certificate_name == f"IP:{SERVER}"
    assert ("CERTIFICATE_VERIFY_FAILED" in str(failed.value)) != is_valid
    assert bool(received) == is_valid


def test_brokers_without_tls_have_no_tls_options():
    assert [broker_tls(url) for url in ("amqp://host//", "redis://host/0", "filesystem://")] == [None] * 3
