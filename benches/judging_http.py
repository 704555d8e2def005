"""Eight people judging at once over HTTP: judgments per second, server CPU per judgment, and waiting times.

    DATABASE_URL=postgres://... DEBUG=1 python benches/judging_http.py [--tasks 10000 1000000]    an empty database
    DATABASE_URL=sqlite:////tmp/a.sqlite3 DEBUG=1 python benches/judging_http.py --workers 1      the embedded default

Each round size is measured with newcomers, then with people who have 20,000 earlier judgments. A judgment is a
submitted answer, including a request for statements if it contains one; the wait covers both. First, people judge like
the judging page: an answer requests statements if it leaves fewer than four ahead, which is about every sixth answer.
Then every answer requests statements. Both run as fast as the server can. The page's way also runs at a steady 80
judgments/s, where a wait starts when the answer is due. Last, people use the plain form: each answer leads to a page
with the next statement. The CPU of the web server is that of gunicorn's processes. The CPU of the database is that of
PostgreSQL's processes, if it runs on this machine. Neither includes the clients.

Must hold: on PostgreSQL 150 judgments/s at 5 ms of the server's CPU each, within 20 % at every size, and 60/s at
12 ms by the form; 95 % of waits under 100 ms at 80 judgments/s, on SQLite too.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from django.conf import settings
from django.db import connection
from django.urls import reverse

from annotation.models import Annotator, Round
from benches.judging import BATCH, add_earlier_judgments, make_round
from tests.factories import make_annotators
from tests.load.web_server import WebServer, cpu_seconds, logged_in, url_of

N_ANNOTATORS = 8
N_EARLIER = 20_000
WARM_UP = 20
STEADY = 80  # judgments per second
ANSWER = {"label": "true", "seconds": "1.00", "comment": ""}


class Judge:
    """A person with a browser: a connection that stays open, and a minimal HTTP client that costs next to nothing."""

    accept = "application/json"

    def __init__(self, port: int, path: str, cookies: dict[str, str]):
        self._port = port
        headers = {
            "Host": f"127.0.0.1:{port}",
            "Accept": self.accept,
            "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()),
            "X-CSRFToken": cookies["csrftoken"],
            "X-Forwarded-Proto": "https",  # set by the proxy in production
            "Origin": f"https://127.0.0.1:{port}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.path = path
        self._head = f"{path} HTTP/1.1\r\n{lines}Content-Length: "
        self._known: set[int] = set()
        self._ahead: list[int] = []

    def judge(self, n: int, few: int, every_s: float) -> list[float]:
        """Return the seconds that each of `n` judgments took.

        A judgment is due every `every_s` seconds, or, if 0, when the previous one is done. An answer that leaves fewer
        than `few` statements ahead requests more.
        """
        with socket.create_connection(("127.0.0.1", self._port)) as self._socket:
            self._begin()
            waits, due = [], time.perf_counter()
            for _ in range(n):
                due = due + every_s if every_s else time.perf_counter()
                time.sleep(max(0, due - time.perf_counter()))
                self._answer(few)
                waits.append(time.perf_counter() - due)
            return waits

    def _begin(self) -> None:
        if not self._ahead:
            self._add_statements(json.loads(self._send("GET")))

    def _answer(self, few: int) -> None:
        shown = {"task": self._ahead.pop(0), "client_uuid": uuid4()}
        more = "1" if len(self._ahead) < few else ""
        self._add_statements(json.loads(self._send("POST", urlencode(shown | ANSWER | {"more": more}))))

    def _add_statements(self, reply: dict[str, Any]) -> None:
        fresh = [statement["task"] for statement in reply.get("tasks", []) if statement["task"] not in self._known]
        self._known.update(fresh)
        self._ahead += fresh

    def _send(self, method: str, body: str = "") -> bytes:
        self._socket.sendall(f"{method} {self._head}{len(body)}\r\n\r\n{body}".encode())
        received = b""
        while not (end := received.find(b"\r\n\r\n") + 4) > 3:
            received += self._received()
        head = received[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(received) < end + length:
            received += self._received()
        assert head.split()[1] in (b"200", b"302"), received
        return received[end:]

    def _received(self) -> bytes:
        received = self._socket.recv(65536)
        assert received, "The server closed the connection."
        return received


class FormJudge(Judge):
    """A person without JavaScript: submits each answer as a form and follows the redirect to the next page."""

    accept = "text/html"

    def _begin(self) -> None:
        self._page = self._send("GET").decode()

    def _answer(self, few: int) -> None:
        shown = {name: re.search(f'name="{name}" value="([^"]*)"', self._page)[1] for name in ("task", "client_uuid")}
        self._send("POST", urlencode(shown | ANSWER))
        self._page = self._send("GET").decode()


def judge_together(people: list[Judge], n: int, few: int, rate: float | None) -> list[float]:
    """Judge as all people at once, in threads, because they wait far more than they work."""
    every_s = len(people) / rate if rate else 0.0

    def run(position: int, person: Judge) -> list[float]:
        time.sleep(position * every_s / len(people))
        return person.judge(n, few, every_s)

    with ThreadPoolExecutor(len(people)) as pool:
        return [wait for waits in pool.map(run, count(), people) for wait in waits]


def measure(server: WebServer, people: list[Judge], n: int, few: int, rate: float | None) -> str:
    """Let every person give `n` answers, and return a line with their cost."""
    judge_together(people, WARM_UP, few, None)
    begin, web, database = time.perf_counter(), server.cpu_seconds(), database_seconds()
    waits = judge_together(people, n, few, rate)
    wall, web, database = time.perf_counter() - begin, server.cpu_seconds() - web, database_seconds() - database
    cuts = quantiles(waits, n=20)
    return (
        f"{len(waits) / wall:5.0f} judgments/s  CPU: web server {1000 * web / len(waits):5.2f} ms, database "
        f"{1000 * database / len(waits):5.2f} ms  median {1000 * cuts[9]:4.0f} ms  p95 {1000 * cuts[-1]:4.0f} ms"
    )


def database_seconds() -> float:
    """Return the CPU seconds of the processes of open connections to this database, or 0 if none are here."""
    if connection.vendor != "postgresql":
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return cpu_seconds([pid for (pid,) in cursor])


def annotators_of(round: Round, n_earlier: int) -> list[Annotator]:
    """Add new annotators in the middle of the round, each with `n_earlier` earlier judgments."""
    annotators = make_annotators(round, N_ANNOTATORS)
    for position, annotator in enumerate(annotators):
        annotator.next_position = round.n_tasks // 2 + position * round.n_tasks // 20
        annotator.n_judged = n_earlier
        annotator.save()
        if n_earlier:
            add_earlier_judgments(annotator, n_earlier)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does after this many new rows
    return annotators


# Class of judge; number of statements ahead below which more are requested; judgments per second, None for no limit.
WAYS = {
    "as the page": (Judge, 4, None),
    f"as the page, {STEADY}/s": (Judge, 4, STEADY),
    "each time": (Judge, BATCH, None),
    "by the form": (FormJudge, 0, None),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--workers", default="2")
    parser.add_argument("--judgments", type=int, default=100, help="number of judgments per annotator, for each figure")
    arguments = parser.parse_args()
    migrate()
    with WebServer(url_of(connection), settings.SECRET_KEY, "--workers", arguments.workers) as server:
        for n_tasks in arguments.tasks:
            round = make_round(n_tasks)
            for name, n_earlier in (("newcomers", 0), ("experienced", min(N_EARLIER, n_tasks // 2 - BATCH))):
                annotators = annotators_of(round, n_earlier)
                path = reverse("annotation:judge", args=[round.pk])
                for way, (kind, few, rate) in WAYS.items():
                    people = [kind(server.port, path, logged_in(annotator.user)) for annotator in annotators]
                    figures = measure(server, people, arguments.judgments, few, rate)
                    print(f"{n_tasks:>9,} tasks, {name:<12} {way:<18} {figures}", flush=True)


if __name__ == "__main__":
    main()
