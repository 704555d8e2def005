"""Response times of researchers' pages with a million tuples: median of 20 requests at the server, and queries.

    python benches/pages.py [--tuples 1000000] [--keep FOLDER]    on SQLite in a temporary folder, or in FOLDER
    DATABASE_URL=postgres://... DEBUG=1 python benches/pages.py   on an empty PostgreSQL database

With --keep, or on PostgreSQL, a database that is already filled is reused. The data: fifty relations, the first with a
fifth of all tuples, harvested from two LMs in two settings that share some of their tuples; one entity in every
twentieth tuple; 20,000 judged statements; 2,000 harvests without tuples. The services fill the database, so the line
"stored" shows the speed of an import without its parsing. A page passes if it answers in under 200 ms.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
N_RELATIONS = 50
N_IDLE_RELATIONS = 500
N_IDLE_JOBS = 2000
N_JUDGED = 20_000
MODELS = ("lm-one", "lm-two")
SETTINGS = ("human", "multi")
SHARED = 0.1  # share of a cell's tuples that the next cell also contains
HUB = "person"
HUB_EVERY = 20
REQUESTS = 20
LIMIT_MS = 200


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--keep", metavar="FOLDER", help="folder that keeps the SQLite database for the next run")
    return parser.parse_args()


OPTIONS = arguments() if __name__ == "__main__" else None
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django(OPTIONS and OPTIONS.keep)

from django.contrib.auth import get_user_model
from django.db import connection, reset_queries, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from annotation.models import Draw, JudgmentTask, Round, Stratum
from kgharvest.accounts.projects import create_project
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestJob, KnowledgeTuple, LanguageModel, Project, Relation, RelationSet

AT_ONCE = {"batch_size": 5000}


# Data


def fill(n_tuples: int) -> None:
    rng = random.Random(0)
    project = create_project("bench", get_user_model().objects.create_superuser("bench"))
    relation_set = RelationSet.objects.create(name="bench", is_shipped=True)
    sentence = "<ENT0> goes with <ENT1> ."
    relations = Relation.objects.bulk_create(
        Relation(relation_set=relation_set, name=f"r{n}", statement=sentence, arity=2, initial_prompts=[sentence],
                 seed_tuples=[["a", "b"], ["c", "d"]])
        for n in range(N_RELATIONS + N_IDLE_RELATIONS)
    )  # fmt: skip
    models = LanguageModel.objects.bulk_create(LanguageModel(name=name) for name in MODELS)
    start, cpu_start = time.perf_counter(), time.process_time()
    sizes = [share(number, n_tuples) for number in range(N_RELATIONS)]
    n_stored = sum(fill_relation(relation, models, size, rng) for relation, size in zip(relations, sizes, strict=False))
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    rate = f"{n_stored / seconds:,.0f} per second"
    print(f"stored {n_stored:,} harvested tuples in {seconds:.0f} s ({cpu_s:.0f} s of CPU), {rate}", flush=True)
    for _ in range(N_IDLE_JOBS):
        make_job(rng.choice(relations), rng.choice(models), rng.choice(SETTINGS))
    judge(relations[0], project, rng)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def share(number: int, n_tuples: int) -> int:
    """Return the number of tuples of a relation: a fifth of all for the first, equal shares for the others."""
    return n_tuples // 5 if number == 0 else n_tuples * 4 // 5 // (N_RELATIONS - 1)


def fill_relation(relation: Relation, models: list[LanguageModel], n_tuples: int, rng: random.Random) -> int:
    rows = [row(relation, number, rng) for number in range(n_tuples)]
    cells = [(model, setting) for model in models for setting in SETTINGS]
    size = n_tuples // len(cells)
    n_stored = 0
    for number, (model, setting) in enumerate(cells):
        harvested = rows[number * size : (number + 1) * size + int(SHARED * size)]
        harvested.sort(key=lambda row: -row.score)
        with transaction.atomic():
            store_tuples(make_job(relation, model, setting, len(harvested)), harvested)
        n_stored += len(harvested)
    return n_stored


def row(relation: Relation, number: int, rng: random.Random) -> TupleRow:
    head = HUB if number % HUB_EVERY == 0 else f"{word(rng)} {word(rng)}"
    entities = (head, f"{word(rng)} {number}")
    return TupleRow(entities, entities, -20 * rng.random(), -5.0)


def word(rng: random.Random) -> str:
    return "".join(rng.choices("abdefgiklmnoprstu", k=5))


def make_job(relation: Relation, model: LanguageModel, setting: str, n_tuples: int = 0) -> HarvestJob:
    now = timezone.now()
    return HarvestJob.objects.create(
        project=Project.objects.get(slug="bench"), kind="import", status="succeeded",
        relation=relation, language_model=model, setting=setting, n_tuples=n_tuples, started_at=now, finished_at=now,
    )  # fmt: skip


def judge(relation: Relation, project: Project, rng: random.Random) -> None:
    round = Round.objects.create(project=project, name="bench", n_tasks=N_JUDGED, source="simulated", status="closed")
    job = relation.jobs.filter(n_tuples__gt=0).first()
    stratum = Stratum.objects.create(
        round=round, relation=relation, language_model=job.language_model, setting=job.setting, job=job,
        rank_to=job.n_tuples, population=job.n_tuples, sample_size=min(N_JUDGED, job.n_tuples),
    )  # fmt: skip
    drawn = list(job.tuples.order_by("rank")[:N_JUDGED])
    tasks = JudgmentTask.objects.bulk_create(
        (task(round, harvested, n, rng) for n, harvested in enumerate(drawn)), **AT_ONCE
    )
    Draw.objects.bulk_create(
        (
            Draw(stratum=stratum, task=judged, harvested_tuple=harvested)
            for judged, harvested in zip(tasks, drawn, strict=True)
        ),
        **AT_ONCE,
    )


def task(round: Round, harvested, position: int, rng: random.Random) -> JudgmentTask:
    verdict, counts = rng.choice([("accepted", (3, 0, 0)), ("rejected", (1, 2, 0)), ("undecided", (1, 1, 1))])
    n_true, n_false, n_unjudgeable = counts
    return JudgmentTask(
        round=round, knowledge_tuple_id=harvested.knowledge_tuple_id, statement="statement", entities=harvested.surface,
        spans=[], position=position, n_wanted=3, n_judgments=3, verdict=verdict,
        n_true=n_true, n_false=n_false, n_unjudgeable=n_unjudgeable,
    )  # fmt: skip


# Measurement


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the address of each page to measure. Other apps' pages are added here."""
    job = HarvestJob.objects.order_by("-n_tuples").first()
    relation = job.relation
    known = KnowledgeTuple.objects.harvested().order_by("-n_harvests", "-pk").first()
    model = job.language_model_id
    yield "relations", reverse("kgharvest:relation_list")
    yield "relations by harvests", address("relation_list", sort="-harvests")
    yield "relation", relation.get_absolute_url()
    yield "harvests", reverse("kgharvest:harvest_list")
    yield "harvests, filtered", address("harvest_list", setting="multi", sort="-tuples")
    yield "harvest", job.get_absolute_url()
    yield "harvest, last page", f"{job.get_absolute_url()}?page={job.n_tuples // 50}"
    yield "knowledge", reverse("kgharvest:tuple_list")
    yield "knowledge, worst first", address("tuple_list", sort="score")
    yield "knowledge by harvests", address("tuple_list", sort="-harvests")
    yield "knowledge, deep", address("tuple_list", after="-19.0,1")
    yield "knowledge by harvests, deep", address("tuple_list", sort="-harvests", after=f"1,{known.pk}")
    yield "knowledge of a relation", address("tuple_list", relation=relation.pk)
    yield "knowledge of a relation by harvests", address("tuple_list", relation=relation.pk, sort="-harvests")
    yield "knowledge of an LM and setting", address("tuple_list", model=model, setting="multi")
    yield (
        "knowledge of a cell, score range",
        address("tuple_list", relation=relation.pk, model=model, setting="multi", score_from=-10, score_to=-5),
    )
    yield "entities with a", address("tuple_list", entity="a")
    yield "entities with abd, by harvests", address("tuple_list", entity="abd", sort="-harvests")
    yield "entities with abdef", address("tuple_list", entity="abdef")
    yield "entities with none", address("tuple_list", entity="zzz")
    yield "the hub entity", address("tuple_list", entity=HUB, match="whole")
    yield "the hub entity of an LM", address("tuple_list", entity=HUB, match="whole", model=model)
    yield "accepted", address("tuple_list", verdict="accepted")
    yield "accepted of another relation", address("tuple_list", verdict="accepted", relation=relation.pk + 1)
    yield "hidden", address("tuple_list", state="hidden")
    yield "sensitive", address("tuple_list", state="sensitive")
    yield "tuple", known.get_absolute_url()
    yield "entity", address("entity", name=known.entities[1])
    yield "entity, hub", address("entity", name=HUB)
    yield "entity's picture, hub", address("entity_graph", name=HUB)
    yield from comparisons(relation)
    yield "sensitive words", reverse("kgharvest:sensitive_words")


def comparisons(relation: Relation) -> Iterator[tuple[str, str]]:
    """Yield comparisons of harvests: two of over 50,000 tuples, two of 4,500, and two cells over their relation set."""
    page = reverse("evaluation:compare_harvests")
    for size, compared in (("large", relation), ("usual", Relation.objects.get(pk=relation.pk + 1))):
        a, b = compared.jobs.filter(n_tuples__gt=0).order_by("pk").values_list("pk", flat=True)[:2]
        yield f"compare two {size} harvests", f"{page}?a={a}&b={b}"
        yield f"compare two {size} harvests, only A", f"{page}?a={a}&b={b}&part=only_a&page=20"
    yield "compare two cells over a set", f"{reverse('evaluation:compare_sets')}?a={a}&b={b}"


def address(page: str, /, **query) -> str:
    return f"{reverse(f'kgharvest:{page}')}?{urlencode(query)}"


def measure(client: Client, path: str) -> tuple[float, float, int]:
    """Return the median wall-clock and CPU milliseconds of this process, and the number of queries."""
    reset_queries()
    with CaptureQueriesContext(connection) as queries:
        response = client.get(path)
    n_queries = len(queries)
    assert response.status_code == 200, (path, response.status_code)
    times, cpu_times = [], []
    for _ in range(REQUESTS):
        start, cpu_start = time.perf_counter(), time.process_time()
        client.get(path)
        times.append(1000 * (time.perf_counter() - start))
        cpu_times.append(1000 * (time.process_time() - cpu_start))
    return median(times), median(cpu_times), n_queries


def main() -> None:
    migrate()
    if not KnowledgeTuple.objects.exists():
        fill(OPTIONS.tuples)
    client = Client(SERVER_NAME="localhost")
    client.force_login(get_user_model().objects.get(username="bench"))
    for name, path in pages():
        milliseconds, cpu_milliseconds, n_queries = measure(client, path)
        late = "   TOO SLOW" if milliseconds > LIMIT_MS else ""
        print(
            f"{milliseconds:8.1f} ms  {cpu_milliseconds:8.1f} ms of CPU  {n_queries:3d} queries  {name}{late}",
            flush=True,
        )


if __name__ == "__main__":
    main()
