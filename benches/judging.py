"""Server-side cost of one judgment: next_batch + submit_judgment, in rounds of 10,000 and 1,000,000 tasks.

    python benches/judging.py             on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/judging.py    on an empty PostgreSQL database

Measured for a newcomer and for an annotator with 20,000 earlier judgments. Then 5 % of the statements are reserved.
Measured for an expert and for another annotator, also when only reserved statements are open.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10_000, 1_000_000)
N_EARLIER = 20_000
MEASURED = 1000
BATCH = 10

sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from annotation.judging.assignment import next_batch, release_batch
from annotation.judging.judgments import Answer, submit_judgment
from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import Annotator, Assignment, Judgment, JudgmentTask, Label, Round
from evaluation.reports.services import create_report
from kgharvest.bulk.insert import insert_rows
from kgharvest.models import KnowledgeTuple, Project, Relation, RelationSet


@transaction.atomic
def make_round(n_tasks: int) -> Round:
    """Create a round without a harvest, because the measured code does not depend on the tasks' origin."""
    relation_set = RelationSet.objects.create(name=f"set-{n_tasks}", is_shipped=True)
    relation = Relation.objects.create(
        relation_set=relation_set, name="r", statement="<ENT0> <ENT1>", arity=2, initial_prompts=[], seed_tuples=[]
    )
    project, _ = Project.objects.get_or_create(slug="bench", defaults={"name": "bench"})
    round = Round.objects.create(
        project=project, name=f"bench-{n_tasks}", status=Round.Status.OPEN, batch_size=BATCH, n_tasks=n_tasks
    )
    insert_rows(
        KnowledgeTuple, ("relation", "entities", "key"), ((relation.pk, [str(n)], str(n)) for n in range(n_tasks))
    )
    columns = ("round", "knowledge_tuple", "statement", "entities", "spans", "position", "n_wanted")
    known = relation.knowledge_tuples.order_by("pk").values_list("pk", flat=True)
    insert_rows(JudgmentTask, columns, ((round.pk, pk, f"statement {n}", [], [], n, 3) for n, pk in enumerate(known)))
    return round


@transaction.atomic
def add_earlier_judgments(annotator: Annotator, n: int) -> None:
    """Add the annotator's judgments of the `n` tasks before their position. All these tasks stay open."""
    tasks_before = annotator.round.tasks.filter(position__lt=annotator.next_position).order_by("-position")
    tasks = list(tasks_before.values_list("pk", flat=True)[:n])
    now = timezone.now()
    leases = ((task, annotator.pk, "done", now) for task in tasks)
    insert_rows(Assignment, ("task", "annotator", "status", "expires_at"), leases)
    judgments = ((uuid4(), task, annotator.pk, "true", now) for task in tasks)
    insert_rows(Judgment, ("client_uuid", "task", "annotator", "label", "judged_at"), judgments)
    first = annotator.next_position - n
    open_tasks = annotator.round.tasks.filter(position__range=(first, annotator.next_position - 1), verdict="")
    open_tasks.update(n_judgments=1, n_true=1)


def cost_of_judging(annotator: Annotator) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of this process per judgment. Each statement is requested when needed."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(MEASURED):
        task = next_batch(annotator, timezone.now())[0]
        submit_judgment(annotator, Answer(task.pk, Label.TRUE, uuid4()), timezone.now())
    return (time.perf_counter() - wall) / MEASURED, (time.process_time() - cpu) / MEASURED


def print_cost_of_reservations(round: Round) -> None:
    tasks = round.tasks.filter(verdict="", n_leased=0)
    expert, other = (
        Annotator.objects.create(round=round, code=code, next_position=round.n_tasks // 4)
        for code in ("expert", "other")
    )
    begin = time.perf_counter()
    reservation = reserve_statements(round, [expert.code], knowledge_tuple__relation=relation_of(round, tasks))
    print(f"{round.n_tasks:>9,} tasks, {reservation.n_reserved:,} reserved in {time.perf_counter() - begin:.2f} s")
    for annotator in (expert, other):
        wall, cpu = cost_of_judging(annotator)
        print(f"{round.n_tasks:>9,} tasks, {annotator.code:<14} wall {1000 * wall:6.2f}  CPU {1000 * cpu:6.2f}")
        print_plans(annotator)
    pool = round.tasks.filter(reservation=None, n_leased=0)
    pool.update(n_judgments=3, n_true=3, n_false=0, n_unjudgeable=0, n_wanted=3, verdict="accepted")
    release_batch(other)
    for annotator in (expert, other):
        begin = time.perf_counter()
        for _ in range(10):
            next_batch(annotator, timezone.now())
        wall = (time.perf_counter() - begin) / 10
        print(
            f"{round.n_tasks:>9,} tasks, end of the pool, {annotator.code}: {1000 * wall:.2f} ms per batch", flush=True
        )
    begin = time.perf_counter()
    release_reservation(reservation)
    print(f"{round.n_tasks:>9,} tasks, released in {time.perf_counter() - begin:.2f} s", flush=True)


def relation_of(round: Round, tasks) -> int:
    """Move every 20th tuple of the round to a second relation, and return its id."""
    relation = Relation.objects.create(
        relation_set=RelationSet.objects.get(name=f"set-{round.n_tasks}"),
        name="second",
        statement="<ENT0> <ENT1>",
        arity=2,
        initial_prompts=[],
        seed_tuples=[],
    )
    KnowledgeTuple.objects.filter(judgment_tasks__in=tasks.alias(rest=F("position") % 20).filter(rest=0)).update(
        relation=relation
    )
    return relation.pk


def print_plans(annotator: Annotator) -> None:
    release_batch(annotator)
    with CaptureQueriesContext(connection) as queries:
        next_batch(annotator, timezone.now())
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    for query in queries:
        if "judgmenttask" in query["sql"] and 'ORDER BY "annotation_judgmenttask"."position"' in query["sql"]:
            with connection.cursor() as cursor:
                cursor.execute(f"{explain} {query['sql']}")
                print(*(f"    {row[-1]}" for row in cursor.fetchall()), sep="\n")


def main() -> None:
    migrate()
    print(f"{connection.vendor}; milliseconds per judgment (next_batch + submit_judgment)")
    for n_tasks in SIZES:
        round = make_round(n_tasks)
        middle = n_tasks // 2
        for name, n_earlier in (("newcomer", 0), (f"{N_EARLIER:,} earlier", N_EARLIER)):
            n_earlier = min(n_earlier, middle - BATCH)
            annotator = Annotator.objects.create(round=round, code=name, next_position=middle, n_judged=n_earlier)
            if n_earlier:
                add_earlier_judgments(annotator, n_earlier)
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")  # as PostgreSQL's autovacuum does after this many new rows
            wall, cpu = cost_of_judging(annotator)
            print(f"{n_tasks:>9,} tasks, {name:<14} wall {1000 * wall:6.2f}  CPU {1000 * cpu:6.2f}", flush=True)
        begin = time.perf_counter()
        create_report(round)
        print(f"{n_tasks:>9,} tasks, report          {time.perf_counter() - begin:.2f} s", flush=True)
        print_cost_of_reservations(round)


if __name__ == "__main__":
    main()
