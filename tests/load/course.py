"""A round judged from beginning to end by many people while its web server is killed, and what must hold after."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Count
from django.urls import reverse
from django.utils import timezone

from annotation.models import Assignment, Judgment, Round
from tests.factories import make_annotators
from tests.load.people import Person, judge_as
from tests.load.web_server import WebServer, logged_in

GIVE_UP_AFTER_S = 900
LOOK_EVERY_S = 0.25
RUN_OUT_AT_ONCE = 5  # leases


@dataclass(frozen=True)
class Course:
    """What happened. acknowledged: the answers that people were told are stored."""

    acknowledged: set[UUID]
    n_killed: int
    n_run_out: int
    seconds: float


def run_course(round: Round, server: WebServer, n_annotators: int, n_processes: int, n_kills: int) -> Course:
    """Let people judge the round to its end; kill and restart the server `n_kills` times on the way."""
    n_wanted = round.n_tasks * round.judgments_per_task
    kill_at = [n_wanted * number // (n_kills + 1) for number in range(1, n_kills + 1)]
    share = (max(kill_at, default=n_wanted) + n_wanted) // 2 // n_annotators + 1  # past the last kill, before the end
    people = _people(round, server.port, n_annotators, share)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(n_processes, context) as pool:
        are_kills_done, is_over = manager.Event(), manager.Event()
        begin = time.monotonic()
        try:
            groups = [people[start::n_processes] for start in range(n_processes)]
            jobs = [pool.submit(judge_as, group, are_kills_done, is_over) for group in groups]
            n_run_out = _look_after(round, server, kill_at, are_kills_done, jobs)
            seconds = time.monotonic() - begin
        finally:
            is_over.set()
        acknowledged = {uuid for job in jobs for uuid in job.result()}
    return Course(acknowledged, n_kills, n_run_out, seconds)


def _people(round: Round, port: int, n: int, share: int) -> list[Person]:
    path = reverse("annotation:judge", args=[round.pk])
    annotators = make_annotators(round, n)
    return [Person(port, path, logged_in(annotator.user), seed, share) for seed, annotator in enumerate(annotators)]


def _look_after(round: Round, server: WebServer, kill_at: list[int], are_kills_done, jobs: Sequence[Future]) -> int:
    """Kill the server at these counts of judgments and let leases run out; return how many did at the round's end."""
    rng, n_run_out, deadline = random.Random(0), 0, time.monotonic() + GIVE_UP_AFTER_S
    while round.tasks.filter(verdict="").exists():
        assert time.monotonic() < deadline, "the round does not come to its end"
        assert not any(job.done() for job in jobs), [job.exception() for job in jobs if job.done()]
        if kill_at and Judgment.objects.filter(task__round=round).count() >= kill_at[0]:
            kill_at.pop(0)
            server.kill()
            server.start()
        if not kill_at:
            are_kills_done.set()
        n_run_out += _let_run_out(round, rng)
        time.sleep(LOOK_EVERY_S)
    assert not kill_at, "the round ended before the server was killed often enough"
    return n_run_out


def _let_run_out(round: Round, rng: random.Random) -> int:
    """Let some leases end before their time, as if half an hour had passed for their holders."""
    leased = Assignment.objects.filter(annotator__round=round, status=Assignment.Status.LEASED)
    ids = list(leased.values_list("pk", flat=True))
    chosen = leased.filter(pk__in=rng.sample(ids, min(RUN_OUT_AT_ONCE, len(ids))))
    with transaction.atomic():
        # Those that a holder is at are passed over: one of two who wait for each other's leases is thrown out.
        free = chosen.select_for_update(skip_locked=True, of=("self",), no_key=True).only("pk")
        free = Assignment.objects.filter(pk__in=[lease.pk for lease in free])
        return free.update(expires_at=timezone.now() - timedelta(seconds=1))


def check_course(round: Round, course: Course) -> None:
    """Fail unless every task has exactly k judgments of k people, and what was acknowledged is stored, once."""
    stored = Judgment.objects.filter(task__round=round)
    k = round.judgments_per_task
    counted = stored.counted().order_by().values("task")
    by_task = list(counted.annotate(n=Count("pk"), people=Count("annotator", distinct=True)).values_list("n", "people"))
    assert by_task == [(k, k)] * round.n_tasks
    assert set(round.tasks.values_list("n_judgments", "n_wanted", "n_leased")) == {(k, k, 0)}
    assert course.acknowledged <= set(stored.values_list("pk", flat=True)), "an acknowledged judgment is lost"
    assert stored.count() == stored.order_by().values("task", "annotator").distinct().count(), "a judgment is doubled"
