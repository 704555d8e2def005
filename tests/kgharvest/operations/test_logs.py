"""Logging: one id for a request and its jobs, and no personal data."""

from __future__ import annotations

import json
import logging
from time import process_time

import pytest
from django.db import IntegrityError

from kgharvest.jobs import ledger, messages, tasks
from kgharvest.operations.logs import (
    JsonFormatter,
    LineFormatter,
    blacked_out,
    logged_under,
    request_id,
    without_addresses,
)
from tests import factories
from tests.kgharvest.test_settings import run_python

LINE = LineFormatter("%(levelname)s %(name)s: %(message)s")


@pytest.fixture
def lines(caplog):
    """Return a function that formats the captured log records as the console handler does."""
    caplog.set_level(logging.INFO, logger="kgharvest.requests")
    caplog.handler.addFilter(without_addresses)
    yield lambda formatter: [formatter.format(record) for record in caplog.records]
    caplog.handler.removeFilter(without_addresses)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/join/secret-token/", "/return/secret-token/?name=grace", "/secret-token/"])
def test_paths_are_logged_as_url_patterns(client, lines, path):
    response = client.get(path)

    for formatter in (LINE, JsonFormatter()):
        text = "\n".join(lines(formatter))
        assert "secret-token" not in text
        assert "grace" not in text  # cannot occur in a hexadecimal id
    entries = [json.loads(line) for line in lines(JsonFormatter())]
    [line] = [line for line in entries if line["logger"] == "kgharvest.requests"]
    assert line["request_id"] == response.headers["X-Request-ID"]
    assert line["status"] == response.status_code
    assert {"time", "level", "view", "ms"} < set(line)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sent_id", "is_used"), [("abc-123_4.5", True), ("short", False), ("x" * 65, False), ("a b c d e f g", False)]
)
def test_valid_request_ids_of_the_proxy_are_used(client, sent_id, is_used):
    response_id = client.get("/accounts/login/", headers={"x-request-id": sent_id}).headers["X-Request-ID"]

    assert (response_id == sent_id) == is_used
    assert len(response_id) >= 8
    assert request_id.get() == ""


def test_email_addresses_and_tokens_are_masked(lines):
    logging.getLogger("kgharvest").warning("sent to %s with %s", "ada@example.org", "kgh_abcDEF123")

    for formatter in (LINE, JsonFormatter()):
        assert "sent to [mail] with [token]" in lines(formatter)[0]


def test_masking_of_long_words_is_fast():
    for word in ("a" * 60_000, "a@" * 30_000, "a@" + "b." * 30_000, "kgh" * 20_000):
        started = process_time()
        blacked_out(f"Invalid HTTP_HOST header: '{word}'.")
        assert process_time() - started < 1


def test_error_log_has_the_location_but_no_database_values(lines):
    try:
        raise IntegrityError("duplicate key\nDETAIL: Key (username)=(ada) already exists.")
    except IntegrityError:
        logging.getLogger("kgharvest").exception("failed")

    line = json.loads(lines(JsonFormatter())[0])
    assert line["error"] == "IntegrityError: duplicate key"
    assert "test_logs.py" in line["traceback"][-1]


@pytest.mark.django_db(transaction=True)
def test_job_inherits_the_request_id(monkeypatch):
    sent = []
    monkeypatch.setattr(messages.app, "send_task", lambda name, **options: sent.append(options))
    job_request_ids = []
    monkeypatch.setattr(ledger, "run_job", lambda job_id: job_request_ids.append(request_id.get()) or True)
    monkeypatch.setattr(ledger, "wake_next", lambda queue, now: None)

    with logged_under("request-1"):
        ledger.enqueue(factories.make_harvest_job())
    tasks.run_job.apply(headers=sent[0]["headers"], routing_key=sent[0]["queue"])

    assert job_request_ids == ["request-1"]
    assert request_id.get() == ""


def test_log_setting_accepts_lines_or_json(tmp_path):
    assert "KGHARVEST_LOG is 'xml'" in run_python(tmp_path, "manage.py", "check", KGHARVEST_LOG="xml").stderr
