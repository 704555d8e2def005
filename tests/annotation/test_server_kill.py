"""A web server that dies by SIGKILL while people judge: what it acknowledged is stored, once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse

from annotation.models import Judgment
from annotation.services.joining import join_round
from tests.factories import make_round, make_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

N_ANNOTATORS = 3
KILLED_AFTER = 20  # acknowledged answers


@pytest.fixture
def server():
    """A web server in a process of its own on the test's database, which must be a file."""
    if connection.vendor != "sqlite":
        pytest.skip("the server is told of the test database by the name of its file")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "gunicorn", "kgharvest.wsgi", "--bind", address, "--threads", "4"]
    environment = {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "SECRET_KEY": settings.SECRET_KEY,
        "DEBUG": "1",
    }
    process = subprocess.Popen(command, env=environment, cwd=settings.BASE_DIR, start_new_session=True)
    wait_for(address, process)
    yield process, f"http://{address}"
    if process.poll() is None:
        kill(process)


def wait_for(address: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(f"http://{address}/accounts/login/")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail("the web server did not start")


def kill(process: subprocess.Popen) -> None:
    """Kill the server's whole process group, as the system does when memory runs out."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def judge_until_it_dies(url: str, path: str, user, acknowledged: list[UUID]) -> None:
    with browser_of(user, url) as browser:
        try:
            while True:
                for task in browser.get(path).json()["tasks"]:
                    answer = {"task": task["task"], "label": "true", "client_uuid": str(uuid4())}
                    stored = browser.post(path, data=answer).json()["stored"]
                    acknowledged.append(UUID(stored))
        except httpx.TransportError:
            return


def browser_of(user, url: str) -> httpx.Client:
    client = Client()
    client.force_login(user)
    connection.close()
    session, token = client.cookies[settings.SESSION_COOKIE_NAME].value, "a" * 32
    return httpx.Client(
        base_url=url,
        cookies={settings.SESSION_COOKIE_NAME: session, settings.CSRF_COOKIE_NAME: token},
        headers={"accept": "application/json", "x-csrftoken": token},
    )


def test_no_acknowledged_judgment_is_lost(server):
    process, url = server
    round = make_round(200, batch_size=5)
    path = reverse("annotation:judge", args=[round.name])
    users = [make_user() for _ in range(N_ANNOTATORS)]
    for user in users:
        join_round(round, user)
    acknowledged: list[UUID] = []
    people = [threading.Thread(target=judge_until_it_dies, args=(url, path, user, acknowledged)) for user in users]

    for person in people:
        person.start()
    while len(acknowledged) < KILLED_AFTER and any(person.is_alive() for person in people):
        time.sleep(0.01)
    kill(process)
    for person in people:
        person.join()

    stored = set(Judgment.objects.values_list("pk", flat=True))
    assert len(acknowledged) >= KILLED_AFTER
    assert set(acknowledged) <= stored
    assert sum(round.tasks.values_list("n_judgments", flat=True)) == len(stored)
