"""What a report costs: 30,000 judgments on 10,000 statements and 1,000,000 on 333,340, by 40 annotators.

    python benches/report.py [N_TASKS ...]    on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/report.py    on an empty PostgreSQL database

Fourteen relations in four settings; every tenth statement was drawn for two settings. Seven in ten statements are true;
annotators are right in 65 to 95 % and call every tenth statement unjudgeable. Prints the seconds of a report, by the
clock and of the processor, and the peak of memory of a process that does nothing else.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
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
os.environ["DJANGO_SETTINGS_MODULE"] = "kgharvest.settings"
if REPORT not in sys.argv:
    os.environ["KGHARVEST_DATA_DIR"] = tempfile.mkdtemp(prefix="kgharvest-bench-")

import django  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402
from django.utils import timezone  # noqa: E402

from annotation.models import Annotator, Draw, Judgment, JudgmentTask, Round, Stratum, Study  # noqa: E402
from annotation.verdicts import majority  # noqa: E402
from evaluation.services.reports import create_report  # noqa: E402
from kgharvest.models import KnowledgeTuple, LanguageModel, Relation, RelationSet  # noqa: E402

AT_ONCE = {"batch_size": 5000}


def make_round(n_tasks: int, rng: random.Random) -> Round:
    """Make a judged round with strata but without harvests, which reports do not look at."""
    study, _ = Study.objects.get_or_create(name="bench")
    round = Round.objects.create(study=study, name=f"bench-{n_tasks}", n_tasks=n_tasks, source="simulated")
    strata = make_strata(round)
    annotators = Annotator.objects.bulk_create(Annotator(round=round, code=f"a{n:02}") for n in range(N_ANNOTATORS))
    relations = sorted({stratum.relation for stratum in strata}, key=lambda relation: relation.pk)
    known = KnowledgeTuple.objects.bulk_create(
        (
            KnowledgeTuple(relation=relations[n % N_RELATIONS], entities=[str(n)], key=f"{round.pk}-{n}")
            for n in range(n_tasks)
        ),
        **AT_ONCE,
    )
    said = [
        tuple(say(number, n % 10 < 7, rng) for number in rng.sample(range(N_ANNOTATORS), K)) for n in range(n_tasks)
    ]
    labels = [tuple(label for _, label in answers) for answers in said]
    tasks = JudgmentTask.objects.bulk_create(
        (make_task(round, known[n], n, labels[n]) for n in range(n_tasks)), **AT_ONCE
    )
    Draw.objects.bulk_create(make_draws(tasks, strata), **AT_ONCE)
    Judgment.objects.bulk_create(make_judgments(tasks, said, annotators, rng), **AT_ONCE)
    return round


def make_strata(round: Round) -> list[Stratum]:
    relation_set = RelationSet.objects.create(name=round.name)
    language_model, _ = LanguageModel.objects.get_or_create(name="lm")
    sentence = "<ENT0> goes with <ENT1> ."
    relations = [
        Relation.objects.create(
            relation_set=relation_set, name=f"r{n}", statement=sentence, arity=2, initial_prompts=[], seed_tuples=[]
        )
        for n in range(N_RELATIONS)
    ]
    return Stratum.objects.bulk_create(
        Stratum(round=round, relation=relation, language_model=language_model, setting=setting, sample_size=0)
        for setting in SETTINGS
        for relation in relations
    )


def make_task(round: Round, known: KnowledgeTuple, position: int, labels: tuple[str, ...]) -> JudgmentTask:
    counts = {f"n_{label}": labels.count(label) for label in LABELS}
    verdict = majority(counts["n_true"], counts["n_false"], K)
    return JudgmentTask(
        round=round, knowledge_tuple=known, statement=f"statement {position}", entities=[], spans=[],
        position=position, n_wanted=K, n_judgments=K, verdict=verdict, **counts,
    )  # fmt: skip


def make_draws(tasks: list[JudgmentTask], strata: list[Stratum]) -> Iterator[Draw]:
    for number, task in enumerate(tasks):
        setting, relation = number // N_RELATIONS % len(SETTINGS), number % N_RELATIONS
        for shift in range(2 if number % SHARED_EVERY == 0 else 1):
            yield Draw(task=task, stratum=strata[(setting + shift) % len(SETTINGS) * N_RELATIONS + relation])


def say(annotator: int, is_true: bool, rng: random.Random) -> tuple[int, str]:
    if rng.random() < 0.1:
        return annotator, LABELS[2]
    is_right = rng.random() < 0.65 + 0.3 * annotator / N_ANNOTATORS
    return annotator, LABELS[0 if is_true == is_right else 1]


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
    call_command("migrate", verbosity=0)
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
        f"{len(document['comparisons'])} comparisons, models at rest: {converged}"
    )


if __name__ == "__main__":
    main()
