"""Brokers with TLS: one that cannot prove its name gets no password."""

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
    """A server on this machine: its port, whom its certificate names, where that is, and what it is sent."""
    folder = tmp_path_factory.mktemp("certificate")
    files = f"-keyout {folder}/key.pem -out {folder}/certificate.pem -addext subjectAltName={request.param}"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=broker {files}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    sent: list[bytes] = []
    with socket.create_server((SERVER, 0)) as listener:
        Thread(target=listen, args=[listener, context, sent], daemon=True).start()
        yield listener.getsockname()[1], request.param, f"{folder}/certificate.pem", sent


def listen(listener: socket.socket, context: ssl.SSLContext, sent: list[bytes]) -> None:
    """Note the first bytes of each connection that is encrypted, and end it."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # closed
            return
        with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as encrypted:
            sent.append(encrypted.recv(100))


@pytest.mark.parametrize("scheme", ["amqps", "rediss"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_broker_has_to_have_a_certificate_of_its_name_that_is_trusted(scheme, is_known, server, monkeypatch):
    port, named, certificate, sent = server
    sent.clear()
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
    url = f"{scheme}://:password@{SERVER}:{port}/0"

    with Connection(url, ssl=broker_tls(url), connect_timeout=10) as broker, pytest.raises(OperationalError) as failed:
        broker.ensure_connection(max_retries=1, interval_start=0)

    is_proved = is_known and named == f"IP:{SERVER}"
    assert ("CERTIFICATE_VERIFY_FAILED" in str(failed.value)) != is_proved
    assert bool(sent) == is_proved


def test_brokers_without_tls_are_asked_for_none():
    assert [broker_tls(url) for url in ("amqp://host//", "redis://host/0", "filesystem://")] == [None] * 3
