"""Concurrent joining, assignment, and judgments: threads and processes on a database file or server."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.utils import timezone

from annotation.invites.services import join_round, make_invites
from annotation.judging.assignment import LEASE, next_batch
from annotation.judging.judgments import Answer, skip_task, submit_judgment
from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import Annotator, Assignment, Invite, Judgment, Label, Round
from annotation.rounds.models import RoundNotOpen
from annotation.rounds.services import close_round
from tests.factories import judge, make_annotators, make_round, make_user
from tests.postgres import at_once, on_postgresql, run_on_postgresql
from tests.refusals import codes_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


def in_processes(work: Callable, arguments: Sequence[tuple]) -> None:
    """Call `work` once per tuple of arguments in separate processes. Fail if any process fails."""
    connections.close_all()  # connections must not be shared across a fork
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


# Threads


def test_concurrent_requests_assign_the_last_slot_once():
    round = make_round(1, judgments_per_task=1)
    annotators = make_annotators(round, 2)

    batches = at_once(*[lambda annotator=annotator: next_batch(annotator, timezone.now()) for annotator in annotators])

    assert sorted(len(batch) for batch in batches) == [0, 1]


def test_concurrent_late_answers_fill_the_last_slot_once():
    round = make_round(1, judgments_per_task=1)
    task = round.tasks.get()
    annotators = make_annotators(round, 3)
    moment = timezone.now()
    for annotator in annotators:  # each annotator in turn lets the only lease expire
        next_batch(annotator, moment)
        moment += LEASE + timedelta(seconds=1)
    next_batch(annotators[0], moment)

    judgments = at_once(*[lambda annotator=annotator: judge(annotator, task) for annotator in annotators])

    assert sum(judgment.is_counted for judgment in judgments) == 1
    assert round.tasks.get().n_judgments == 1


def test_concurrent_duplicate_answers_are_one_judgment():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, timezone.now())
    answer = Answer(task.pk, Label.TRUE, uuid4())

    first, second = at_once(*[lambda: submit_judgment(annotator, answer, timezone.now())] * 2)

    assert first == second
    assert round.tasks.get().n_judgments == Judgment.objects.count() == 1


def test_concurrent_answers_of_one_annotator_leave_one_current():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, timezone.now())

    at_once(lambda: judge(annotator, task, Label.TRUE), lambda: judge(annotator, task, Label.FALSE))

    assert Judgment.objects.current().count() == round.tasks.get().n_judgments == 1


def test_concurrent_use_of_one_uuid_is_stored_once():
    round = make_round(1)
    annotators = make_annotators(round, 2)
    [task] = [next_batch(annotator, timezone.now())[0] for annotator in annotators][:1]
    answer = Answer(task.pk, Label.TRUE, uuid4())

    outcomes = at_once(
        *[lambda annotator=annotator: submit_judgment(annotator, answer, timezone.now()) for annotator in annotators]
    )

    assert codes_of(outcomes) == ["UuidReused"]
    assert sum(isinstance(outcome, Judgment) for outcome in outcomes) == 1


def test_concurrent_joins_of_one_user_create_one_annotator():
    round, user = make_round(), make_user()

    first, second = at_once(*[lambda: join_round(round, user)] * 2)

    assert first == second


def test_concurrent_use_of_an_invite_admits_one():
    round = make_round()
    [invite] = make_invites(round, 1, timezone.now() + timedelta(days=1))

    outcomes = at_once(*[lambda: join_round(round, invite=Invite.objects.get(pk=invite.pk))] * 2)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Annotator", "InviteNotUsable"]
    assert round.annotators.count() == 1


def test_concurrent_guests_with_one_name_create_one_annotator():
    round = make_round(who_can_join="link")

    outcomes = at_once(*[lambda: join_round(round, name="Ada")] * 2)

    assert codes_of(outcomes) == ["NameTaken"]
    assert round.annotators.count() == 1


def test_concurrent_skip_and_answer_release_the_lease():
    round = make_round(1, judgments_per_task=1)
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, timezone.now())

    at_once(lambda: skip_task(annotator, task.pk), lambda: judge(annotator, task))

    task.refresh_from_db()
    assert (task.n_judgments, task.n_leased) == (1, 0)


def test_concurrent_closing_succeeds_once():
    round = make_round()

    outcomes = at_once(*[lambda: close_round(Round.objects.get(pk=round.pk))] * 2)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["WrongStatus", "int"]


def test_no_answer_is_stored_after_closing():
    round = make_round(40, batch_size=40)
    annotators = make_annotators(round, 3)
    batches = [next_batch(annotator, timezone.now()) for annotator in annotators]

    def answer_all(annotator, batch):
        for task in batch:
            judge(annotator, task)

    def close():
        while Judgment.objects.count() < 10:
            pass
        n_released = close_round(Round.objects.get(pk=round.pk))
        return Judgment.objects.count(), n_released

    people = [partial(answer_all, *args) for args in zip(annotators, batches, strict=True)]
    *_, (n_when_closed, n_released) = at_once(*people, close)

    assert Judgment.objects.count() == n_when_closed == sum(round.tasks.values_list("n_judgments", flat=True))
    assert n_when_closed + n_released == 120
    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}


def test_no_lease_remains_after_closing():
    round = make_round(200, batch_size=2)
    annotators = make_annotators(round, 4)

    def judge_on(annotator):
        while batch := next_batch(annotator, timezone.now()):
            judge(annotator, batch[0])

    def close():
        while Judgment.objects.count() < 10:
            pass
        close_round(Round.objects.get(pk=round.pk))

    outcomes = at_once(*(partial(judge_on, annotator) for annotator in annotators), close)

    assert all(outcome is None or isinstance(outcome, RoundNotOpen) for outcome in outcomes)
    assert not Assignment.objects.filter(status=Assignment.Status.LEASED).exists()
    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}


def test_no_annotator_joins_after_closing():
    round = make_round()
    users = [make_user() for _ in range(30)]

    def join(users):
        for user in users:
            join_round(round, user)

    def close():
        while Annotator.objects.count() < 5:
            pass
        close_round(Round.objects.get(pk=round.pk))
        return Annotator.objects.count()

    *_, n_when_closed = at_once(partial(join, users[:15]), partial(join, users[15:]), close)

    assert Annotator.objects.count() == n_when_closed


def test_quota_holds_for_concurrent_requests_of_one_annotator():
    round = make_round(20, batch_size=4, max_per_annotator=5)
    [annotator] = make_annotators(round, 1)

    def work():
        for _ in range(4):
            for task in next_batch(annotator, timezone.now()):
                judge(annotator, task)

    at_once(work, work)

    assert Annotator.objects.get().n_judged == Assignment.objects.count() == 5


def test_concurrent_split_requires_one_third_judgment():
    round = make_round(1, third_only_if_split=True)
    annotators = make_annotators(round, 4)
    [[task], *_] = [next_batch(annotator, timezone.now()) for annotator in annotators]

    at_once(*[partial(judge, *args) for args in zip(annotators[:2], [task] * 2, ["true", "false"], strict=True)])
    batches = at_once(*[partial(next_batch, annotator, timezone.now()) for annotator in annotators[2:]])

    assert sorted(map(len, batches)) == [0, 1]


def judge_everything(annotator):
    while batch := next_batch(annotator, timezone.now()):
        for task in batch:
            judge(annotator, task)


def test_only_experts_judge_reserved_statements():
    round = make_round(40, batch_size=3, judgments_per_task=2)
    *experts, one, two, three = make_annotators(round, 5)
    ids = list(round.tasks.order_by("pk").values_list("pk", flat=True)[:20])
    reserve_statements(round, [expert.code for expert in experts], pk__in=ids)

    at_once(*[partial(judge_everything, annotator) for annotator in (*experts, one, two, three)])

    assert set(round.tasks.values_list("n_judgments", "n_leased")) == {(2, 0)}
    judges = set(Judgment.objects.counted().filter(task__in=ids).values_list("annotator", flat=True))
    assert judges == {expert.pk for expert in experts}


def test_first_reservation_takes_effect_during_judging():
    round = make_round(120, batch_size=2, judgments_per_task=1)
    expert, *others = make_annotators(round, 4)
    ids = list(round.tasks.order_by("pk").values_list("pk", flat=True)[:60])

    def reserve():
        while Judgment.objects.count() < 5:
            pass
        reserve_statements(Round.objects.get(pk=round.pk), [expert.code], pk__in=ids)
        reserved = round.tasks.exclude(reservation=None)
        return set(Assignment.objects.filter(task__in=reserved, annotator__in=others).values_list("pk", flat=True))

    *_, assigned_before = at_once(*[partial(judge_everything, other) for other in others], reserve)

    reserved = round.tasks.exclude(reservation=None)
    given = set(Assignment.objects.filter(task__in=reserved, annotator__in=others).values_list("pk", flat=True))
    assert reserved.exists()
    assert given <= assigned_before
    judge_everything(expert)
    assert set(round.tasks.values_list("n_judgments", "n_leased")) == {(1, 0)}


def test_release_during_judging_gives_statements_to_everyone():
    round = make_round(40, batch_size=2, judgments_per_task=1)
    expert, *others = make_annotators(round, 4)
    ids = list(round.tasks.order_by("pk").values_list("pk", flat=True)[:30])
    reservation = reserve_statements(round, [expert.code], pk__in=ids)

    def release():
        while Judgment.objects.count() < 5:
            pass
        release_reservation(reservation)

    at_once(partial(judge_everything, expert), *[partial(judge_everything, other) for other in others], release)
    at_once(*[partial(judge_everything, annotator) for annotator in (expert, *others)])

    assert set(round.tasks.values_list("n_judgments", "n_leased", "reservation")) == {(1, 0, None)}


# Processes

SECONDS_PER_SECOND = 1800  # accelerated clock: a lease lasts one real second
GIVE_UP_AFTER_S = 60


def work_until_complete(round_id: int, annotator_ids: Sequence[int], seed: int) -> None:
    """Judge as randomly chosen annotators who skip some tasks and send each answer twice, often concurrently."""
    rng = random.Random(seed)
    begin = time.time()
    while Round.objects.get(pk=round_id).tasks.filter(verdict="").exists():
        assert time.time() - begin < GIVE_UP_AFTER_S
        annotator = Annotator.objects.get(pk=rng.choice(annotator_ids))
        for task in next_batch(annotator, fast_now()):
            if rng.random() < 0.8:
                send_twice(annotator, Answer(task.pk, rng.choice(Label.values), uuid4()), rng.random() < 0.5)
    connection.close()


def fast_now():
    return timezone.now() + timedelta(seconds=time.time() % 100_000 * SECONDS_PER_SECOND)


def send_twice(annotator: Annotator, answer: Answer, together: bool) -> None:
    sends = [lambda: submit_judgment(annotator, answer, fast_now())] * 2
    first, second = at_once(*sends) if together else [send() for send in sends]
    assert first == second


def test_every_task_gets_exactly_k_judgments_of_k_annotators():
    round = make_round(20, batch_size=3)
    annotators = [annotator.pk for annotator in make_annotators(round, 8)]

    in_processes(work_until_complete, [(round.pk, annotators[start::4], start) for start in range(4)])

    counted = Judgment.objects.counted()
    for task in round.tasks.all():
        judgments = counted.filter(task=task)
        assert (task.n_judgments, task.n_leased) == (3, 0)
        assert len({judgment.annotator_id for judgment in judgments}) == len(judgments) == 3
        assert task.n_true == judgments.filter(label=Label.TRUE).count()


# PostgreSQL


@on_postgresql
def test_race_tests_pass_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
