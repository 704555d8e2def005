"""Health, readiness, and metrics: content, access, and sums over several processes."""

from __future__ import annotations

import re
import subprocess
import sys
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from kgharvest.celery import app
from kgharvest.operations import health, metrics
from tests import factories

pytestmark = pytest.mark.django_db
FOREIGN = {"REMOTE_ADDR": "192.0.2.7"}


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def scraped(client, **extra) -> dict[str, float]:
    """Return the value of each sample by its name and labels."""
    lines = client.get("/metrics", **extra).content.decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_healthz_accepts_any_host_name(client, settings):
    settings.SECURE_SSL_REDIRECT = True

    response = client.get("/healthz", headers={"host": "10.0.0.7:8000"})

    assert (response.status_code, response.content) == (200, b"ok\n")
    assert client.post("/healthz").status_code == 405


def test_a_server_is_ready_if_database_and_broker_answer(client, django_assert_max_num_queries):
    assert client.get("/readyz").json() == {
        "ready": True,
        "checks": {"database": "ok", "migrations": "ok", "broker": "ok", "files": "ok"},
    }
    with django_assert_max_num_queries(0):  # the result is cached
        client.get("/readyz")


def test_a_lost_connection_is_reported_as_down(client, monkeypatch):
    def fail():
        raise InterfaceError("the connection is closed")

    monkeypatch.setattr(connection, "cursor", fail)

    assert client.get("/readyz").json()["checks"]["database"].startswith("no answer (the connection is closed)")


def test_only_operators_see_the_reason_for_failures(client, monkeypatch):
    monkeypatch.setattr(app.conf, "broker_url", "amqp://kgharvest:password@127.0.0.1:9//")

    def fail():
        raise OperationalError("connection to server at db.internal failed")

    monkeypatch.setattr(connection, "cursor", fail)
    local = client.get("/readyz")
    remote = client.get("/readyz", **FOREIGN)

    assert (local.status_code, remote.status_code) == (503, 503)
    assert remote.json()["checks"]["database"] == "down"
    assert "db.internal" in local.json()["checks"]["database"]
    assert "password" not in local.content.decode()


def test_server_with_pending_migrations_is_not_ready(monkeypatch):
    monkeypatch.setattr(health, "has_pending_migrations", lambda: True)

    assert not health.readiness()["migrations"].is_well


def test_only_one_request_waits_for_an_unresponsive_store(monkeypatch):
    class Silent:
        place, n_checks, concurrent_finding = "s3://lab", 0, None

        def check(self):
            self.n_checks += 1
            if self.n_checks == 1:
                self.concurrent_finding = health.check_files()

    store = Silent()
    monkeypatch.setattr(health, "kept_files", lambda: store)

    found = health.check_files()

    assert (found, store.n_checks) == (health.Finding(True, "s3://lab"), 1)
    assert store.concurrent_finding == health.Finding(False, "s3://lab has not answered yet")


def test_unexpected_store_errors_are_reported(client, monkeypatch):
    class Broken:
        place = "s3://lab"

        def check(self):
            raise RuntimeError("no room for a temporary file")

    monkeypatch.setattr(health, "kept_files", Broken)
    message = "the check of s3://lab failed (RuntimeError: no room for a temporary file); see the log"

    first = client.get("/readyz")
    cache.delete("operations:readiness")
    second, remote = client.get("/readyz"), client.get("/readyz", **FOREIGN)

    assert [response.json()["checks"]["files"] for response in (first, second, remote)] == [message, message, "down"]
    assert first.status_code == 200  # a failing store does not affect readiness


@pytest.mark.parametrize(
    ("token", "sent", "address", "status"),
    [
        ("", "", "127.0.0.1", 200),
        ("", "", "::1", 200),
        ("", "", "192.0.2.7", 403),
        ("secret", "", "127.0.0.1", 403),
        ("secret", "Bearer secret", "192.0.2.7", 200),
        ("secret", "Bearer other", "192.0.2.7", 403),
    ],
)
def test_metrics_require_the_token_or_by_default_a_local_address(client, settings, token, sent, address, status):
    settings.METRICS_TOKEN = token

    response = client.get("/metrics", headers={"authorization": sent}, REMOTE_ADDR=address)

    assert response.status_code == status


def test_metrics_access_uses_the_client_address_behind_a_proxy(client, settings):
    settings.PROXY_COUNT = 1

    assert client.get("/metrics", headers={"x-forwarded-for": "192.0.2.7"}).status_code == 403


def test_jobs_judgments_workers_and_requests_are_measured(client):
    factories.make_harvest_job("queued")
    factories.make_harvest_job("failed", error="gone")
    factories.judge_all(factories.make_round(2), ["true", "false"])
    factories.make_worker(timezone.now(), n_processes=2)
    before = scraped(client)
    client.get("/accounts/password_reset/done/?name=ada")  # not requested by browsers of other tests
    client.get("/no/such/page/")

    after = scraped(client)

    assert after['kgharvest_jobs{kind="harvest",state="queued"}'] == 1
    assert after['kgharvest_jobs{kind="harvest",state="failed"}'] == 1
    assert after["kgharvest_judgments_total"] == after["kgharvest_judgments_last_minute"] == 2
    assert (after["kgharvest_workers_alive"], after["kgharvest_worker_processes"]) == (1, 2)
    assert (after['kgharvest_workers{state="idle"}'], after['kgharvest_workers{state="lost"}']) == (1, 0)
    assert (after['kgharvest_jobs_waiting{queue="harvest"}'], after['kgharvest_queue_workers{queue="gpu"}']) == (1, 1)
    assert after["kgharvest_webhook_deliveries_waiting"] == 0
    assert after["kgharvest_database_up"] == 1
    for sample in (
        'kgharvest_requests_total{method="GET",status="200",view="password_reset_done"}',
        'kgharvest_requests_total{method="GET",status="404",view="none"}',
        'kgharvest_request_seconds_count{method="GET",view="password_reset_done"}',
        'kgharvest_request_seconds_bucket{le="+Inf",method="GET",view="password_reset_done"}',
    ):
        assert after[sample] - before.get(sample, 0) == 1
    assert "ada" not in str(after)


def test_unknown_http_methods_share_one_label(client):
    client.generic(invented := uuid4().hex.upper(), "/nowhere/")

    labels = str(scraped(client).keys())
    assert 'method="other"' in labels
    assert invented not in labels


def test_metrics_are_available_without_the_database(client, monkeypatch):
    def fail(now):
        raise OperationalError

    monkeypatch.setattr(metrics, "import_string", lambda path: fail)

    assert scraped(client)["kgharvest_database_up"] == 0


def test_requests_are_summed_over_processes_without_dead_ones(client, settings, tmp_path, monkeypatch):
    # A separate folder: web servers of other tests delete the files of dead processes in the shared folder.
    settings.METRICS_DIR = tmp_path / settings.METRICS_DIR.relative_to(settings.DATA_DIR)
    monkeypatch.setenv("KGHARVEST_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(settings.METRICS_DIR))
    sample = 'kgharvest_requests_total{method="GET",status="200",view="of another process"}'
    code = (
        "import django; django.setup(); from kgharvest.operations.metrics import REQUESTS, create_metrics_folder; "
        "create_metrics_folder(); REQUESTS.labels('of another process', 'GET', '200').inc()"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True)

    assert scraped(client)[sample] == 2
    metrics.forget_dead_processes()
    assert sample not in scraped(client)


def test_the_text_is_valid_for_prometheus(client):
    text = client.get("/metrics").content.decode()

    assert re.search(r"^# TYPE kgharvest_judgments_total counter$", text, re.MULTILINE)
    assert re.search(r"^# TYPE kgharvest_database_up gauge$", text, re.MULTILINE)


def test_files_deleted_while_reading_are_ignored(monkeypatch, db):
    readings = []

    def generate(registry):
        readings.append(registry)
        if len(readings) == 1:
            raise FileNotFoundError
        return b"metrics"

    monkeypatch.setattr(metrics.prometheus_client, "generate_latest", generate)

    assert metrics.exposition() == b"metrics"
