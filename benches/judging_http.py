"""Eight people judging at once over HTTP: judgments per second, CPU of the server for each, and how long people wait.

    DATABASE_URL=postgres://... DEBUG=1 python benches/judging_http.py [--tasks 10000 1000000]    an empty database

For each size of a round: newcomers, then people with 20,000 judgments behind them. A judgment is an answer submitted
and what asking for statements adds to it; the wait for both counts. First as the judging page asks: a batch of ten, and
more when fewer than four are left, so once in about six answers. Then strictly: asked for before each answer.

Must hold: 80 judgments/s, 10 ms of the server's CPU each, 95 % of waits under 100 ms, within 20 % at every size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles
from uuid import uuid4

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["DJANGO_SETTINGS_MODULE"] = "kgharvest.settings"
folder = tempfile.TemporaryDirectory(prefix="kgharvest-bench-")
os.environ.setdefault("KGHARVEST_DATA_DIR", folder.name)  # the processes that judge share it

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.urls import reverse  # noqa: E402

from annotation.models import Round  # noqa: E402
from benches.judging import BATCH, give_a_past, make_round  # noqa: E402
from tests.factories import make_annotators  # noqa: E402
from tests.load.web_server import Browser, WebServer, logged_in, url_of  # noqa: E402

N_ANNOTATORS = 8
N_CLIENTS = 2  # processes
BEHIND = 20_000
WARM_UP = 20
ASKING = {"as the page": 4, "each time": BATCH}  # with fewer statements ahead, more are asked for


def judge(port: int, path: str, cookies: dict[str, str], n: int, few: int) -> list[float]:
    """Return the seconds that each of `n` judgments took, asking for statements when fewer than `few` are ahead."""
    browser, waits, known, ahead = Browser(port, cookies), [], set(), []
    for _ in range(n):
        begin = time.perf_counter()
        if len(ahead) < few:
            found = browser.json("GET", path)[1]["tasks"]
            ahead += [each["task"] for each in found if each["task"] not in known]
            known.update(ahead)
        answer = {"task": ahead.pop(0), "label": "true", "client_uuid": uuid4(), "seconds": 1}
        assert browser.json("POST", path, **answer)[0] == 200
        waits.append(time.perf_counter() - begin)
    return waits


def judge_together(port: int, path: str, people: list[dict[str, str]], n: int, few: int) -> list[float]:
    """Judge as several people at once, in threads: they wait more than they work."""
    with ThreadPoolExecutor(len(people)) as pool:
        waits = pool.map(judge, *zip(*((port, path, cookies, n, few) for cookies in people), strict=True))
    return [wait for theirs in waits for wait in theirs]


def measure(
    server: WebServer, path: str, people: list[dict[str, str]], pool: ProcessPoolExecutor, n: int, few: int
) -> str:
    """Let everybody give `n` answers and say what they cost."""

    def run(n: int) -> list[float]:
        shares = [people[start::N_CLIENTS] for start in range(N_CLIENTS)]
        jobs = [pool.submit(judge_together, server.port, path, share, n, few) for share in shares]
        return [wait for job in jobs for wait in job.result()]

    run(WARM_UP)
    cpu, begin = server.cpu_seconds(), time.perf_counter()
    waits = run(n)
    wall, cpu = time.perf_counter() - begin, server.cpu_seconds() - cpu
    p95 = quantiles(waits, n=20)[-1]
    return f"{len(waits) / wall:5.0f} judgments/s  {1000 * cpu / len(waits):5.2f} ms CPU  p95 {1000 * p95:4.0f} ms"


def people_of(round: Round, n_behind: int) -> list[dict[str, str]]:
    """Let new annotators join in the middle of the round, each with `n_behind` judgments before that."""
    annotators = make_annotators(round, N_ANNOTATORS)
    for place, annotator in enumerate(annotators):
        annotator.next_position = round.n_tasks // 2 + place * round.n_tasks // 20
        annotator.n_judged = n_behind
        annotator.save()
        if n_behind:
            give_a_past(annotator, n_behind)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does after so many new rows
    return [logged_in(annotator.user) for annotator in annotators]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--workers", default="2")
    parser.add_argument("--judgments", type=int, default=150, help="of each annotator, for each figure")
    arguments = parser.parse_args()
    clients = ProcessPoolExecutor(N_CLIENTS, multiprocessing.get_context("spawn"))
    call_command("migrate", verbosity=0)
    with WebServer(url_of(connection), settings.SECRET_KEY, "--workers", arguments.workers) as server:
        for n_tasks in arguments.tasks:
            round = make_round(n_tasks)
            path = reverse("annotation:judge", args=[round.name])
            for name, n_behind in (("newcomers", 0), ("many behind", min(BEHIND, n_tasks // 2 - BATCH))):
                people = people_of(round, n_behind)
                for asking, few in ASKING.items():
                    figures = measure(server, path, people, clients, arguments.judgments, few)
                    print(f"{n_tasks:>9,} tasks, {name:<12} {asking:<12} {figures}", flush=True)


if __name__ == "__main__":
    main()
