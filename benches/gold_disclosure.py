"""Whether gold statements are disclosed by response times, or to groups: area under the ROC curve (AUC) of features.

    python benches/gold_disclosure.py [--statements 2000]          on a SQLite file in a temporary folder
    python benches/gold_disclosure.py --groups [--rounds 20]       groups of 1, 2, and 5 accounts
    DATABASE_URL=postgres://... DEBUG=1 python benches/gold_disclosure.py    on an empty PostgreSQL database

One annotator answers every statement of a round, a tenth of them gold, through Django's test client, like the judging
page. Then another annotator does so, requesting the next statement with each answer. Gold is predicted from the time of
the answer to a statement and, for the second annotator, also from the time of the reply that delivered the statement.

Must hold: between .45 and .55 over 2,000 statements.

--groups: accounts of a group judge, skip, or do both at random, and compare the statements that they receive
(tests/gold_attack.py). Every second round has adaptive third judgments.

Must hold: between .45 and .55 for each feature on average over 20 rounds. With --reuse, the option gold_reuse is on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import uuid4

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import migrate, set_up_django

set_up_django()

import numpy as np
from django.conf import settings
from django.db import connection, transaction
from django.test import Client

from annotation.models import Round
from benches.judging import make_round
from tests.factories import judging_page, make_annotators, make_gold
from tests.factories import make_round as make_test_round
from tests.gold_attack import areas, clues, play

GOLD_SHARE = 0.1
GOLD_SHARE_OF_GROUPS = 0.5  # larger, for smaller standard errors


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


def areas_of_times(answered: list[Answered], is_gold: list[bool]) -> str:
    """Return both areas as text. is_gold: whether the statement that each answer is compared with is gold."""
    times = {clock: {n: answer[clock] for n, answer in enumerate(answered)} for clock in (1, 2)}
    area = areas(times, [n for n, gold in enumerate(is_gold) if gold])
    return f"{sum(is_gold)} gold of {len(is_gold)}: AUC of wall time {area[1]:.3f}, of CPU time {area[2]:.3f}"


def print_areas_of_groups(n_rounds: int, n_statements: int, gold_reuse: bool) -> None:
    """Print the mean area per feature over rounds, by size of the group and strategy, and its standard error.

    Rounds are weighted by the inverse variance of their area if the feature is independent of gold, because some
    features exist only for statements that two accounts received, which can be a few.
    """
    columns = [(size, strategy) for size in (1, 2, 5) for strategy in ("judge", "skip", "mixed")]
    by_column: dict[tuple[int, str], dict[str, list[tuple[float, float]]]]
    by_column = {column: defaultdict(list) for column in columns}  # (area, weight) by feature
    for number in range(n_rounds):
        for column, (size, strategy) in enumerate(columns):
            seed = len(columns) * number + column
            with suppress(StopIteration), transaction.atomic():
                round = make_test_round(
                    n_statements, seed=seed, batch_size=5, gold_reuse=gold_reuse, third_only_if_split=bool(number % 2)
                )
                gold = Random(seed).sample(list(round.tasks.all()), int(n_statements * GOLD_SHARE_OF_GROUPS))
                make_gold(round, gold, "true")
                Round.objects.filter(pk=round.pk).update(gold_share=GOLD_SHARE_OF_GROUPS)
                group = play(Round.objects.get(pk=round.pk), size, strategy, max(4 - size, 2), seed)
                features, gold_ids = clues(group, k=3), {task.pk for task in gold}
                for name, area in areas(features, gold_ids).items():
                    n, n_gold = len(features[name]), len(features[name].keys() & gold_ids)
                    by_column[size, strategy][name].append((area, n_gold * (n - n_gold) / (n + 1)))
                raise StopIteration  # roll back, because rounds are independent
    print(f"\nweighted mean AUC (standard error), {n_rounds} rounds of {n_statements} statements, reuse: {gold_reuse}")
    print("| feature |" + "".join(f" {size} {strategy} |" for size, strategy in columns))
    print("|---|" + "---|" * len(columns))
    for name in by_column[5, "mixed"]:
        values = [by_column[column][name] for column in columns]
        means = (f" {mean_with_error(of)} |" if of else " |" for of in values)
        print(f"| {name} |" + "".join(means), flush=True)


def mean_with_error(areas_and_weights: list[tuple[float, float]]) -> str:
    areas, weights = np.transpose(areas_and_weights)
    mean = np.average(areas, weights=weights)
    error = np.sqrt((weights**2 * (areas - mean) ** 2).sum()) / weights.sum()
    return f"{mean:.3f} ({error:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", type=int, default=2000)
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--reuse", action="store_true")
    arguments = parser.parse_args()
    settings.ALLOWED_HOSTS.append("testserver")
    migrate()
    print(connection.vendor)
    if arguments.groups:
        print_areas_of_groups(arguments.rounds, min(arguments.statements, 120), arguments.reuse)
        return
    with_page = list(walk(mixed_round(arguments.statements, batch_size=10), more=""))
    print("answers:                 ", areas_of_times(with_page, [answer.is_gold for answer in with_page]))
    one_by_one = list(walk(mixed_round(arguments.statements + 1, batch_size=1), more="1"))
    print("answers with the next:   ", areas_of_times(one_by_one, [answer.is_gold for answer in one_by_one]))
    is_delivered_gold = [answer.is_gold for answer in one_by_one[1:]]
    print("replies that deliver it: ", areas_of_times(one_by_one[:-1], is_delivered_gold))


if __name__ == "__main__":
    main()
