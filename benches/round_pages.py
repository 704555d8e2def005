"""Response times of a round's pages with 1,000,000 tasks and 300,000 judgments by 200 annotators.

    python benches/round_pages.py [--tasks 1000000] [--keep FOLDER]    on SQLite in a temporary folder, or in FOLDER
    DATABASE_URL=postgres://... DEBUG=1 python benches/round_pages.py  on an empty PostgreSQL database

With --keep, or on PostgreSQL, a database that is already filled is reused. A tenth of the tasks is judged, by three
people each; a third of these tasks has disagreement, and a ninth has no majority. Every hundredth judgment has a
comment, every thousandth task a report, every five hundredth judged task an adjudication, and one task in a hundred is
gold.

A second round has 1,350 cells: 450 relations by three LMs, with seven statements each, and three judgments per
statement. Its page passes if it takes less than 300 ms of CPU, including the first request.

Prints for each page the median time of 20 requests at the server, the CPU time of this process, and the number of
queries. A page passes if it answers in under 200 ms. Then prints the cost of recounting, and of excluding an annotator
who gave a fifteenth of all judgments.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median
from uuid import UUID

ROOT = Path(__file__).resolve().parent.parent
N_ANNOTATORS = 200
N_RELATIONS, N_MODELS, N_DRAWN = 450, 3, 7  # size of the round with many cells
N_REQUESTS = 20
LIMIT_MS = 200
CELLS_LIMIT_MS = 300  # CPU time


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--keep", metavar="FOLDER", help="folder that keeps the SQLite database for the next run")
    return parser.parse_args()


OPTIONS = arguments()
N_TASKS = OPTIONS.tasks
N_JUDGED = N_TASKS // 10  # tasks; three judgments each

sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django(OPTIONS.keep)

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.models import (
    Adjudication,
    Annotator,
    Draw,
    Judgment,
    JudgmentTask,
    Round,
    StatementReport,
    Stratum,
)
from annotation.monitoring.cells import count_cells
from annotation.monitoring.progress import count_progress
from annotation.quality.annotator_statistics import count_annotators
from annotation.quality.exclusion import exclude_annotator, exclusion_effect, reinstate_annotator
from kgharvest.bulk.insert import insert_rows
from kgharvest.models import HarvestJob, KnowledgeTuple, LanguageModel, Project, Relation, RelationSet

T, F, U = "true", "false", "unjudgeable"
LABELS = ((T, T, T), (F, F, F), (T, T, T), (F, F, F), (T, T, F), (T, T, T), (F, F, F), (T, F, F), (T, F, U))


# Data


@transaction.atomic
def make_round() -> Round:
    relation_set = RelationSet.objects.create(name="bench", is_shipped=True)
    relation = Relation.objects.create(
        relation_set=relation_set, name="r", statement="<ENT0> <ENT1>", arity=2, initial_prompts=[], seed_tuples=[]
    )
    round = Round.objects.create(
        project=Project.objects.create(name="bench", slug="bench"),
        name="bench",
        status=Round.Status.OPEN,
        n_tasks=N_TASKS,
        gold_share=0.01,
        opened_at=timezone.now(),
    )
    insert_rows(
        KnowledgeTuple, ("relation", "entities", "key"), ((relation.pk, [str(n)], str(n)) for n in range(N_TASKS))
    )
    known = KnowledgeTuple.objects.order_by("pk").values_list("pk", flat=True)
    columns = ("round", "knowledge_tuple", "statement", "entities", "spans", "position", "n_wanted", "n_judgments")
    columns += ("n_true", "n_false", "n_unjudgeable", "verdict", "is_gold", "gold_label")
    insert_rows(JudgmentTask, columns, ((round.pk, pk, *_task(n)) for n, pk in enumerate(known)))
    stratum = Stratum.objects.create(round=round, relation=relation, sample_size=N_TASKS)
    tasks = list(round.tasks.order_by("position").values_list("pk", flat=True))
    insert_rows(Draw, ("stratum", "task"), ((stratum.pk, task) for n, task in enumerate(tasks) if not _is_gold(n)))
    annotators = Annotator.objects.bulk_create(Annotator(round=round, code=f"a-{n}") for n in range(N_ANNOTATORS))
    _judge(tasks, [annotator.pk for annotator in annotators])
    return round


def _is_gold(n: int) -> bool:
    return n % 100 == 99


def _labels(n: int) -> tuple[str, ...]:
    return LABELS[n % len(LABELS)] if n < N_JUDGED else ()


def _task(n: int) -> tuple:
    if _is_gold(n):
        return f"statement {n}", [], [], n, 0, 0, 0, 0, 0, "", True, T
    counts = [_labels(n).count(label) for label in (T, F, U)]
    verdict = "accepted" if counts[0] > 1 else "rejected" if counts[1] > 1 else "undecided"
    return f"statement {n}", [], [], n, 3, sum(counts), *counts, verdict if sum(counts) else "", False, ""


def _judge(tasks: list[int], annotators: list[int]) -> None:
    now = timezone.now()
    rows = (
        (UUID(int=3 * n + position), tasks[n], _annotator(annotators, n, position), label, 1 + n % 7, now,
         "so it is" if (3 * n + position) % 100 == 0 else "", not _is_gold(n))
        for n in range(N_JUDGED) for position, label in enumerate(_labels(n))
    )  # fmt: skip
    columns = ("client_uuid", "task", "annotator", "label", "seconds", "judged_at", "comment", "is_counted")
    insert_rows(Judgment, columns, rows)
    reported = ((task, annotators[1], "other", now) for task in tasks[::1000])
    insert_rows(StatementReport, ("task", "annotator", "reason", "reported_at"), reported)
    adjudicated = ((UUID(int=n), tasks[n], T, now) for n in range(0, N_JUDGED, 500))
    insert_rows(Adjudication, ("client_uuid", "task", "label", "at"), adjudicated)


def _annotator(annotators: list[int], n: int, position: int) -> int:
    """Return the annotator of a judgment. The first annotator has judged a fifth of all judged tasks."""
    return annotators[0] if n % 5 == 0 and position == 0 else annotators[1 + (3 * n + position) % (N_ANNOTATORS - 1)]


# Round with many cells


@transaction.atomic
def make_round_of_many_cells() -> Round:
    n_tasks = N_RELATIONS * N_MODELS * N_DRAWN
    round = Round.objects.create(
        project=Project.objects.get(slug="bench"),
        name="cells",
        status="open",
        n_tasks=n_tasks,
        opened_at=timezone.now(),
    )
    relation_set = RelationSet.objects.create(name="cells", is_shipped=True)
    relations = Relation.objects.bulk_create(
        Relation(relation_set=relation_set, name=f"relation_{n:03}", statement="<ENT0> <ENT1>", arity=2,
                 initial_prompts=[], seed_tuples=[])
        for n in range(N_RELATIONS)
    )  # fmt: skip
    models = LanguageModel.objects.bulk_create(LanguageModel(name=f"lm-{n}") for n in range(N_MODELS))
    strata = Stratum.objects.bulk_create(
        _stratum(round, relation, model, 50 + (37 * number + 101 * place) % 450)
        for number, relation in enumerate(relations) for place, model in enumerate(models)
    )  # fmt: skip
    tuples = (
        (relation.pk, [f"{n}", f"{number}"], f"{n} {number}")
        for relation in relations for n in range(N_MODELS) for number in range(N_DRAWN)
    )  # fmt: skip
    insert_rows(KnowledgeTuple, ("relation", "entities", "key"), tuples)
    known = KnowledgeTuple.objects.filter(relation__in=relations).order_by("pk").values_list("pk", flat=True)
    columns = ("round", "knowledge_tuple", "statement", "entities", "spans", "position", "n_wanted", "n_judgments")
    columns += ("n_true", "n_false", "n_unjudgeable", "verdict", "is_gold", "gold_label")
    insert_rows(JudgmentTask, columns, ((round.pk, pk, *_plain_task(n)) for n, pk in enumerate(known)))
    tasks = list(round.tasks.order_by("position").values_list("pk", flat=True))
    insert_rows(Draw, ("stratum", "task"), ((strata[n // N_DRAWN].pk, task) for n, task in enumerate(tasks)))
    annotators = Annotator.objects.bulk_create(Annotator(round=round, code=f"c-{n}") for n in range(10))
    begin = timezone.now() - timedelta(days=5)
    rows = (
        (UUID(int=10**9 + 3 * n + position), task, annotators[(n + position) % 10].pk, label, 2 + n % 7,
         begin + timedelta(seconds=40 * n), "", True)
        for n, task in enumerate(tasks) for position, label in enumerate(_labels_with_gaps(n))
    )  # fmt: skip
    names = ("client_uuid", "task", "annotator", "label", "seconds", "judged_at", "comment", "is_counted")
    insert_rows(Judgment, names, rows)
    return round


def _stratum(round: Round, relation: Relation, model: LanguageModel, population: int) -> Stratum:
    job = HarvestJob.objects.create(
        project=round.project, kind="import", status="succeeded", relation=relation, language_model=model,
        setting="multi", n_tuples=population, started_at=round.opened_at, finished_at=round.opened_at,
    )  # fmt: skip
    return Stratum(
        round=round, relation=relation, language_model=model, setting="multi", job=job, rank_to=population,
        population=population, sample_size=N_DRAWN,
    )  # fmt: skip


def _labels_with_gaps(n: int) -> tuple[str, ...]:
    """Return the labels of a statement. A tenth of the statements lack judgments."""
    return LABELS[n % len(LABELS)][: n % 3] if n % 10 == 3 else LABELS[(n + n // N_DRAWN) % len(LABELS)]


def _plain_task(n: int) -> tuple:
    labels = _labels_with_gaps(n)
    counts = [labels.count(label) for label in (T, F, U)]
    verdict = "accepted" if counts[0] > 1 else "rejected" if counts[1] > 1 else "undecided"
    return f"Statement {n} holds.", [], [], n, 3, sum(counts), *counts, verdict if len(labels) == 3 else "", False, ""


# Measurement


def pages(round: Round) -> Iterator[str]:
    relation, middle = round.strata.get().relation_id, round.tasks.get(position=N_TASKS // 2).pk
    yield from (
        "/rounds/",
        "/projects/bench/rounds/bench/",
        "/projects/bench/rounds/bench/progress.json",
        "/projects/bench/rounds/bench/close/",
    )
    yield from (
        "/projects/bench/rounds/bench/annotators/",
        "/projects/bench/rounds/bench/annotators/a-0/",
        "/projects/bench/rounds/bench/annotators/a-1/",
    )
    yield from (
        "/projects/bench/rounds/bench/limits/",
        "/projects/bench/rounds/bench/invites/",
        "/projects/bench/rounds/bench/events/",
    )
    for query in ("", "page=400", "pattern=1-1-1", "verdict=undecided", f"relation={relation}"):
        yield f"/projects/bench/rounds/bench/statements/?{query}"
    for show in ("all", "reported", "commented", "adjudicated", "gold"):
        yield f"/projects/bench/rounds/bench/statements/?show={show}"
    for query in (f"page={N_TASKS // 30}", "verdict=incomplete", "verdict=undecided", f"relation={relation}",
                  "pattern=3-0-0", f"relation={relation}&verdict=rejected"):  # fmt: skip
        yield f"/projects/bench/rounds/bench/statements/?show=all&{query}"
    yield f"/projects/bench/rounds/bench/statements/{middle}/"
    yield from (
        "/projects/bench/rounds/bench/adjudicate/",
        "/projects/bench/rounds/bench/adjudicate/?queue=disagreements",
    )
    yield f"/projects/bench/rounds/bench/adjudicate/?queue=disagreements&after={N_JUDGED // 2}"


def measure(client: Client, path: str) -> tuple[float, float, int]:
    """Return the median wall-clock and CPU milliseconds of this process, and the number of queries."""
    client.get(path)  # computes the counts that are cached
    with CaptureQueriesContext(connection) as queries:
        response = client.get(path)
    n_queries = len(queries)  # the next request clears them
    assert response.status_code == 200, (path, response.status_code)
    times, cpu_times = [], []
    for _ in range(N_REQUESTS):
        start, cpu_start = time.perf_counter(), time.process_time()
        client.get(path)
        times.append(1000 * (time.perf_counter() - start))
        cpu_times.append(1000 * (time.process_time() - cpu_start))
    return median(times), median(cpu_times), n_queries


def show_many_cells(client: Client) -> None:
    """Print the cost of the first request to each page with many cells, then of later requests."""
    page = "/projects/bench/rounds/cells/"
    gc.collect()
    gc.freeze()  # as gunicorn.conf.py does
    for path in (
        page,
        f"{page}?cells=list",
        f"{page}?q=relation_1&sort=-s1",
        f"{page}statements/?show=all&side=1.multi",
    ):
        start = time.thread_time()  # excludes work in other threads
        response = client.get(path)
        first_ms = 1000 * (time.thread_time() - start)
        wall_ms, cpu_ms, n_queries = measure(client, path)
        late = "   TOO SLOW" if max(first_ms, cpu_ms) > CELLS_LIMIT_MS else ""
        first = f"first {first_ms:.0f} ms of CPU, {len(response.content) / 1000:,.0f} kB"
        print(f"{wall_ms:8.1f} ms  {cpu_ms:8.1f} ms of CPU  {n_queries:3d} queries  {path}, {first}{late}", flush=True)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    migrate()
    if not Round.objects.exists():
        print(f"filled in {seconds(make_round) + seconds(make_round_of_many_cells):.0f} s", flush=True)
        get_user_model().objects.create_superuser("bench")
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    round = Round.objects.get(name="bench")
    print(f"{connection.vendor}; {round.n_tasks:,} tasks")
    client = Client(SERVER_NAME="localhost")
    client.force_login(get_user_model().objects.get(username="bench"))
    client.get("/projects/bench/rounds/bench/")  # one-time loading per process
    show_many_cells(client)
    cells = Round.objects.get(name="cells")
    print(f"counting cells       {seconds(lambda: count_cells(cells)):6.2f} s", flush=True)
    for path in pages(round):
        wall_ms, cpu_ms, n_queries = measure(client, path)
        late = "   TOO SLOW" if wall_ms > LIMIT_MS else ""
        print(f"{wall_ms:8.1f} ms  {cpu_ms:8.1f} ms of CPU  {n_queries:3d} queries  {path}{late}", flush=True)
    first = round.annotators.get(code="a-0")
    print(f"counting progress    {seconds(lambda: count_progress(round)):6.2f} s", flush=True)
    print(f"counting annotators  {seconds(lambda: count_annotators(round)):6.2f} s", flush=True)
    print(f"effect of excluding  {seconds(lambda: exclusion_effect(first)):6.2f} s", flush=True)
    print(f"excluding            {seconds(lambda: exclude_annotator(first, 'bench')):6.2f} s", flush=True)
    print(f"reinstating          {seconds(lambda: reinstate_annotator(first)):6.2f} s", flush=True)


if __name__ == "__main__":
    main()
