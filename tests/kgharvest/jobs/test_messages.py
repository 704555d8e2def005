"""Unavailable message brokers: callers do not wait, and the status is shown until the broker responds."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from celery import Celery
from django.template.loader import render_to_string
from kombu.exceptions import OperationalError as BrokerError

from kgharvest.jobs import ledger, messages
from kgharvest.models import Job
from tests import factories


@pytest.fixture(autouse=True)
def messenger(monkeypatch) -> messages.Messenger:
    messenger = messages.Messenger()
    monkeypatch.setattr(messages, "messenger", messenger)
    monkeypatch.setattr(messages, "LOOK_EVERY_S", 1e9)
    return messenger


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def wait_for_recovery(messenger: messages.Messenger) -> None:
    while not messenger.run(lambda: None, wait_s=60) or messenger.away_since():
        pass


def refuse(*args, **kwargs) -> None:
    raise BrokerError("connection refused")


@pytest.mark.django_db(transaction=True)
def test_unavailable_broker_loses_no_job(monkeypatch, messenger):
    monkeypatch.setattr(messages.app, "send_task", refuse)
    job = factories.make_harvest_job()

    ledger.enqueue(job)

    assert Job.objects.get(pk=job.pk).status == "queued"
    assert messages.away_since() is not None


def test_only_the_first_caller_waits_briefly_for_a_hanging_broker(monkeypatch, messenger):
    monkeypatch.setattr(messages, "LONGEST_WAIT_S", 0.05)
    answers, sent = threading.Event(), []

    is_sent = messenger.run(answers.wait, wait_s=0.05)
    while (was_away := messages.away_since()) is None:  # the thread may start later
        time.sleep(0.01)
    # These calls would block forever if they waited.
    are_sent = [messenger.run(lambda n=n: sent.append(n), wait_s=None) for n in range(3)]

    assert (is_sent, are_sent, sent) == (False, [False] * 3, [])
    assert messages.away_since() == was_away
    answers.set()
    wait_for_recovery(messenger)
    assert sent == [0, 1, 2]  # queued messages are sent after the broker responds
    assert messages.away_since() is None


def test_a_full_message_queue_drops_messages(monkeypatch):
    monkeypatch.setattr(messages, "LONGEST_WAIT_S", 0)
    monkeypatch.setattr(messages, "MAX_QUEUED", 2)
    messenger, begun, answers, done = messages.Messenger(), threading.Event(), threading.Event(), []
    messenger.run(lambda: begun.set() or answers.wait(), wait_s=0)
    begun.wait()

    for number in range(5):
        messenger.run(lambda number=number: done.append(number), wait_s=0)

    answers.set()
    wait_for_recovery(messenger)
    assert done == [0, 1]


@pytest.mark.parametrize("scheme", ["amqp", "redis"])
def test_silent_broker_counts_as_unavailable(monkeypatch, silent_port, scheme):
    options = {"socket_timeout": 0.2, "socket_connect_timeout": 0.2} if scheme == "redis" else {}
    app = Celery(broker=f"{scheme}://127.0.0.1:{silent_port}//")
    app.conf.update(broker_connection_timeout=0.2, broker_transport_options=options)
    monkeypatch.setattr(messages, "app", app)
    monkeypatch.setattr(messages, "CONNECT_WITHIN_S", 0.2)

    with pytest.raises((BrokerError, OSError)):
        messages.connect()
    assert not messages.messenger.run(lambda: app.send_task("t", retry_policy=messages.RETRY_ONCE), wait_s=60)
    assert messages.away_since() is not None


def test_forked_process_can_send_messages(messenger):
    messenger.run(lambda: None)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        messenger.forget()  # the module's messenger does this automatically
        os.write(writes, b"sent" if messenger.run(lambda: None, wait_s=60) else b"hung")
        os._exit(0)

    os.waitpid(child, 0)
    assert os.read(reads, 10) == b"sent"


def test_pages_show_since_when_the_broker_is_unavailable(monkeypatch, messenger):
    def shown() -> str:
        return render_to_string("kgharvest/jobs/_no_worker.html", {"lacks_worker": "No worker is running."})

    assert "No worker is running" in shown()
    messenger.run(refuse, wait_s=60)
    assert "The message broker has been unavailable since" in shown()
    assert "No worker is running" not in shown()
    wait_for_recovery(messenger)
    assert "No worker is running" in shown()


def test_showing_pages_checks_the_broker(monkeypatch, messenger):
    looked = threading.Event()
    monkeypatch.setattr(messages, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(messages, "connect", looked.set)

    messages.away_since()

    assert looked.wait(60)
