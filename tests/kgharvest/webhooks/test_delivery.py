"""Webhook delivery: signed and at least once, despite failures and killed processes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import multiprocessing
import os
import random
import re
import signal
import time
from collections import Counter
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from standardwebhooks.webhooks import Webhook as StandardWebhook
from standardwebhooks.webhooks import WebhookVerificationError

from kgharvest.events.models import Event
from kgharvest.events.recording import record
from kgharvest.jobs import ledger, messages
from kgharvest.jobs import outbox as jobs_outbox
from kgharvest.jobs.outbox import wait_after
from kgharvest.jobs.tasks import run_periodic_tasks
from kgharvest.jobs.workers import WorkerSpec
from kgharvest.models import Delivery, Job, Project, Webhook
from kgharvest.webhooks.delivery import headers_of, outbox
from kgharvest.webhooks.models import SECRET_SALT, secret_of
from kgharvest.webhooks.outbox import (
    create_webhook,
    delete_webhook,
    edit_webhook,
    enable_webhook,
    rotate_secret,
    send_again,
    send_test,
)
from tests.kgharvest.webhooks.receiver import receiving
from tests.postgres import on_postgresql, run_on_postgresql
from tests.refusals import refused

pytestmark = pytest.mark.django_db

PROJECT = 1
EVENT = "report.made"


@pytest.fixture(autouse=True)
def projects(db) -> None:
    for pk in (PROJECT, PROJECT + 1):
        Project.objects.create(pk=pk, name=f"Project {pk}", slug=f"project-{pk}")


@pytest.fixture(autouse=True)
def loopback_allowed(settings):
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.WEBHOOK_PORTS = range(65536)


def make_webhook(url: str = "http://127.0.0.1:9/hook", events=(EVENT,)) -> Webhook:
    return create_webhook(PROJECT, url, events)


def deliver(now=None) -> None:
    while deliveries := outbox.claim(now or timezone.now()):
        outbox.send(deliveries)


def is_signed(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """Check the Standard Webhooks headers and the deprecated ones; both must agree."""
    try:
        StandardWebhook(secret).verify(body, headers)
        is_standard = True
    except WebhookVerificationError:
        is_standard = False
    assert headers["webhook-id"] == headers["X-Kgharvest-Event-Id"]
    assert is_standard == has_old_signature(headers, body, secret)
    return is_standard


def has_old_signature(headers: dict[str, str], body: bytes, secret: str) -> bool:
    signed = headers["X-Kgharvest-Timestamp"].encode() + b"." + body
    expected = "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return any(hmac.compare_digest(expected, one) for one in headers["X-Kgharvest-Signature"].split(","))


def record_event(project_id: int | None = PROJECT, facts: dict | None = None) -> None:
    record(EVENT, ("report", 3), None, project_id, texts={"round": "pilot"}, path="/reports/3/", **(facts or {}))


# Outbox


def test_event_is_queued_for_subscribed_webhooks_of_its_project(settings):
    hook = make_webhook("http://127.0.0.1:9/a")
    make_webhook("http://127.0.0.1:9/b", ["job.finished"])
    create_webhook(PROJECT + 1, "http://127.0.0.1:9/a", [EVENT])

    record_event(PROJECT, {"report": 3})
    record_event(None)

    assert [(row.webhook, row.state) for row in Delivery.objects.all()] == [(hook, "waiting")]
    body = json.loads(Delivery.objects.get().body)
    assert (body["event"], body["project"], body["facts"]) == (
        EVENT,
        PROJECT,
        {"report": 3, "round": "pilot", "url": f"{settings.ORIGIN}/reports/3/"},
    )


def test_a_rolled_back_event_is_not_delivered():
    make_webhook()
    with transaction.atomic():
        record_event()
        transaction.set_rollback(True)

    assert not Delivery.objects.exists()


def test_webhook_requires_known_events_and_a_unique_url():
    hook = make_webhook()
    for events in ([], ["no.event"]):
        with refused("BadWebhook", match="Choose at least one"):
            create_webhook(PROJECT, "http://127.0.0.1:9/other", events)
    with refused("BadWebhook", match="already"):
        make_webhook(hook.url)
    other = make_webhook("http://127.0.0.1:9/other")
    with refused("BadWebhook", match="already"):
        edit_webhook(other, hook.url, [EVENT])


# Delivery attempts


def test_a_delivery_is_signed_and_logged():
    with receiving() as (url, receiver):
        created = create_webhook(PROJECT, url, [EVENT])
        record_event(PROJECT, {"report": 3})
        deliver()

    [(headers, body)] = receiver.requests
    row = Delivery.objects.get()
    assert is_signed(headers, body, created.secret)
    assert not is_signed(headers, body + b" ", created.secret)
    assert abs(int(headers["X-Kgharvest-Timestamp"]) - time.time()) < 60
    assert headers["webhook-id"] == str(row.event_id) == json.loads(body)["id"]
    assert (row.state, row.status, row.n_tries, row.error) == ("delivered", 204, 1, "")
    assert created.secret not in str(list(Webhook.objects.values()))


def test_retry_delay_grows_and_the_error_is_stored():
    with receiving(lambda number: [500, 302, 200][number - 1]) as (url, _):
        make_webhook(url)
        record_event()
        now = timezone.now()
        waits = []
        for error in ("Status 500.", "Status 302: redirects", ""):
            outbox.send(outbox.claim(now))
            row = Delivery.objects.get()
            assert row.error.startswith(error)
            waits.append(row.next_try_at - now)
            assert outbox.claim(now) == []
            now = row.next_try_at
    assert (row.state, row.n_tries) == ("delivered", 3)
    assert timedelta(seconds=5) <= waits[0] <= timedelta(seconds=10) <= waits[1] <= timedelta(seconds=20)
    assert timedelta(minutes=30) <= wait_after(40) <= timedelta(hours=1)


def test_only_one_process_claims_a_due_delivery():
    make_webhook()
    record_event()
    now = timezone.now()
    first, second = outbox.due(now).get(), outbox.due(now).get()

    assert [outbox._claim(row, now) for row in (first, second)] == [True, False]
    assert Delivery.objects.get().n_tries == 1


def test_webhook_is_disabled_after_two_days_of_failures():
    hook = make_webhook("http://127.0.0.1:1/nobody")
    record_event()
    deliver()
    record_event()
    two_days = timedelta(hours=48, seconds=1)
    Delivery.objects.update(give_up_at=timezone.now() - timedelta(seconds=1), next_try_at=timezone.now())
    Webhook.objects.update(failing_since=timezone.now() - two_days)
    deliver()

    hook.refresh_from_db()
    assert set(Delivery.objects.values_list("state", flat=True)) == {"failed"}
    assert "No response: " in Delivery.objects.first().error
    assert hook.is_disabled_by_failures
    assert Event.objects.last().sentence == f"disabled the webhook {hook.pk}"
    record_event()
    assert Delivery.objects.count() == 2
    for resend in (lambda: send_test(hook), lambda: send_again(Delivery.objects.select_related("webhook").first())):
        with refused("WebhookDisabled"):
            resend()

    enable_webhook(hook)
    send_again(Delivery.objects.select_related("webhook").first())
    hook.refresh_from_db()
    assert (hook.failing_since, Delivery.objects.waiting().count()) == (None, 1)


def test_a_success_ends_a_series_of_failures():
    with receiving(lambda number: 500 if number == 1 else 200) as (url, _):
        make_webhook(url)
        record_event()
        deliver()
        assert Webhook.objects.get().failing_since is not None
        Delivery.objects.update(next_try_at=timezone.now())
        deliver()

    assert Webhook.objects.get().failing_since is None


def test_both_secrets_sign_for_a_day_after_a_rotation():
    with receiving() as (url, receiver):
        old = create_webhook(PROJECT, url, [EVENT])
        new = rotate_secret(old)
        send_test(old)
        deliver()
        Webhook.objects.update(rotated_at=timezone.now() - timedelta(hours=24))
        send_test(old)
        deliver()

    (first, second) = receiver.requests
    assert [is_signed(*first, secret) for secret in (old.secret, new.secret)] == [True, True]
    assert [is_signed(*second, secret) for secret in (old.secret, new.secret)] == [False, True]


def test_one_job_sends_due_deliveries_and_deletes_old_ones(enqueued):
    with receiving() as (url, receiver):
        make_webhook(url)
        for _ in range(20):
            record_event()
        old = Delivery.objects.first()
        Delivery.objects.filter(pk=old.pk).update(
            state="delivered", delivered_at=timezone.now(), created_at=timezone.now() - timedelta(days=31)
        )
        for _ in range(2):
            outbox.enqueue_if_due(timezone.now())
        [job_id] = enqueued
        ledger.run_job(job_id)

    assert Job.objects.get().status == "succeeded"
    assert len(receiver.requests) == Delivery.objects.filter(state="delivered").count() == 19
    outbox.enqueue_if_due(timezone.now())
    assert len(enqueued) == 1


def test_deleting_a_webhook_deletes_pending_deliveries():
    hook = make_webhook()
    record_event()
    delete_webhook(hook)

    assert not Delivery.objects.exists()
    assert Event.objects.last().subject_id == str(hook.pk)


def test_deleting_a_webhook_while_sending_does_not_affect_others():
    with receiving() as (url, _):
        deleted, kept = make_webhook(f"{url}&deleted"), make_webhook(f"{url}&kept")
        record_event()
        deliveries = outbox.claim(timezone.now())
        delete_webhook(deleted)
        outbox.send(deliveries)

    assert [(row.webhook, row.state) for row in Delivery.objects.all()] == [(kept, "delivered")]


def test_working_webhooks_do_not_wait_for_failing_ones():
    failing, working = make_webhook(), create_webhook(PROJECT + 1, "http://127.0.0.1:9/well", [EVENT])
    for _ in range(outbox.rows_at_once):
        record_event()
    Webhook.objects.filter(pk=failing.pk).update(failing_since=timezone.now())
    record_event(PROJECT + 1)

    due = outbox.claim(timezone.now())

    assert [row.webhook for row in due] == [working] + [failing] * (outbox.rows_at_once - 1)


# Killed senders


def run_sender(seed: int) -> None:
    """Run periodic tasks and queued jobs, like a worker, until no delivery is pending."""
    random.seed(seed)
    connections.close_all()
    jobs_outbox.FIRST_WAIT_S = 0.01
    ledger.wake_for = lambda queues: None
    messages.wake = lambda queue, request_id="": None
    while Delivery.objects.waiting().exists():
        run_periodic_tasks(WorkerSpec("sender@here", ["urgent"], 1))
        for job in Job.objects.claimable(timezone.now()):
            ledger.run_job(job.pk)
        time.sleep(0.02)
    connection.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(120)
def test_forty_events_arrive_despite_failures_and_five_sender_kills(settings):
    settings.JOB_LEASE_S = 0.25
    settings.PERIODIC_TASKS = ["kgharvest.jobs.outbox.enqueue_due_outboxes"]
    settings.LOGGING_CONFIG = None
    with receiving(lambda number: 200 if number % 2 else 503) as (url, receiver):
        created = create_webhook(PROJECT, url, [EVENT])
        for number in range(40):
            record_event(PROJECT, {"number": number})
        for n_killed in range(6):
            connections.close_all()
            sender = multiprocessing.get_context("fork").Process(target=run_sender, args=[n_killed])
            sender.start()
            if n_killed < 5:
                enough = len(receiver.requests) + 5
                while len(receiver.requests) < enough and sender.is_alive():
                    time.sleep(0.002)
                os.kill(sender.pid, signal.SIGKILL)
            sender.join(60)
        assert sender.exitcode == 0

    arrived = Counter(receiver.event_ids())
    rows = {str(row.event_id): row for row in Delivery.objects.all()}
    assert len(rows) == 40
    assert arrived.keys() == rows.keys()
    assert all(is_signed(headers, body, created.secret) for headers, body in receiver.requests)
    assert {row.state for row in rows.values()} == {"delivered"}
    # An attempt is counted before it is sent, so a kill can only leave a counted attempt without a request.
    assert all(row.n_tries >= arrived[event_id] for event_id, row in rows.items())
    assert all((row.status, row.error) == (200, "") for row in rows.values())


# Documentation


def test_documented_receivers_accept_only_genuine_requests():
    page = Path("docs/webhooks.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]:
        names: dict = {}
        exec(code.replace('"whsec_..."', repr(secret_of("std:key"))), names)
        body = '{"id": "x"}'
        secrets = [secret_of("std:other"), secret_of("std:key")]

        def signed(now, body=body, secrets=secrets):
            return headers_of(EVENT, "x", body, secrets, now)

        headers = signed(timezone.now())
        moved = str(int(headers["webhook-timestamp"]) + 5)
        assert names["is_genuine"](headers, body.encode())
        assert not names["is_genuine"](headers, body.encode() + b" ")
        assert not names["is_genuine"](
            headers | {"X-Kgharvest-Timestamp": moved, "webhook-timestamp": moved}, body.encode()
        )
        assert not names["is_genuine"](signed(timezone.now() - timedelta(minutes=6)), body.encode())


@pytest.mark.parametrize("key", [f"{number:032x}" for number in range(8)])
def test_old_secrets_are_unchanged_and_sign_both_ways(key):
    """Their secrets are URL-safe base64. The standard signature uses the decoded bytes."""
    digest = salted_hmac(SECRET_SALT, key, algorithm="sha256").digest()
    secret = "whsec_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    headers = headers_of(EVENT, "x", "{}", [secret_of(key)], timezone.now())

    assert secret_of(key) == secret
    assert has_old_signature(headers, b"{}", secret)
    StandardWebhook("whsec_" + base64.b64encode(digest).decode()).verify(b"{}", headers)


@on_postgresql
def test_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout[-3000:]
