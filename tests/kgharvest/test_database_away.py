"""Database outages: error pages and API errors, endpoints without database access, and limited waiting."""

from __future__ import annotations

import json
import socket
import sqlite3

import psycopg
import pytest
from django.db import InterfaceError, OperationalError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse

from kgharvest import http, middleware
from kgharvest.bulk.prepared import PreparedSelect
from kgharvest.errors import is_database_away
from tests.factories import make_researcher
from tests.kgharvest.test_settings import PRODUCTION, run_python


def caused_by(error: Exception) -> OperationalError:
    """Return Django's error for an error of the driver."""
    try:
        raise OperationalError(str(error)) from error
    except OperationalError as raised:
        return raised


def busy() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY_SNAPSHOT"
    return error


@pytest.mark.parametrize(
    ("error", "is_away"),
    [
        (caused_by(psycopg.OperationalError("connection refused")), True),
        (caused_by(psycopg.errors.AdminShutdown("terminating connection")), True),
        (caused_by(psycopg.errors.CannotConnectNow("the database system is starting up")), True),
        (caused_by(psycopg.errors.TooManyConnections("sorry, too many clients already")), True),
        (InterfaceError("connection already closed"), True),
        (caused_by(busy()), True),
        (caused_by(psycopg.errors.DeadlockDetected("deadlock detected")), False),
        (caused_by(sqlite3.OperationalError("no such table: job")), False),
        (ValueError("a bug"), False),
        (None, False),
    ],
)
def test_connection_errors_count_as_a_database_outage(error, is_away):
    assert is_database_away(error) == is_away


@pytest.fixture
def away(client, monkeypatch) -> Client:
    """Client of a server without a database. Loading the session, the first database access of a request, fails."""

    def fail(*args, **kwargs):
        raise caused_by(psycopg.OperationalError("connection refused"))

    monkeypatch.setattr(PreparedSelect, "__call__", fail)
    client.raise_request_exception = False
    client.cookies["sessionid"] = "a" * 32
    return client


def test_error_page_explains_the_outage_and_confirms_saved_data(away):
    answer = away.get(reverse("home"), {"q": "<dog>"})

    assert (answer.status_code, answer["Retry-After"], answer["Cache-Control"]) == (503, "5", "no-store")
    page = answer.content.decode()
    assert "cannot reach its database" in page
    assert "Everything shown as saved is safe" in page
    assert 'href="/?q=%3Cdog%3E"' in page


def test_error_page_after_a_form_has_no_retry_link(away):
    page = away.post(reverse("login"), {"username": "ada"}).content.decode()

    assert "submit it again in a moment" in page
    assert "Try again" not in page


@pytest.mark.parametrize(
    ("path", "headers"), [("/api/v1/harvests/", {}), ("/judge/1/", {"accept": "application/json"})]
)
def test_json_clients_receive_the_standard_error_format(away, path, headers):
    answer = away.get(path, headers=headers)

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["error"]["code"] == "DatabaseAway"
    assert "All confirmed input is stored" in answer.json()["error"]["message"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="the size of a SQLite database can be limited")
def test_full_disk_is_explained(client):
    client.force_login(make_researcher())
    client.raise_request_exception = False
    with connection.cursor() as cursor:
        [most] = cursor.execute("PRAGMA max_page_count").fetchone()
        [n_pages] = cursor.execute("PRAGMA page_count").fetchone()
        cursor.execute(f"PRAGMA max_page_count = {n_pages}")
        try:
            pages = [client.post(reverse("kgharvest:project_new"), {"name": f"p{n}"}) for n in range(300)]
            answer = client.post(
                reverse("kgharvest:project_new"), {"name": "last"}, headers={"accept": "application/json"}
            )
        finally:
            cursor.execute(f"PRAGMA max_page_count = {most}")

    assert {page.status_code for page in pages} == {302, 503}
    assert pages[-1]["Retry-After"] == "60"
    assert "disk is full" in pages[-1].content.decode()
    assert answer.json()["error"]["code"] == "DiskFull"


def test_endpoints_without_database_access_keep_working(away):
    for path in ("/healthz", "/static/kgharvest/site.css"):
        assert away.get(path).status_code == 200


def test_one_request_at_a_time_waits_for_a_silent_database(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(middleware, "monotonic", lambda: now[0])
    call_times, is_away = [], [True]

    def answer(request):
        call_times.append(now[0])
        if is_away[0]:
            now[0] += 5  # duration of the timeout
            return http.database_is_away(request)
        return HttpResponse("ok")

    spared = middleware.spare_threads(answer)
    request = RequestFactory().get("/")

    assert [spared(request).status_code for _ in range(10)] == [503] * 10
    assert call_times == [0.0]
    now[0] += middleware.LOOK_AFTER_S
    assert [spared(request).status_code for _ in range(10)] == [503] * 10
    assert len(call_times) == 2
    now[0] += middleware.LOOK_AFTER_S
    is_away[0] = False
    assert [spared(request).status_code for _ in range(10)] == [200] * 10


def test_every_request_tries_a_fast_failing_database(monkeypatch):
    monkeypatch.setattr(middleware, "monotonic", lambda: 0.0)
    call_times = []
    spared = middleware.spare_threads(lambda request: call_times.append(1) or http.database_is_away(request))

    for _ in range(3):
        spared(RequestFactory().get("/"))

    assert len(call_times) == 3


def test_unreachable_database_logs_no_traceback(tmp_path):
    with socket.socket() as free:  # without a listening server
        free.bind(("127.0.0.1", 0))
        url = f"postgres://nobody@127.0.0.1:{free.getsockname()[1]}/nothing"
        code = (
            "import django; django.setup(); from django.test import Client; "
            "client = Client(raise_request_exception=False, headers={'x-forwarded-proto': 'https'}); "
            "client.cookies['sessionid'] = 'a' * 32; "
            "answer = client.get('/api/v1/harvests/', HTTP_HOST='kg.example.org'); "
            "print(answer.status_code, answer.content.decode())"
        )
        environment = {**PRODUCTION, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "kgharvest.settings"}
        done = run_python(tmp_path, "-c", code, **environment)

    status, _, body = done.stdout.partition(" ")
    assert (status, json.loads(body)["error"]["code"]) == ("503", "DatabaseAway"), done.stderr
    assert "Traceback" not in done.stderr
