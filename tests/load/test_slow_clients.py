"""Clients that are slow, idle or odd, in small: benches/slow_clients.py has them by the hundred."""

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


def test_slow_clients_keep_nobody_waiting_and_odd_requests_are_refused(server):
    """Each kind by more clients than there are threads, with which each would stop the server for good."""
    for kind in (slow_clients.half_sent, slow_clients.half_a_body, slow_clients.reading_nothing, slow_clients.idle):
        with slow_clients.many(kind, 6, server.port):
            slow_clients.wait_for_page(server.port)

    answers = {
        name: slow_clients.statuses(slow_clients.send(server.port, text))
        for name, (text, _) in slow_clients.ODD_FRAMES.items()
    }

    assert answers == {name: statuses for name, (_, statuses) in slow_clients.ODD_FRAMES.items()}


def test_an_upload_is_answered_by_a_server_that_stops(server):
    assert slow_clients.upload_while_it_stops(server) == 403  # it has no CSRF token
