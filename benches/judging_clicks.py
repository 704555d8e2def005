"""CPU time and SQL statements of one answer in the web process, in JSON and by the plain form.

    python benches/judging_clicks.py             on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/judging_clicks.py    on an empty PostgreSQL database

The judging page uses JSON. The plain form answers with a redirect to the page with the next statement. Requests go
through Django's test client, without network and threads, so that two versions can be compared on a machine that others
also use. Prints the minimum of twenty batches. SQLite works in this process; PostgreSQL's own work is not included.

Must hold: 5 ms in JSON and 12 ms by the form on PostgreSQL, including its own work (see benches/judging_http.py).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse

from annotation.models import Round
from benches.judging import BATCH, make_round
from tests.factories import make_annotators

FEW = 4  # statements ahead; with fewer, the page requests more
BATCHES, CLICKS = 20, 25


def json_clicks(client: Client, url: str) -> Callable[[], None]:
    ahead = [statement["task"] for statement in client.get(url).json()["tasks"]]

    def click() -> None:
        answer = {"task": ahead.pop(0), "label": "true", "client_uuid": uuid4(), "seconds": "1.00", "comment": ""}
        reply = client.post(url, answer | {"more": "1" if len(ahead) < FEW else ""}).json()
        ahead.extend(task for statement in reply.get("tasks", []) if (task := statement["task"]) not in ahead)

    return click


def form_clicks(client: Client, url: str) -> Callable[[], None]:
    pages = [client.get(url).content.decode()]

    def click() -> None:
        page = pages.pop()
        shown = {name: re.search(f'name="{name}" value="([^"]*)"', page)[1] for name in ("task", "client_uuid")}
        pages.append(client.post(url, shown | {"label": "true", "seconds": ""}, follow=True).content.decode())

    return click


def _client_of_new_annotator(round: Round, accept: str) -> tuple[Client, str]:
    [annotator] = make_annotators(round, 1)
    client = Client(headers={"accept": accept})
    client.force_login(annotator.user)
    return client, reverse("annotation:judge", args=[round.pk])


def n_statements(click: Callable[[], None]) -> int:
    statements = []
    with connection.execute_wrapper(lambda execute, sql, *rest: statements.append(sql) or execute(sql, *rest)):
        click()
    return len(statements)


def cpu_ms(click: Callable[[], None]) -> float:
    """Return the CPU milliseconds of this process per click, in the batch with the least."""
    batches = []
    for _ in range(BATCHES):
        begin = time.process_time()
        for _ in range(CLICKS):
            click()
        batches.append(1000 * (time.process_time() - begin) / CLICKS)
    return min(batches)


def main() -> None:
    settings.ALLOWED_HOSTS.append("testserver")
    settings.DEBUG = False  # with DEBUG, Django stores every SQL statement
    migrate()
    round = make_round(10_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does after this many new rows
    for name, accept, clicks in (("JSON", "application/json", json_clicks), ("form", "text/html", form_clicks)):
        click = clicks(*_client_of_new_annotator(round, accept))
        for _ in range(BATCH):  # warm up: one-time work
            click()
        print(
            f"{connection.vendor}, {name}: {cpu_ms(click):5.2f} ms of CPU, {n_statements(click)} statements", flush=True
        )


if __name__ == "__main__":
    main()
