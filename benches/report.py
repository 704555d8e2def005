"""Cost of a report: 30,000 judgments on 10,000 statements and 1,000,000 on 333,340, by 40 annotators.

    python benches/report.py [N_TASKS ...]    on a SQLite file in a temporary folder
    python benches/report.py --pages          cost of the report's pages, with 487 relations in eight columns
    DATABASE_URL=postgres://... DEBUG=1 python benches/report.py    on an empty PostgreSQL database

There are fourteen relations in four settings; every tenth statement was drawn for two settings. A harvest contains the
tuples drawn from it and as many others. Scores are higher for true tuples, so the report has curves and cuts. Seven in
ten statements are true. Annotators are right in 65 to 95 % and label every tenth statement unjudgeable. Prints the
wall-clock and CPU seconds of a report, and the peak memory of a process that does nothing else.

With --pages, there are two LMs in four settings on 487 relations with 8 statements per cell. Prints for each page and
each figure the CPU milliseconds of the first request (median of five), and the median of ten more requests, when the
report's body is cached. The pages pass if a first view takes less than 300 ms, and an action within the page, such as
choosing a relation in a figure, less than 100 ms.
"""

from __future__ import annotations

import gc
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from uuid import UUID

ROOT = Path(__file__).resolve().parent.parent
REPORT, PAGES = "--report", "--pages"
SIZES = (10_000, 333_340)
N_RELATIONS = 14
N_RELATIONS_OF_PAGES, STATEMENTS_OF_A_CELL = 487, 8
MODELS = ("lm", "other-lm")
SETTINGS = ("human", "autoprompt", "top1", "multi")
N_ANNOTATORS = 40
K = 3
SHARED_EVERY = 10
FIRST_REQUESTS = 5
LABELS = ("true", "false", "unjudgeable")

sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django(os.environ["KGHARVEST_DATA_DIR"] if REPORT in sys.argv else None)

from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from annotation.judging.verdicts import majority
from annotation.models import Annotator, Draw, Judgment, JudgmentTask, Round, Stratum
from evaluation.reports.services import create_report
from kgharvest.models import (
    HarvestedTuple,
    HarvestJob,
    Job,
    KnowledgeTuple,
    LanguageModel,
    Project,
    Relation,
    RelationSet,
)

AT_ONCE = {"batch_size": 5000}


def make_round(n_tasks: int, rng: random.Random, n_relations: int = N_RELATIONS, n_models: int = 1) -> Round:
    """Create a judged round on harvests."""
    sides = list(product(MODELS[:n_models], SETTINGS))
    project, _ = Project.objects.get_or_create(slug="bench", defaults={"name": "bench"})
    round = Round.objects.create(project=project, name=f"bench-{n_tasks}", n_tasks=n_tasks, source="simulated")
    relations = make_relations(round, n_relations)
    annotators = Annotator.objects.bulk_create(Annotator(round=round, code=f"a{n:02}") for n in range(N_ANNOTATORS))
    known = KnowledgeTuple.objects.bulk_create(
        (
            KnowledgeTuple(relation=relations[n % n_relations], entities=[str(n)], key=f"{round.pk}-{n}")
            for n in range(n_tasks)
        ),
        **AT_ONCE,
    )
    answers = [
        tuple(answer(number, is_true(n), rng) for number in rng.sample(range(N_ANNOTATORS), K)) for n in range(n_tasks)
    ]
    labels = [tuple(label for _, label in of_task) for of_task in answers]
    tasks = JudgmentTask.objects.bulk_create(
        (make_task(round, known[n], n, labels[n]) for n in range(n_tasks)), **AT_ONCE
    )
    for side in range(len(sides)):
        for number, relation in enumerate(relations):
            make_cell(round, relation, tasks[number::n_relations], sides, side, rng)
    Judgment.objects.bulk_create(make_judgments(tasks, answers, annotators, rng), **AT_ONCE)
    return round


def is_true(number: int) -> bool:
    return number % 10 < 7


def make_relations(round: Round, n_relations: int) -> list[Relation]:
    relation_set = RelationSet.objects.create(name=round.name, is_shipped=True)
    sentence = "<ENT0> goes with <ENT1> ."
    return [
        Relation.objects.create(
            relation_set=relation_set, name=f"r{n}", statement=sentence, arity=2, initial_prompts=[], seed_tuples=[]
        )
        for n in range(n_relations)
    ]


def make_cell(round: Round, relation: Relation, tasks: list[JudgmentTask], sides: list, side: int, rng) -> None:
    """Create a side's harvest, its stratum, and its draws. tasks: all tasks of the relation, in order."""
    model, setting = sides[side]
    language_model, _ = LanguageModel.objects.get_or_create(name=model)
    own = [task for number, task in enumerate(tasks) if is_drawn(task.position, number, side, len(sides))]
    others = [task for number, task in enumerate(tasks) if number % len(sides) == (side + 2) % len(sides)]
    cell = {"relation": relation, "language_model": language_model, "setting": setting}
    job = HarvestJob.objects.create(
        kind="harvest", status=Job.Status.SUCCEEDED, n_tuples=len(own) + len(others), **cell
    )
    scored = sorted(
        ((score_of(task.position, rng), task) for task in [*own, *others]), key=lambda scored_task: -scored_task[0]
    )
    harvested_tuples = HarvestedTuple.objects.bulk_create(
        (
            HarvestedTuple(job=job, knowledge_tuple_id=task.knowledge_tuple_id, rank=rank, score=score, surface=[])
            for rank, (score, task) in enumerate(scored, start=1)
        ),
        **AT_ONCE,
    )
    stratum = Stratum.objects.create(
        round=round, job=job, rank_to=len(scored), population=len(scored), sample_size=len(own), **cell
    )
    by_tuple = {harvested.knowledge_tuple_id: harvested for harvested in harvested_tuples}
    Draw.objects.bulk_create(
        (Draw(task=task, stratum=stratum, harvested_tuple=by_tuple[task.knowledge_tuple_id]) for task in own), **AT_ONCE
    )


def is_drawn(position: int, number: int, side: int, n_sides: int) -> bool:
    own = number % n_sides
    return side == own or (position % SHARED_EVERY == 0 and side == (own + 1) % n_sides)


def score_of(position: int, rng: random.Random) -> float:
    return rng.gauss(-2 if is_true(position) else -3, 1)


def make_task(round: Round, known: KnowledgeTuple, position: int, labels: tuple[str, ...]) -> JudgmentTask:
    counts = {f"n_{label}": labels.count(label) for label in LABELS}
    verdict = majority(counts["n_true"], counts["n_false"], K)
    return JudgmentTask(
        round=round, knowledge_tuple=known, statement=f"statement {position}", entities=[], spans=[],
        position=position, n_wanted=K, n_judgments=K, verdict=verdict, **counts,
    )  # fmt: skip


def answer(annotator: int, true: bool, rng: random.Random) -> tuple[int, str]:
    if rng.random() < 0.1:
        return annotator, LABELS[2]
    is_right = rng.random() < 0.65 + 0.3 * annotator / N_ANNOTATORS
    return annotator, LABELS[0 if true == is_right else 1]


def make_judgments(tasks, answers, annotators: list[Annotator], rng: random.Random) -> Iterator[Judgment]:
    now = timezone.now()
    for task, of_task in zip(tasks, answers, strict=True):
        for number, label in of_task:
            uuid = UUID(int=rng.getrandbits(128), version=4)
            yield Judgment(client_uuid=uuid, task=task, annotator=annotators[number], label=label, judged_at=now)


def peak_gb() -> float:
    """Return the peak memory of this program. ru_maxrss would include the program that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1e6


def main() -> None:
    if sys.argv[1:2] == [REPORT]:
        report(sys.argv[2])
        return
    migrate()
    if sys.argv[1:2] == [PAGES]:
        measure_pages()
        return
    for n_tasks in map(int, sys.argv[1:] or SIZES):
        round = make_round(n_tasks, random.Random(0))
        subprocess.run([sys.executable, __file__, REPORT, round.name], check=True)


def report(name: str) -> None:
    round = Round.objects.get(name=name)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    document = create_report(round).document
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    converged = [model["converged"] for model in document["annotator_models"]]
    print(
        f"{document['n_judgments']:>9} judgments: {seconds:6.2f} s (CPU {cpu_seconds:.2f} s), peak {peak_gb():.2f} GB, "
        f"{len(document['comparisons'])} comparisons, {len(document['curves'])} curves, {len(document['cuts'])} cuts, "
        f"models converged: {converged}"
    )


# Pages


def measure_pages() -> None:
    n_tasks = N_RELATIONS_OF_PAGES * STATEMENTS_OF_A_CELL * len(MODELS) * len(SETTINGS)
    round = make_round(n_tasks, random.Random(0), N_RELATIONS_OF_PAGES, len(MODELS))
    print_costs(create_report(round).get_absolute_url())


def print_costs(address: str) -> None:
    client = Client(SERVER_NAME="localhost")
    client.force_login(get_user_model().objects.create_superuser("bench"))
    tuples = f"tuples/?model={MODELS[0]}&setting={SETTINGS[0]}"
    names = ("heat-map", "averages", "differences", "sizes", "calibration")
    figures = (f"figures/{name}.svg?width=800" for name in names)
    chosen = (f"figures/calibration.svg?relation=r100{width}" for width in ("&width=800", ""))
    for path in ("", "?all", *figures, *chosen, tuples, f"{tuples}&verdict=rejected", f"{tuples}&best=0.3"):
        client.get(address + path)  # compiles templates, once per process
        gc.collect()
        gc.freeze()  # as gunicorn.conf.py does
        firsts = [first_cpu_ms(client, address + path) for _ in range(FIRST_REQUESTS)]
        more = [cpu_ms(client, address + path) for _ in range(10)]
        print(f"{path or 'report':45} {median(firsts):7.0f} ms, then {median(more):5.0f} ms")


def first_cpu_ms(client: Client, path: str) -> float:
    cache.clear()
    return cpu_ms(client, path)


def cpu_ms(client: Client, path: str) -> float:
    begin = time.process_time()
    response = client.get(path)
    assert response.status_code == 200, (path, response.status_code)
    return 1000 * (time.process_time() - begin)


if __name__ == "__main__":
    main()
