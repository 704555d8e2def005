"""Slow, idle, and malformed clients on a small scale. benches/slow_clients.py runs hundreds."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import connection

from tests.load import slow_clients
from tests.load.web_server import WebServer, collect_static_files, url_of

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(280)]


@pytest.fixture
def server(transactional_db):
    collect_static_files()
    with WebServer(url_of(connection), settings.SECRET_KEY, "--threads", "2") as server:
        yield server


def test_slow_clients_block_no_page_and_malformed_requests_are_rejected(server):
    """Each kind uses more clients than server threads, so blocking clients would stall the server."""
    for kind in (slow_clients.half_sent, slow_clients.half_a_body, slow_clients.reading_nothing, slow_clients.idle):
        with slow_clients.many(kind, 6, server.port):
            slow_clients.wait_for_page(server.port)

    answers = {
        name: slow_clients.statuses(slow_clients.send(server.port, text))
        for name, (text, _) in slow_clients.ODD_FRAMES.items()
    }

    assert answers == {name: statuses for name, (_, statuses) in slow_clients.ODD_FRAMES.items()}


def test_stopping_server_answers_pending_upload(server):
    assert slow_clients.upload_while_it_stops(server) == 403  # it has no CSRF token
