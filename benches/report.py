"""What a report costs: 30,000 judgments on 10,000 statements and 1,000,000 on 333,340, by 40 annotators.

    python benches/report.py [N_TASKS ...]    on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/report.py    on an empty PostgreSQL database

Fourteen relations in four settings; every tenth statement was drawn for two settings. A harvest holds what was drawn
from it, as many tuples again that were not, and scores that are higher for what is true, so that curves and cuts are
part of the report. Seven in ten statements are true; annotators are right in 65 to 95 % and call every tenth statement
unjudgeable. Prints the seconds of a report, by the clock and of the processor, and the peak of memory of a process that
does nothing else.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

ROOT = Path(__file__).resolve().parent.parent
REPORT = "--report"
SIZES = (10_000, 333_340)
N_RELATIONS = 14
SETTINGS = ("human", "autoprompt", "top1", "multi")
N_ANNOTATORS = 40
K = 3
SHARED_EVERY = 10
LABELS = ("true", "false", "unjudgeable")

sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django(os.environ["KGHARVEST_DATA_DIR"] if REPORT in sys.argv else None)

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


def make_round(n_tasks: int, rng: random.Random) -> Round:
    """Make a judged round on harvests."""
    project, _ = Project.objects.get_or_create(slug="bench", defaults={"name": "bench"})
    round = Round.objects.create(project=project, name=f"bench-{n_tasks}", n_tasks=n_tasks, source="simulated")
    relations = make_relations(round)
    annotators = Annotator.objects.bulk_create(Annotator(round=round, code=f"a{n:02}") for n in range(N_ANNOTATORS))
    known = KnowledgeTuple.objects.bulk_create(
        (
            KnowledgeTuple(relation=relations[n % N_RELATIONS], entities=[str(n)], key=f"{round.pk}-{n}")
            for n in range(n_tasks)
        ),
        **AT_ONCE,
    )
    said = [
        tuple(say(number, is_true(n), rng) for number in rng.sample(range(N_ANNOTATORS), K)) for n in range(n_tasks)
    ]
    labels = [tuple(label for _, label in answers) for answers in said]
    tasks = JudgmentTask.objects.bulk_create(
        (make_task(round, known[n], n, labels[n]) for n in range(n_tasks)), **AT_ONCE
    )
    for setting in range(len(SETTINGS)):
        for relation in range(N_RELATIONS):
            make_cell(round, relations[relation], tasks[relation::N_RELATIONS], setting, rng)
    Judgment.objects.bulk_create(make_judgments(tasks, said, annotators, rng), **AT_ONCE)
    return round


def is_true(number: int) -> bool:
    return number % 10 < 7


def make_relations(round: Round) -> list[Relation]:
    relation_set = RelationSet.objects.create(name=round.name, is_shipped=True)
    sentence = "<ENT0> goes with <ENT1> ."
    return [
        Relation.objects.create(
            relation_set=relation_set, name=f"r{n}", statement=sentence, arity=2, initial_prompts=[], seed_tuples=[]
        )
        for n in range(N_RELATIONS)
    ]


def make_cell(round: Round, relation: Relation, tasks: list[JudgmentTask], setting: int, rng: random.Random) -> None:
    """Make a harvest, its stratum and its draws. tasks: all of the relation, in their order."""
    language_model, _ = LanguageModel.objects.get_or_create(name="lm")
    own = [task for number, task in enumerate(tasks) if is_drawn(task.position, number, setting)]
    others = [task for number, task in enumerate(tasks) if number % len(SETTINGS) == (setting + 2) % len(SETTINGS)]
    cell = {"relation": relation, "language_model": language_model, "setting": SETTINGS[setting]}
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


def is_drawn(position: int, number: int, setting: int) -> bool:
    own = number % len(SETTINGS)
    return setting == own or (position % SHARED_EVERY == 0 and setting == (own + 1) % len(SETTINGS))


def score_of(position: int, rng: random.Random) -> float:
    return rng.gauss(-2 if is_true(position) else -3, 1)


def make_task(round: Round, known: KnowledgeTuple, position: int, labels: tuple[str, ...]) -> JudgmentTask:
    counts = {f"n_{label}": labels.count(label) for label in LABELS}
    verdict = majority(counts["n_true"], counts["n_false"], K)
    return JudgmentTask(
        round=round, knowledge_tuple=known, statement=f"statement {position}", entities=[], spans=[],
        position=position, n_wanted=K, n_judgments=K, verdict=verdict, **counts,
    )  # fmt: skip


def say(annotator: int, true: bool, rng: random.Random) -> tuple[int, str]:
    if rng.random() < 0.1:
        return annotator, LABELS[2]
    is_right = rng.random() < 0.65 + 0.3 * annotator / N_ANNOTATORS
    return annotator, LABELS[0 if true == is_right else 1]


def make_judgments(tasks, said, annotators: list[Annotator], rng: random.Random) -> Iterator[Judgment]:
    now = timezone.now()
    for task, answers in zip(tasks, said, strict=True):
        for number, label in answers:
            uuid = UUID(int=rng.getrandbits(128), version=4)
            yield Judgment(client_uuid=uuid, task=task, annotator=annotators[number], label=label, judged_at=now)


def peak_gb() -> float:
    """Return the most memory that this program held; ru_maxrss would count the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1e6


def main() -> None:
    if sys.argv[1:2] == [REPORT]:
        report(sys.argv[2])
        return
    migrate()
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
        f"models at rest: {converged}"
    )


if __name__ == "__main__":
    main()
