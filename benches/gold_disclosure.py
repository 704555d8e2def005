"""Whether response times disclose gold statements: area under the ROC curve of wall-clock time and of CPU time.

    python benches/gold_disclosure.py [--statements 2000]          on a SQLite file in a temporary folder
    DATABASE_URL=postgres://... DEBUG=1 python benches/gold_disclosure.py    on an empty PostgreSQL database

One annotator answers every statement of a round, a tenth of them gold, through Django's test client, like the judging
page. Then another annotator does so, requesting the next statement with each answer. Gold is predicted from the time of
the answer to a statement and, for the second annotator, also from the time of the reply that delivered the statement.

Must hold: between .45 and .55 over 2,000 statements.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import uuid4

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

from django.conf import settings
from django.db import connection
from django.test import Client
from scipy.stats import mannwhitneyu

from annotation.models import Round
from benches.judging import make_round
from tests.factories import judging_page, make_annotators, make_gold

GOLD_SHARE = 0.1


class Answered(NamedTuple):
    """An answered statement: wall-clock and CPU milliseconds of this process until its answer was stored."""

    is_gold: bool
    wall: float
    cpu: float


def mixed_round(n_statements: int, batch_size: int) -> Round:
    round = make_round(n_statements)
    gold = Random(1).sample(list(round.tasks.all()), int(n_statements * GOLD_SHARE))
    make_gold(round, gold, "true")
    Round.objects.filter(pk=round.pk).update(gold_share=GOLD_SHARE, batch_size=batch_size)
    round.refresh_from_db()
    return round


def walk(round: Round, more: str) -> Iterator[Answered]:
    """Answer every statement that a new annotator gets. more: "1" requests the next ones with each answer."""
    [annotator] = make_annotators(round, 1)
    client = Client(headers={"accept": "application/json"})
    client.force_login(annotator.user)
    url, gold = judging_page(round.name), set(round.tasks.gold().values_list("pk", flat=True))
    while ahead := client.get(url).json()["tasks"]:
        known = {statement["task"] for statement in ahead}
        while ahead:
            task = ahead.pop(0)["task"]
            wall, cpu = time.perf_counter(), time.process_time()
            fields = {"task": task, "label": "true", "client_uuid": uuid4(), "seconds": "1.00", "more": more}
            reply = client.post(url, fields)
            took = time.perf_counter() - wall, time.process_time() - cpu
            yield Answered(annotator.task_of(task) in gold, *(1000 * seconds for seconds in took))
            fresh = [statement for statement in reply.json().get("tasks", []) if statement["task"] not in known]
            known |= {statement["task"] for statement in fresh}
            ahead += fresh


def area_under_curve(durations: list[float], is_gold: list[bool]) -> float:
    """Return how often gold took longer than another statement; ties count half."""
    gold = [duration for duration, gold in zip(durations, is_gold, strict=True) if gold]
    others = [duration for duration, gold in zip(durations, is_gold, strict=True) if not gold]
    return mannwhitneyu(gold, others).statistic / (len(gold) * len(others))


def areas(answered: list[Answered], is_gold: list[bool]) -> str:
    """Return both areas as text. is_gold: whether the statement that each answer is compared with is gold."""
    wall, cpu = (area_under_curve([answer[clock] for answer in answered], is_gold) for clock in (1, 2))
    return f"{sum(is_gold)} gold of {len(is_gold)}: AUC of wall time {wall:.3f}, of CPU time {cpu:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", type=int, default=2000)
    arguments = parser.parse_args()
    settings.ALLOWED_HOSTS.append("testserver")
    migrate()
    print(connection.vendor)
    with_page = list(walk(mixed_round(arguments.statements, batch_size=10), more=""))
    print("answers:                 ", areas(with_page, [answer.is_gold for answer in with_page]))
    one_by_one = list(walk(mixed_round(arguments.statements + 1, batch_size=1), more="1"))
    print("answers with the next:   ", areas(one_by_one, [answer.is_gold for answer in one_by_one]))
    is_delivered_gold = [answer.is_gold for answer in one_by_one[1:]]
    print("replies that deliver it: ", areas(one_by_one[:-1], is_delivered_gold))


if __name__ == "__main__":
    main()
