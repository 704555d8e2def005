"""Whose turn it is: LMs are loaded seldom, nobody starves, and every job is done once, though messages are lost."""

from __future__ import annotations

import random
from collections import deque
from datetime import UTC, datetime, timedelta

import pytest

from kgharvest.jobs import ledger, reaper, tasks, turns
from kgharvest.models import Job
from tests import factories

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STEP = timedelta(seconds=20)
AT_MOST = turns.OVERTAKEN_AT_MOST


def make_jobs(*lms: str) -> list[int]:
    return [Job.objects.create(kind="harvest", lm=lm, enqueued_at=NOW).pk for lm in lms]


def begin(job_id: int, at: datetime) -> None:
    """By a worker that lives on."""
    assert ledger.claim(job_id, at)
    Job.objects.filter(pk=job_id).update(lease_expires_at=at + timedelta(hours=1))


def test_a_job_whose_lm_is_in_memory_goes_first():
    first, second, third = make_jobs("a", "b", "b")

    assert turns.next_job(first, NOW, ["b"]) == second
    assert turns.next_job(third, NOW, ["b"]) == second
    assert turns.next_job(third, NOW, ["c"]) == third
    assert turns.next_job(third, NOW, []) == third


def test_of_several_lms_in_memory_that_of_the_oldest_job_goes_first():
    first, second, third, _ = make_jobs("a", "c", "b", "b")

    assert turns.next_job(first, NOW, ["b", "c"]) == turns.next_job(first, NOW, ["c", "b"]) == second
    assert turns.next_job(first, NOW, ["b", "x"]) == third


@pytest.mark.parametrize("jobs", [Job.objects.claimable(NOW), Job.objects.unfinished()])
def test_statements_name_the_status_of_waiting_jobs_themselves(jobs):
    """With parameters PostgreSQL would make one plan for all of them, which can take no index of waiting jobs."""
    sql, parameters = jobs.query.sql_with_params()

    assert "'queued'" in sql
    assert "'running'" in sql
    assert not {"queued", "running"} & set(parameters)


def test_a_message_whose_job_has_been_done_is_for_the_oldest_that_waits():
    first, second, third = make_jobs("a", "b", "b")
    begin(third, NOW)

    assert turns.next_job(third, NOW, []) == first
    begin(first, NOW)
    begin(second, NOW)
    assert turns.next_job(third, NOW, ["a"]) is None


def test_a_job_is_overtaken_for_ten_minutes_at_most():
    first, second, third = make_jobs("a", "b", "b")
    begin(second, NOW)

    assert turns.next_job(third, NOW + AT_MOST, ["b"]) == third
    assert turns.next_job(third, NOW + AT_MOST + timedelta(seconds=1), ["b"]) == first


def test_younger_jobs_are_looked_at_only_where_one_would_overtake(monkeypatch):
    asked = []
    monkeypatch.setattr(turns, "is_overdue", lambda *question: asked.append(question))
    first, second, _ = make_jobs("a", "b", "b")

    assert turns.next_job(first, NOW, ["a"]) == turns.next_job(first, NOW, []) == first
    assert asked == []
    assert turns.next_job(first, NOW, ["b"]) == second
    assert asked == [(first, "harvest", NOW)]


def test_urgent_and_light_jobs_and_those_of_other_queues_are_left_as_they_are():
    [harvest] = make_jobs("a")
    on_gpu = Job.objects.create(kind="harvest", lm="a", payload={"device": "cuda"})
    urgent, light = Job.objects.create(kind="mark_sensitive"), Job.objects.create(kind="pack")

    for job in (on_gpu, urgent, light):
        assert turns.next_job(job.pk, NOW, ["a"]) == job.pk
    begin(light.pk, NOW)
    assert turns.next_job(light.pk, NOW, ["a"]) is None
    assert turns.next_job(harvest, NOW, []) == harvest
    assert turns.next_job(10**9, NOW, ["a"]) is None


def test_the_message_of_a_job_that_nobody_takes_is_sent_again_at_the_next_look(enqueued, monkeypatch):
    """As where its worker is being drained."""
    monkeypatch.setattr(ledger, "run_job", lambda job_id: False)
    [job] = make_jobs("a")

    tasks._run_job(job)
    assert enqueued == []
    reaper.reap(datetime.now(UTC))

    assert enqueued == [job]


class Workers:
    """Simulated workers on the real ledger: a clock, messages that get lost or come twice, LMs kept in memory."""

    def __init__(self, seed: int, n_workers: int, n_kept: int, prefers: bool, monkeypatch):
        self.rng, self.now, self.prefers, self.n_kept = random.Random(seed), NOW, prefers, n_kept
        self.messages: deque[int] = deque()
        self.memory: list[list[str]] = [[] for _ in range(n_workers)]
        self.hands: list[tuple[int, datetime] | None] = [None] * n_workers
        self.begun: list[int] = []
        self.overtaken: dict[int, datetime] = {}  # since when
        self.longest = timedelta()
        self.n_loads = 0
        monkeypatch.setattr(ledger, "send", lambda job_id, queue: self.send(job_id))

    def send(self, job_id: int) -> None:
        self.messages.extend([job_id] * self.rng.choices([0, 1, 2], [2, 7, 1])[0])

    def step(self) -> None:
        self.now += STEP
        reaper.enqueue_stale(self.now, reaper.ENQUEUED_PER_REAP, "harvest")
        for number in self.rng.sample(range(len(self.hands)), len(self.hands)):
            self.end(number)
            while self.hands[number] is None and self.messages:
                self.take(number, self.messages.popleft())

    def end(self, number: int) -> None:
        if self.hands[number] and self.hands[number][1] <= self.now:
            job_id = self.hands[number][0]
            ended = Job.objects.filter(pk=job_id, status="running")
            assert ended.update(status="succeeded", owner_token=None, lease_expires_at=None)
            self.hands[number] = None
            reaper.send_in_place_of(job_id, self.now)

    def take(self, number: int, woken_for: int) -> None:
        job_id = turns.next_job(woken_for, self.now, self.memory[number] if self.prefers else [])
        if job_id is None:
            return
        begin(job_id, self.now)
        self.begun.append(job_id)
        for older in Job.objects.filter(status="queued", pk__lt=job_id).values_list("pk", flat=True):
            since = self.overtaken.setdefault(older, self.now)
            if self.prefers:
                self.longest = max(self.longest, self.now - since)
        lm = Job.objects.get(pk=job_id).lm
        self.n_loads += lm not in self.memory[number]
        self.memory[number] = [*(other for other in self.memory[number] if other != lm), lm][-self.n_kept :]
        self.hands[number] = (job_id, self.now + timedelta(seconds=self.rng.randint(20, 200)))


def simulate(seed: int, prefers: bool, monkeypatch, n_jobs: int = 40) -> Workers:
    rng = random.Random(seed)
    sim = Workers(seed, rng.randint(1, 4), rng.randint(1, 2), prefers, monkeypatch)
    arrivals = sorted(NOW + timedelta(seconds=rng.uniform(0, 2400)) for _ in range(n_jobs))
    lms = [rng.choice("abcd") for _ in arrivals]
    while arrivals or Job.objects.unfinished().exists():
        while arrivals and arrivals[0] <= sim.now:
            job = Job.objects.create(kind="harvest", lm=lms.pop(0), enqueued_at=arrivals.pop(0))
            sim.send(job.pk)
        sim.step()
        assert sim.now < NOW + timedelta(hours=6)
    assert sorted(sim.begun) == sorted(Job.objects.values_list("pk", flat=True))  # each once
    assert len(sim.begun) == n_jobs
    return sim


@pytest.mark.parametrize("seed", range(4))
def test_every_job_is_done_once_and_overtaken_for_no_longer_than_stated(seed, monkeypatch):
    sim = simulate(seed, prefers=True, monkeypatch=monkeypatch)
    assert sim.longest <= AT_MOST


def test_lms_are_loaded_seldom_where_two_alternate():
    """Thirty jobs of a minute, one worker that keeps one LM: without a preference it would load thirty times."""
    job_ids = make_jobs(*"ab" * 15)

    now, memory, loads = NOW, "", 0
    for woken_for in job_ids:
        job_id = turns.next_job(woken_for, now, [memory])
        begin(job_id, now)
        Job.objects.filter(pk=job_id).update(status="succeeded", owner_token=None, lease_expires_at=None)
        now += timedelta(minutes=1)
        lm = Job.objects.get(pk=job_id).lm
        loads, memory = loads + (lm != memory), lm

    assert loads == 3  # twelve of a until the first of b was overtaken for ten minutes, all of b, the last of a


def test_a_claim_that_another_worker_wins_is_followed_by_another_choice(monkeypatch):
    first, second = make_jobs("a", "a")
    done: list[int] = []

    def run_job(job_id: int) -> bool:
        if job_id == first:
            begin(first, datetime.now(UTC))  # another worker was faster
            return False
        done.append(job_id)
        return True

    monkeypatch.setattr(ledger, "run_job", run_job)

    tasks.do_next(first)

    assert done == [second]


def test_a_harvest_says_which_lm_it_loads():
    job = factories.make_harvest_job()

    assert job.queue == "harvest"
