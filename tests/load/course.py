"""Load test: many annotators complete a round while its web server is killed, followed by consistency checks."""

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
EXPIRED_AT_ONCE = 5  # leases


@dataclass(frozen=True)
class Course:
    """Result of a run. acknowledged: UUIDs of the answers that the server confirmed."""

    acknowledged: set[UUID]
    n_killed: int
    n_expired: int
    seconds: float


def run_course(round: Round, server: WebServer, n_annotators: int, n_processes: int, n_kills: int) -> Course:
    """Run annotators until the round is complete; kill and restart the server `n_kills` times meanwhile."""
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
            n_expired = _supervise(round, server, kill_at, are_kills_done, jobs)
            seconds = time.monotonic() - begin
        finally:
            is_over.set()
        acknowledged = {uuid for job in jobs for uuid in job.result()}
    return Course(acknowledged, n_kills, n_expired, seconds)


def _people(round: Round, port: int, n: int, share: int) -> list[Person]:
    path = reverse("annotation:judge", args=[round.pk])
    annotators = make_annotators(round, n)
    return [Person(port, path, logged_in(annotator.user), seed, share) for seed, annotator in enumerate(annotators)]


def _supervise(round: Round, server: WebServer, kill_at: list[int], are_kills_done, jobs: Sequence[Future]) -> int:
    """Kill the server at the judgment counts `kill_at` and expire leases; return the number of expired leases."""
    rng, n_expired, deadline = random.Random(0), 0, time.monotonic() + GIVE_UP_AFTER_S
    while round.tasks.filter(verdict="").exists():
        assert time.monotonic() < deadline, "the round did not complete in time"
        assert not any(job.done() for job in jobs), [job.exception() for job in jobs if job.done()]
        if kill_at and Judgment.objects.filter(task__round=round).count() >= kill_at[0]:
            kill_at.pop(0)
            server.kill()
            server.start()
        if not kill_at:
            are_kills_done.set()
        n_expired += _expire_leases(round, rng)
        time.sleep(LOOK_EVERY_S)
    assert not kill_at, "the round completed before all server kills"
    return n_expired


def _expire_leases(round: Round, rng: random.Random) -> int:
    """Expire some random leases early; return their number."""
    leased = Assignment.objects.filter(annotator__round=round, status=Assignment.Status.LEASED)
    ids = list(leased.values_list("pk", flat=True))
    chosen = leased.filter(pk__in=rng.sample(ids, min(EXPIRED_AT_ONCE, len(ids))))
    with transaction.atomic():
        # Skip leases locked by a request: waiting for them could deadlock.
        free = chosen.select_for_update(skip_locked=True, of=("self",), no_key=True).only("pk")
        free = Assignment.objects.filter(pk__in=[lease.pk for lease in free])
        return free.update(expires_at=timezone.now() - timedelta(seconds=1))


def check_course(round: Round, course: Course) -> None:
    """Fail unless each task has k judgments by k people and each acknowledged judgment is stored once."""
    stored = Judgment.objects.filter(task__round=round)
    k = round.judgments_per_task
    counted = stored.counted().order_by().values("task")
    by_task = list(counted.annotate(n=Count("pk"), people=Count("annotator", distinct=True)).values_list("n", "people"))
    assert by_task == [(k, k)] * round.n_tasks
    assert set(round.tasks.values_list("n_judgments", "n_wanted", "n_leased")) == {(k, k, 0)}
    assert course.acknowledged <= set(stored.values_list("pk", flat=True)), "an acknowledged judgment was lost"
    assert stored.count() == stored.order_by().values("task", "annotator").distinct().count(), "duplicate judgments"
