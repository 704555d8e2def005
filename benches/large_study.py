"""Response times of a full-size study: 1,000,000 tuples, each judged by three people.

    DATABASE_URL=postgres://... DEBUG=1 python benches/large_study.py [--parts fill report pages judging sizes]

Runs on an empty PostgreSQL database, or on one that it has filled before. The data: the tuples and harvests of
benches/pages.py; a closed round of all these tuples with three judgments each by 500 people, and their assignments,
draws, and audit log entries; an open round of a tenth of the tuples. gunicorn serves it with two workers, as in
production.

pages: every page that links lead to from the start page, one address per view and set of parameters; the hard searches
of benches/pages.py; and the API's lists. Prints the first request, then the median and 95th percentile of ten more.
judging: 200 people at 80 judgments/s for a minute. A wait starts when the answer is due. First, each answer requests
the next statements; then as the judging page does. report: the report of the closed round, in its own process. Also
prints the CPU time of server, database, and client, because other load on the machine increases waits, but not CPU.

Must hold: pages 300 ms, next + submit 100 ms (95th percentiles), a report 60 s.
"""

from __future__ import annotations

import argparse
import html
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit
from uuid import UUID

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.urls import Resolver404, get_resolver, resolve, reverse
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.sealing import seal_judgments
from annotation.judging.verdicts import majority
from annotation.models import Annotator, Assignment, Draw, Judgment, JudgmentTask, Round, Stratum
from benches import pages as knowledge
from benches.judging_http import Judge, database_seconds, judge_together
from benches.report import peak_gb
from evaluation.reports.services import create_report
from kgharvest.bulk.insert import insert_rows
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple, Project
from tests.load.web_server import Browser, WebServer, collect_static_files, logged_in, url_of

PARTS = ("fill", "report", "pages", "judging", "sizes")
REPORT = "--report-of"
JUDGED, OPEN = "judged", "open"
N_ANNOTATORS, K = 500, 3
OPEN_SHARE = 10  # one in this many tuples is in the open round
LABELS = ("true", "false", "unjudgeable")
SETTINGS_OF_SERVER = ("--workers", "2")
N_PEOPLE, RATE, SECONDS = 200, 80, 60
WAYS = {"with each answer": 10, "as the page does": 4}  # statements ahead below which more are requested
N_REQUESTS = 10
PAGE_LIMIT_MS, CLICK_LIMIT_MS, REPORT_LIMIT_S = 300, 100, 60
TASK_COLUMNS = (
    "round", "knowledge_tuple", "statement", "entities", "spans", "position", "n_wanted", "n_judgments",
    "n_true", "n_false", "n_unjudgeable", "verdict",
)  # fmt: skip


# Data


def fill(n_tuples: int) -> None:
    print_cost("knowledge", lambda: knowledge.fill(n_tuples))
    get_user_model().objects.create_superuser("operator")
    known = list(KnowledgeTuple.objects.order_by("pk").values_list("pk", "entities"))
    rng = np.random.default_rng(0)
    rng.shuffle(known)
    print_cost("the judged round", lambda: fill_judged_round(known, rng))
    print_cost("the open round", lambda: fill_open_round(known[::OPEN_SHARE]))
    print_cost("sealing", seal_judgments)
    run_sql("VACUUM ANALYZE")


def print_cost(name: str, fill_part) -> None:
    begin, cpu = time.perf_counter(), time.process_time()
    fill_part()
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{name}: {seconds:.0f} s, {cpu_s:.0f} s of CPU in this process", flush=True)


def new_round(name: str, n_tasks: int, **fields) -> Round:
    project = Project.objects.get(slug="bench")
    opened = timezone.now() - timedelta(days=60)
    return Round.objects.create(project=project, name=name, n_tasks=n_tasks, opened_at=opened, **fields)


def statement_of(entities: list[str]) -> tuple[str, list[list[int]]]:
    head, tail = entities
    begin = len(head) + len(" goes with ")
    return f"{head} goes with {tail}.", [[0, len(head)], [begin, begin + len(tail)]]


@transaction.atomic
def fill_judged_round(known: list[tuple[int, list[str]]], rng: np.random.Generator) -> None:
    now = timezone.now()
    n = len(known)
    round = new_round(JUDGED, n, source="simulated", status="closed", closed_at=now, completed_at=now)
    annotators = Annotator.objects.bulk_create(
        Annotator(round=round, code=f"a{number:03}", n_judged=K * n // N_ANNOTATORS, n_handed_out=K * n // N_ANNOTATORS)
        for number in range(N_ANNOTATORS)
    )
    people, labels = judgments_of(n, rng)  # (n, K) each
    counts = np.stack([(labels == label).sum(axis=1) for label in range(3)], axis=1).tolist()
    insert_rows(
        JudgmentTask, TASK_COLUMNS,
        (
            (round.pk, pk, *(text := statement_of(entities))[:1], entities, text[1], position, K, K, *counts[position],
             majority(*counts[position][:2], K).value)
            for position, (pk, entities) in enumerate(known)
        ),
    )  # fmt: skip
    tasks = dict(round.tasks.order_by().values_list("position", "pk"))
    draw(round, {known[position][0]: task for position, task in tasks.items()})
    ids = [annotator.pk for annotator in annotators]
    given = ((tasks[position], ids[person]) for position, row in enumerate(people.tolist()) for person in row)
    insert_rows(Assignment, ("task", "annotator", "status", "expires_at"), ((*pair, "done", now) for pair in given))
    seconds = np.round(rng.lognormal(1.3, 0.6, (n, K)), 2).tolist()
    begin, step_s = round.opened_at, 60 * 86400 / (K * n)
    insert_rows(
        Judgment, ("client_uuid", "task", "annotator", "label", "seconds", "judged_at", "comment"),
        (
            (UUID(bytes=rng.bytes(16), version=4), tasks[position], ids[people[position, place]],
             LABELS[labels[position, place]], seconds[position][place],
             begin + timedelta(seconds=step_s * (K * position + place)), "so it is" if position % 100 == place else "")
            for position in range(n) for place in range(K)
        ),
    )  # fmt: skip


def judgments_of(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the annotators and labels of `n` statements: indexes of people and of LABELS, both of shape (n, K).

    Seven in ten statements are true. People are right in 65 to 95 % and label every tenth statement unjudgeable.
    """
    first, steps = rng.integers(N_ANNOTATORS, size=(n, 1)), rng.integers(1, N_ANNOTATORS // K, size=(n, K))
    people = (first + np.cumsum(steps, axis=1)) % N_ANNOTATORS  # steps of under a third of the circle, so all differ
    is_true = rng.random((n, 1)) < 0.7
    is_right = rng.random((n, K)) < 0.65 + 0.3 * people / N_ANNOTATORS
    labels = np.where(is_true == is_right, 0, 1)
    return people, np.where(rng.random((n, K)) < 0.1, 2, labels)


def draw(round: Round, task_of: dict[int, int]) -> None:
    """Draw all tuples of every harvest. task_of: the task id of each tuple id."""
    for job in HarvestJob.objects.filter(n_tuples__gt=0):
        drawn = HarvestedTuple.objects.filter(job=job).order_by("rank").values_list("pk", "knowledge_tuple_id")
        stratum = Stratum.objects.create(
            round=round, relation_id=job.relation_id, language_model_id=job.language_model_id, setting=job.setting,
            job=job, rank_to=job.n_tuples, population=job.n_tuples, sample_size=job.n_tuples,
        )  # fmt: skip
        rows = ((stratum.pk, task_of[known], harvested, 1.0) for harvested, known in drawn if known in task_of)
        insert_rows(Draw, ("stratum", "task", "harvested_tuple", "inclusion_probability"), rows)


@transaction.atomic
def fill_open_round(known: list[tuple[int, list[str]]]) -> None:
    round = new_round(OPEN, len(known), status="open")
    insert_rows(
        JudgmentTask, TASK_COLUMNS,
        (
            (round.pk, pk, *(text := statement_of(entities))[:1], entities, text[1], position, K, 0, 0, 0, 0, "")
            for position, (pk, entities) in enumerate(known)
        ),
    )  # fmt: skip
    draw(round, dict(round.tasks.order_by().values_list("knowledge_tuple", "pk")))


def run_sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


# Pages


def address_class(address: str) -> tuple | None:
    """Return the view of an address and the names of its parameters, or None if it is not a page to measure."""
    parts = urlsplit(address)
    try:
        match = resolve(parts.path)
    except Resolver404:
        return None
    view = match.view_name
    if parts.netloc or view is None or view.startswith(("admin", "oidc")) or "logout" in view or "static" in view:
        return None
    names = {f"{name}={value}" if name in ("sort", "show", "queue", "part") else name for name, value in
             parse_qsl(parts.query) if value}  # fmt: skip
    return view, *sorted(names - {"page", "after"})


def crawl(browser: Browser) -> dict[tuple, str]:
    """Return one address of each class that links lead to from the start page, in the order found."""
    found: dict[tuple, str] = {address_class("/"): "/"}
    waiting = ["/"]
    while waiting:
        page = waiting.pop(0)
        begin = time.perf_counter()
        try:
            status, body = browser.request("GET", page)
        except OSError as error:
            print(f"{error}: {page}", flush=True)
            del found[address_class(page)]
            continue
        if (seconds := time.perf_counter() - begin) > 1:
            print(f"very first request, {seconds:.1f} s: {page}", flush=True)
        if status != 200 or not body.lstrip()[:15].lower().startswith(b"<!doctype html"):
            continue
        for link in re.findall(rb'<a [^>]*?href="([^"#]+)', body):
            address = urljoin(page, html.unescape(link.decode()))
            kind = address_class(address)
            if kind and kind not in found and "." not in urlsplit(address).path.rpartition("/")[2]:
                found[kind] = address
                waiting.append(address)
    return found


def api_lists(round: Round) -> Iterator[str]:
    """Yield the addresses of the API's lists that need no id, or only that of a round."""
    known = {"round_id": round.pk}
    for namespace, (_, resolver) in get_resolver().namespace_dict.items():
        for name in resolver.reverse_dict:
            if isinstance(name, str) and name.startswith("api_"):
                for _, parameters in resolver.reverse_dict.getlist(name)[0][0]:
                    if set(parameters) <= set(known):
                        yield reverse(f"{namespace}:{name}", kwargs={key: known[key] for key in parameters})


class Reader(Browser):
    """A person who reads pages. Requests JSON from the API."""

    def request(self, method: str, path: str, **fields) -> tuple[int, bytes]:
        self._headers["Accept"] = "application/json" if path.startswith("/api/") else "text/html"
        return super().request(method, path, **fields)


class Cost:
    """Cost of the requests between the object's creation and `per`."""

    def __init__(self, server: WebServer):
        self._server = server
        self._begin = self._now()

    def _now(self) -> tuple[float, ...]:
        return time.perf_counter(), self._server.cpu_seconds(), database_seconds(), time.process_time()

    def per(self, n: int) -> tuple[float, ...]:
        """Return wall-clock milliseconds, and CPU milliseconds of server, database, and client, for one of `n`."""
        return tuple(1000 * (now - then) / n for now, then in zip(self._now(), self._begin, strict=True))


def measure_pages(server: WebServer, only: str) -> None:
    operator = get_user_model().objects.get(username="operator")
    browser = Reader(server.port, logged_in(operator))
    rounds = {round.name: round for round in Round.objects.filter(name__in=[JUDGED, OPEN])}
    begin = time.perf_counter()
    pages = list(crawl(browser).values())
    print(f"{len(pages)} pages found in {time.perf_counter() - begin:.0f} s", flush=True)
    pages += [path for _, path in knowledge.pages()]
    pages += round_pages(rounds[JUDGED])
    pages += api_lists(rounds[JUDGED])
    waits = []
    for page in dict.fromkeys(page for page in pages if only in page):
        waits += measure_page(server, browser, page)
    p95 = quantiles(waits, n=20)[-1]
    print(f"{len(waits)} requests for pages: median {median(waits):.0f} ms, 95th percentile {p95:.0f} ms")


def round_pages(round: Round) -> Iterator[str]:
    page = f"/projects/bench/rounds/{round.name}/"
    for query in ("page=400", "pattern=1-1-1", "verdict=undecided", "show=all", "show=commented", "show=adjudicated"):
        yield f"{page}statements/?{query}"
    for query in (f"page={round.n_tasks // 30}", "pattern=3-0-0", "verdict=rejected"):
        yield f"{page}statements/?show=all&{query}"
    yield f"{page}progress.json"
    yield f"{page}adjudicate/?queue=disagreements&after={round.n_tasks // 2}"


def measure_page(server: WebServer, browser: Browser, page: str) -> list[float]:
    """Print the cost of a page, and return the milliseconds of the requests after the first."""
    first, (status, body) = timed(lambda: browser.request("GET", page))
    if status != 200:
        print(f"{status} {page}", flush=True)
        return []
    n = N_REQUESTS if first < 3000 else 3
    cost = Cost(server)
    waits = [timed(lambda: browser.request("GET", page))[0] for _ in range(n)]
    _, web, database, _ = cost.per(n)
    p95 = quantiles(waits, n=20, method="inclusive")[-1]
    late = "   TOO SLOW" if p95 > PAGE_LIMIT_MS else "   SLOW AT FIRST" if first > PAGE_LIMIT_MS else ""
    print(
        f"first {first:6.0f}  median {median(waits):6.0f}  p95 {p95:6.0f} ms  CPU {web:5.0f} + {database:5.0f} ms "
        f"{len(body) / 1000:6.0f} kB  {page}{late}",
        flush=True,
    )
    return waits


def timed(call) -> tuple[float, object]:
    begin = time.perf_counter()
    result = call()
    return 1000 * (time.perf_counter() - begin), result


# Judging, report, sizes


class Judging(NamedTuple):
    """Cost of `n` consecutive judgments, in milliseconds each, and the seconds that people waited for each."""

    n: int
    wall_ms: float
    server_ms: float
    database_ms: float
    client_ms: float
    wal_bytes: float
    waits: list[float]

    def wait_ms(self, percent: int) -> float:
        return 1000 * quantiles(self.waits, n=100)[percent - 1]


def people_of(server: WebServer, n: int = N_PEOPLE) -> list[Judge]:
    """Return people who judge in the open round."""
    round = Round.objects.get(name=OPEN)
    path = reverse("annotation:judge", args=[round.pk])
    users = [get_user_model().objects.get_or_create(username=f"person-{number}")[0] for number in range(n)]
    return [Judge(server.port, path, logged_in(join_round(round, user).user)) for user in users]


def judge_at(server: WebServer, people: list[Judge], few: int, rate: float, seconds: float) -> Judging:
    """Let people judge together at `rate` judgments per second. few: see benches.judging_http.Judge."""
    wal, cost = wal_position(), Cost(server)
    waits = judge_together(people, round(rate * seconds) // len(people), few, rate)
    n = len(waits)
    return Judging(n, *cost.per(n), (wal_position() - wal) / n, waits)


def wal_position() -> int:
    """Return the number of WAL bytes that the whole server has written, for any client."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        return cursor.fetchone()[0]


def measure_judging(server: WebServer) -> None:
    people = people_of(server)
    judge_at(server, people, 4, RATE, 15)  # warm up: first pages, first batches, prepared SQL statements
    for way, few in WAYS.items():
        judging = judge_at(server, people, few, RATE, SECONDS)
        late = "   TOO SLOW" if judging.wait_ms(95) > CLICK_LIMIT_MS else ""
        print(
            f"{way}: {judging.n} judgments at {1000 / judging.wall_ms:.0f}/s by {N_PEOPLE} people: median "
            f"{judging.wait_ms(50):.0f}, p95 {judging.wait_ms(95):.0f}, p99 {judging.wait_ms(99):.0f} ms; CPU per "
            f"judgment: server {judging.server_ms:.2f}, database {judging.database_ms:.2f}, client "
            f"{judging.client_ms:.2f} ms; {judging.wal_bytes:,.0f} bytes of WAL{late}",
            flush=True,
        )


def measure_report() -> None:
    subprocess.run([sys.executable, __file__, REPORT], check=True)


def report() -> None:
    round = Round.objects.get(name=JUDGED)
    database, cpu, begin = database_seconds(), time.process_time(), time.perf_counter()
    document = create_report(round).document
    seconds, cpu, database = time.perf_counter() - begin, time.process_time() - cpu, database_seconds() - database
    late = "   TOO SLOW" if seconds > REPORT_LIMIT_S else ""
    print(
        f"report of {document['n_judgments']:,} judgments: {seconds:.1f} s, CPU {cpu:.1f} + {database:.1f} s of the "
        f"database, peak {peak_gb():.2f} GB{late}",
        flush=True,
    )


SIZES = """
SELECT relname, n_live_tup, pg_table_size(relid), pg_indexes_size(relid) FROM pg_stat_user_tables
ORDER BY pg_total_relation_size(relid) DESC
"""


def show_sizes(n: int = 12) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        print(f"database: {cursor.fetchone()[0] / 1e9:.2f} GB")
        cursor.execute(SIZES)
        for name, rows, table, indexes in islice(cursor.fetchall(), n):
            print(f"{name:32} {rows:>10,} rows  {table / 1e6:8.1f} MB, indexes {indexes / 1e6:8.1f} MB")


def main() -> None:
    if sys.argv[1:] == [REPORT]:
        report()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--only", default="", metavar="TEXT", help="only pages whose address contains this text")
    options = parser.parse_args()
    settings.DEBUG = False  # with DEBUG, Django stores every SQL statement
    migrate()
    if "fill" in options.parts and not KnowledgeTuple.objects.exists():
        fill(options.tuples)
    if "report" in options.parts:
        measure_report()
    if {"pages", "judging"} & set(options.parts):
        collect_static_files()
        with WebServer(url_of(connection), settings.SECRET_KEY, *SETTINGS_OF_SERVER) as server:
            if "pages" in options.parts:
                measure_pages(server, options.only)
            if "judging" in options.parts:
                measure_judging(server)
    if "sizes" in options.parts:
        show_sizes()


if __name__ == "__main__":
    main()
