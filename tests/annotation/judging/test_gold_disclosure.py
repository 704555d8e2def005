"""Indistinguishability of gold statements: response content, order, size, and executed SQL."""

import re
from contextlib import suppress
from itertools import pairwise
from random import Random
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from annotation.judging.assignment import LEASE, START_WINDOW, next_batch, release_expired, start_position
from annotation.judging.models import LARGEST_ID, SIXTEEN_HEX_DIGITS
from annotation.models import Annotator, Assignment, Judgment, Round
from annotation.quality.exclusion import exclude_annotator
from tests.factories import judge, judging_page, make_gold, make_round, make_user
from tests.gold_attack import areas, clues, play

pytestmark = pytest.mark.django_db

CHANCE = pytest.approx(0.5, abs=0.05)


def mixed_round(n_tasks: int, n_gold: int, **spec) -> Round:
    """Open a round with n_gold randomly drawn gold statements that do not differ otherwise."""
    round = make_round(n_tasks, name="pilot", **spec)
    tasks = list(round.tasks.order_by("position"))
    make_gold(round, Random(1).sample(tasks, n_gold), "true")
    Round.objects.filter(pk=round.pk).update(gold_share=n_gold / n_tasks)
    round.refresh_from_db()
    return round


def fixed_annotators(round, n: int) -> list[Annotator]:
    """Create annotators with fixed token keys, so that gold positions and task tokens are reproducible."""
    return [
        Annotator.objects.create(
            round=round,
            user=make_user(),
            code=f"a-{number}",
            token_key=f"{number:032}",
            next_position=round.n_tasks * number // n,
        )
        for number in range(n)
    ]


def client_of(annotator) -> Client:
    client = Client(headers={"accept": "application/json"})
    client.force_login(annotator.user)
    return client


def text_of(statement: dict) -> str:
    return "".join(text for text, _ in statement["parts"])


def gold_texts(round) -> set[str]:
    return set(round.tasks.gold().values_list("statement", flat=True))


def fetch_all_batches(annotator) -> list[list[dict]]:
    """Fetch batches until the round is exhausted and return the statements of each reply."""
    client, replies = client_of(annotator), []
    while tasks := client.get(judging_page()).json()["tasks"]:
        replies.append(tasks)
        annotator.assignments.update(status=Assignment.Status.DONE)
    return replies


def clues_of(replies: list[list[dict]]) -> list[tuple[float, ...]]:
    """Return the features of each statement that could disclose gold, in order of arrival."""
    ranks = {
        name: rank for rank, name in enumerate(sorted(statement["task"] for tasks in replies for statement in tasks))
    }
    clues, before = [], 0
    for tasks in replies:
        middle = sorted(ranks[statement["task"]] for statement in tasks)[len(tasks) // 2]
        for position, statement in enumerate(tasks):
            rank = ranks[statement["task"]]
            size = len(str(statement)) - len(text_of(statement))
            clues.append((rank, abs(rank - middle), abs(rank - before), len(clues), position, size))
            before = rank
    return clues


# Tokens


@given(task=st.integers(1, LARGEST_ID), key=st.text("0123456789abcdef", min_size=32, max_size=32))
def test_token_decodes_to_its_task(task, key):
    annotator = Annotator(token_key=key)
    token = annotator.token_of(task)

    assert re.fullmatch(SIXTEEN_HEX_DIGITS, token)
    assert annotator.task_of(token) == task


@given(token=st.text("0123456789abcdef", min_size=16, max_size=16))
def test_arbitrary_token_decodes_to_zero_or_to_its_task(token):
    annotator = Annotator(token_key="0" * 32)
    task = annotator.task_of(token)

    assert task == 0 or annotator.token_of(task) == token


def test_tokens_of_consecutive_tasks_are_uncorrelated():
    annotator = Annotator(token_key="0" * 32)
    tokens = [int(annotator.token_of(task), 16) for task in range(1, 2001)]

    n_same = [64 - (token ^ following).bit_count() for token, following in pairwise(tokens)]
    # 64 random bits: mean 32, standard deviation 4.
    assert sum(n_same) / len(n_same) == pytest.approx(32, abs=4 * 4 / 1999**0.5)


# Groups


def mean_areas(round: Round, size: int, strategy: str, n_others: int) -> dict[str, float]:
    """Return, by feature, the mean area under the ROC curve over two rounds with the same statements.

    Half of the statements are gold in the first round, and the other half in the second. If the group receives the
    same statements in the same order in both rounds, the mean is exactly 0.5.
    """
    tasks = set(round.tasks.all())
    gold = set(Random(size).sample(sorted(tasks, key=lambda task: task.position), len(tasks) // 2))
    by_round = []
    for gold_tasks in (gold, tasks - gold):
        with suppress(StopIteration), transaction.atomic():
            make_gold(round, gold_tasks, "true")
            Round.objects.filter(pk=round.pk).update(gold_share=0.5)
            group = play(Round.objects.get(pk=round.pk), size, strategy, n_others, seed=size)
            by_round.append(areas(clues(group, round.judgments_per_task), [task.pk for task in gold_tasks]))
            raise StopIteration  # roll back
    first, second = by_round
    return {name: (first[name] + second[name]) / 2 for name in first.keys() & second.keys()}


@pytest.mark.parametrize(("strategy", "is_adaptive"), [("judge", False), ("skip", False), ("mixed", True)])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_group_of_annotators_cannot_recognize_gold(size, strategy, is_adaptive):
    round = make_round(30, batch_size=3, third_only_if_split=is_adaptive)

    means = mean_areas(round, size, strategy, n_others=max(4 - size, 1))

    assert len(means) >= (10 if size == 1 else 15)
    assert {name: area for name, area in means.items() if area != CHANCE} == {}


def test_group_recognizes_reused_gold():
    means = mean_areas(make_round(30, batch_size=3, gold_reuse=True), size=5, strategy="judge", n_others=3)

    assert max(means.values()) > 0.6


def test_unfinished_round_has_few_partially_judged_statements():
    round, random, most_partial = make_round(200, batch_size=5), Random(3), 0
    annotators = fixed_annotators(round, 8)
    for annotator in annotators:
        annotator.next_position = start_position(round, annotator.code)
        annotator.save()
    for step in range(400):
        annotator = random.choices(annotators, range(1, 9))[0]  # the fastest judges eight times as fast as the slowest
        judge(annotator, next_batch(annotator, timezone.now())[0])
        if step % 20 == 0:
            most_partial = max(most_partial, round.tasks.filter(n_judgments__range=(1, 2)).count())

    assert most_partial <= START_WINDOW + 8 * 5
    assert round.tasks.complete().count() > 100


# Responses


def test_ids_order_and_size_do_not_disclose_gold():
    round = mixed_round(2000, 200, batch_size=50)
    texts, rows, is_gold = gold_texts(round), [], []
    for annotator in fixed_annotators(round, 3):
        replies = fetch_all_batches(annotator)
        rows += clues_of(replies)
        is_gold += [text_of(statement) in texts for tasks in replies for statement in tasks]

    assert (len(is_gold), sum(is_gold)) == (6000, 600)
    names = ("id", "distance from batch", "distance from previous", "order", "position", "size")
    features = dict(zip(names, (dict(enumerate(values)) for values in zip(*rows, strict=True)), strict=True))
    gold = [number for number, gold in enumerate(is_gold) if gold]
    assert areas(features, gold) == dict.fromkeys(names, CHANCE)


def test_reused_gold_is_evenly_distributed_over_batches():
    round = mixed_round(400, 20, batch_size=20, judgments_per_task=1, gold_reuse=True)
    Round.objects.update(gold_share=0.5)  # far more than the available gold
    [annotator] = fixed_annotators(round, 1)

    texts = gold_texts(round)
    n_gold = [sum(text_of(statement) in texts for statement in tasks) for tasks in fetch_all_batches(annotator)]

    assert n_gold[:19] == [1] * 19
    assert sum(n_gold) == 20


def test_reused_gold_is_distributed_within_annotator_quota():
    round = mixed_round(400, 20, batch_size=20, max_per_annotator=100, gold_reuse=True)
    Round.objects.update(gold_share=0.5)
    [annotator] = fixed_annotators(round, 1)
    first = client_of(annotator).get(judging_page()).json()["tasks"]

    assert sum(text_of(statement) in gold_texts(round) for statement in first) == 4


def test_tokens_of_a_statement_differ_between_annotators():
    names = [
        {
            text_of(statement): statement["task"]
            for statement in client_of(annotator).get(judging_page()).json()["tasks"]
        }
        for annotator in fixed_annotators(mixed_round(20, 5, batch_size=15), 2)
    ]

    assert names[0].keys() & names[1].keys()
    assert not set(names[0].values()) & set(names[1].values())
    assert {len(name) for by_text in names for name in by_text.values()} == {16}


def test_statement_keeps_its_token_after_lease_expiry():
    [annotator] = fixed_annotators(mixed_round(4, 1, batch_size=4), 1)
    client = client_of(annotator)

    def names() -> dict[str, str]:
        return {text_of(statement): statement["task"] for statement in client.get(judging_page()).json()["tasks"]}

    before = names()
    annotator.assignments.update(status=Assignment.Status.EXPIRED)
    annotator.round.tasks.update(n_leased=0)

    after = names()
    assert before.keys() & after.keys()
    assert all(after[text] == name for text, name in before.items() if text in after)


def test_token_of_another_annotator_is_rejected():
    annotator, other = fixed_annotators(mixed_round(4, 1, batch_size=4), 2)
    foreign = client_of(other).get(judging_page()).json()["tasks"][0]["task"]
    client_of(annotator).get(judging_page())

    refusal = client_of(annotator).post(judging_page(), {"task": foreign, "label": "true", "client_uuid": uuid4()})

    assert refusal.json()["error"]["code"] == "NotAssigned"
    assert not any(character.isdigit() for character in refusal.json()["error"]["message"])


# Expired leases and skips


def test_expired_statements_return_only_at_end_of_round():
    round = mixed_round(60, 20, batch_size=6)
    [annotator] = fixed_annotators(round, 1)
    now, batches = timezone.now(), []
    for number in range(9):
        batches.append(next_batch(annotator, now + 2 * number * LEASE))
        release_expired(now + 2 * number * LEASE + 1.5 * LEASE)

    task_ids = [task.pk for batch in batches for task in batch]
    assert len(task_ids) == len(set(task_ids)) == 54


@pytest.mark.parametrize("n_others", [0, 3])
def test_skipped_gold_is_reassigned_like_other_statements(n_others):
    round = mixed_round(8, 4, batch_size=8, judgments_per_task=3)
    annotator, *others = fixed_annotators(round, 1 + n_others)
    client = client_of(annotator)
    while tasks := client.get(judging_page()).json()["tasks"]:
        for statement in tasks:
            client.post(f"{judging_page()}skip/", {"task": statement["task"]})
    n_skipped = annotator.assignments.count()
    for other in others:
        while batch := next_batch(other, timezone.now()):
            judge(other, batch[0])

    page = Client.get(client, judging_page(), headers={"accept": "text/html"})
    client.post(f"{judging_page()}skipped/")
    reassigned = client.get(judging_page()).json()["tasks"]

    assert (page.context["n_skipped"], len(reassigned)) == ((0, 0) if n_others else (n_skipped, n_skipped))


def test_late_answer_is_reported_as_late_for_gold_and_others():
    round = mixed_round(4, 2, batch_size=4, judgments_per_task=1)
    slow, quick = fixed_annotators(round, 2)
    client = client_of(slow)
    tasks = client.get(judging_page()).json()["tasks"]
    slow.assignments.update(expires_at="2020-01-01T00:00Z")
    while batch := next_batch(quick, timezone.now()):
        judge(quick, batch[0])

    answers = [{"task": statement["task"], "label": "true", "client_uuid": uuid4()} for statement in tasks]
    first, again = ([client.post(judging_page(), answer).json()["late"] for answer in answers] for _ in range(2))
    changed = [client.post(judging_page(), answer | {"client_uuid": uuid4()}).json()["late"] for answer in answers]

    assert {text_of(statement) in gold_texts(round) for statement in tasks} == {True, False}
    assert first == again == changed == [True] * len(tasks)
    assert not Judgment.objects.counted().filter(annotator=slow).exists()


def test_excluded_annotator_gets_same_reply_for_every_answer():
    round = mixed_round(4, 2, batch_size=4)
    [annotator] = fixed_annotators(round, 1)
    client = client_of(annotator)
    answers = [
        {"task": statement["task"], "label": "true", "client_uuid": uuid4()}
        for statement in client.get(judging_page()).json()["tasks"]
    ]
    for answer in answers:
        client.post(judging_page(), answer)
    exclude_annotator(annotator, "they guess")

    assert {client.post(judging_page(), answer).json()["late"] for answer in answers} == {False}


# Executed SQL


def statements_executed(act) -> list[str]:
    """Return the SQL statements executed by `act`, without literal values."""
    with CaptureQueriesContext(connection) as captured:
        act()
    return without_values(captured)


def without_values(captured: CaptureQueriesContext) -> list[str]:
    values = r"'[^']*'|\b(true|false)\b|\bs\d+_x\d+\b|\b\d+(\.\d+)?\b"  # SQLite writes booleans as numbers
    return [re.sub(values, "?", query["sql"]) for query in captured]


def both_kinds(annotator) -> tuple[Client, str, str]:
    """Return a client and the tokens of one gold and one other statement assigned to the annotator."""
    client = client_of(annotator)
    texts = gold_texts(annotator.round)
    by_kind = {
        text_of(statement) in texts: statement["task"] for statement in client.get(judging_page()).json()["tasks"]
    }
    return client, by_kind[True], by_kind[False]


def answer_to(task: str, label: str = "true") -> dict:
    return {"task": task, "label": label, "client_uuid": str(uuid4())}


@pytest.mark.parametrize(
    "spec", [{}, {"third_only_if_split": True}, {"max_per_annotator": 12}, {"judgments_per_task": 1}]
)
def test_answering_gold_executes_same_sql(spec):
    [annotator] = fixed_annotators(mixed_round(20, 10, batch_size=10, **spec), 1)
    client, gold, other = both_kinds(annotator)
    sql_by_task = []

    for task in (gold, other):
        first = answer_to(task)
        sql_by_task.append(
            [
                statements_executed(lambda fields=fields, path=path: client.post(judging_page() + path, fields))
                for path, fields in [
                    ("", first),
                    ("", first),
                    ("", answer_to(task)),
                    ("", answer_to(task, "false")),
                    ("report/", {"task": task, "report-reason": "other"}),
                ]
            ]
        )

    assert sql_by_task[0] == sql_by_task[1]


def test_skipping_and_late_answer_of_gold_execute_same_sql():
    [annotator] = fixed_annotators(mixed_round(20, 10, batch_size=10, max_per_annotator=15), 1)
    client, gold, other = both_kinds(annotator)

    def skip_and_answer(task: str) -> None:
        client.post(f"{judging_page()}skip/", {"task": task})
        client.post(judging_page(), answer_to(task))

    assert statements_executed(lambda: skip_and_answer(gold)) == statements_executed(lambda: skip_and_answer(other))


def test_assigning_gold_executes_same_sql():
    round = mixed_round(60, 20, batch_size=1)
    [annotator] = fixed_annotators(round, 1)
    client, texts, sql_by_kind = client_of(annotator), gold_texts(round), {True: set(), False: set()}
    [ahead] = client.get(judging_page()).json()["tasks"]
    for _ in range(9):
        with CaptureQueriesContext(connection) as captured:
            reply = client.post(judging_page(), answer_to(ahead["task"]) | {"more": 1})
        sql = without_values(captured)
        [ahead] = reply.json()["tasks"]
        sql_by_kind[text_of(ahead) in texts].add("\n".join(sql))

    assert sql_by_kind[True] == sql_by_kind[False]
    assert len(sql_by_kind[True]) == 1
