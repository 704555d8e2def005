"""What a look at a round costs: its pages with 1,000,000 tasks and 300,000 judgments by 200 annotators.

    python benches/round_pages.py             on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/round_pages.py    on an empty PostgreSQL database

Prints the milliseconds of the median look at each page, of counting anew, and of excluding one who gave a fifteenth of
all judgments. N_TASKS=150000 makes a smaller round.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from uuid import UUID

ROOT = Path(__file__).resolve().parent.parent
N_TASKS = int(os.environ.get("N_TASKS", "1_000_000"))
N_JUDGED = N_TASKS // 10  # tasks; three judgments each
N_ANNOTATORS = 200
LOOKS = 20

sys.path.insert(0, str(ROOT))
os.environ["DJANGO_SETTINGS_MODULE"] = "kgharvest.settings"
folder = tempfile.TemporaryDirectory(prefix="kgharvest-bench-")
os.environ["KGHARVEST_DATA_DIR"] = folder.name

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from django.contrib.auth import get_user_model  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.utils import timezone  # noqa: E402

from annotation.models import Annotator, Draw, Judgment, JudgmentTask, Round, Stratum, Study  # noqa: E402
from annotation.services.exclusion import exclude_annotator, reinstate_annotator  # noqa: E402
from annotation.services.exclusion_effect import exclusion_effect  # noqa: E402
from annotation.services.progress import count_progress  # noqa: E402
from annotation.services.quality import count_annotators  # noqa: E402
from kgharvest.models import KnowledgeTuple, Relation, RelationSet  # noqa: E402

LABELS = (("true", "true", "true"), ("true", "true", "false"), ("false", "false", "false"))


def make_round() -> Round:
    relation_set = RelationSet.objects.create(name="bench")
    relation = Relation.objects.create(
        relation_set=relation_set, name="r", statement="<ENT0> <ENT1>", arity=2, initial_prompts=[], seed_tuples=[]
    )
    study = Study.objects.create(name="bench")
    round = Round.objects.create(
        study=study, name="bench", status=Round.Status.OPEN, n_tasks=N_TASKS, opened_at=timezone.now()
    )
    known = KnowledgeTuple.objects.bulk_create(
        (KnowledgeTuple(relation=relation, entities=[str(n)], key=str(n)) for n in range(N_TASKS)), batch_size=5000
    )
    tasks = JudgmentTask.objects.bulk_create((_task(round, known[n], n) for n in range(N_TASKS)), batch_size=5000)
    stratum = Stratum.objects.create(round=round, relation=relation, sample_size=N_TASKS)
    Draw.objects.bulk_create((Draw(stratum=stratum, task=task) for task in tasks), batch_size=5000)
    annotators = Annotator.objects.bulk_create(Annotator(round=round, code=f"a-{n}") for n in range(N_ANNOTATORS))
    now = timezone.now()
    Judgment.objects.bulk_create(
        (
            Judgment(
                client_uuid=UUID(int=3 * n + place),
                task=tasks[n],
                annotator=_annotator(annotators, n, place),
                label=label,
                seconds=1 + n % 7,
                judged_at=now,
            )
            for n in range(N_JUDGED)
            for place, label in enumerate(LABELS[n % 3])
        ),
        batch_size=5000,
    )
    return round


def _task(round: Round, known: KnowledgeTuple, n: int) -> JudgmentTask:
    said = LABELS[n % 3] if n < N_JUDGED else ()
    return JudgmentTask(
        round=round,
        knowledge_tuple=known,
        statement=f"statement {n}",
        entities=[],
        spans=[],
        position=n,
        n_wanted=3,
        n_judgments=len(said),
        n_true=said.count("true"),
        n_false=said.count("false"),
        verdict=("accepted" if said.count("true") > 1 else "rejected") if said else "",
    )


def _annotator(annotators: list[Annotator], n: int, place: int) -> Annotator:
    """Let the first one have judged a fifth of all tasks."""
    return annotators[0] if n % 5 == 0 and place == 0 else annotators[1 + (3 * n + place) % (N_ANNOTATORS - 1)]


def milliseconds(call: Callable[[], object], times: int = LOOKS) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1000 * median(taken)


def main() -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    call_command("migrate", verbosity=0)
    round = make_round()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    print(f"{connection.vendor}; {N_TASKS:,} tasks, {3 * N_JUDGED:,} judgments by {N_ANNOTATORS}; milliseconds")
    print(f"counting progress       {milliseconds(lambda: count_progress(round), 3):8.0f}", flush=True)
    print(f"counting annotators     {milliseconds(lambda: count_annotators(round), 3):8.0f}", flush=True)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("bench"))
    for path in (
        "",
        "progress.json",
        "annotators/",
        "annotators/a-0/",
        "statements/",
        "statements/?show=all",
        "events/",
    ):
        client.get(f"/rounds/bench/{path}")
        print(
            f"{path or 'round':<23} {milliseconds(lambda at=path: client.get(f'/rounds/bench/{at}')):8.0f}", flush=True
        )
    first = round.annotators.get(code="a-0")
    print(f"effect of excluding     {milliseconds(lambda: exclusion_effect(first), 3):8.0f}", flush=True)
    taken_out = milliseconds(lambda: exclude_annotator(first, "bench"), 1)
    print(f"excluding {N_JUDGED // 5:>6,}        {taken_out:8.0f}", flush=True)
    print(f"reinstating             {milliseconds(lambda: reinstate_annotator(first), 1):8.0f}", flush=True)


if __name__ == "__main__":
    main()
