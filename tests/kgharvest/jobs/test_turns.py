"""Scheduling: LMs are rarely reloaded, no job starves, and each job runs once despite lost messages."""

from __future__ import annotations

import random
from collections import deque
from datetime import UTC, datetime, timedelta

import pytest

from kgharvest.jobs import ledger, messages, tasks, workers
from kgharvest.models import Job
from tests import factories

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STEP = timedelta(seconds=20)
AT_MOST = ledger.OVERTAKEN_AT_MOST


def make_jobs(*lms: str) -> list[int]:
    return [Job.objects.create(kind="harvest", lm=lm).pk for lm in lms]


def next_harvest(now: datetime, *in_memory: str) -> int | None:
    return ledger.next_job("harvest", now, in_memory)


def begin(job_id: int, at: datetime) -> None:
    """Claim the job for a worker that stays alive."""
    assert ledger.claim(job_id, at)
    Job.objects.filter(pk=job_id).update(lease_expires_at=at + timedelta(hours=1))


def test_job_with_loaded_lm_goes_first():
    first, second, _ = make_jobs("a", "b", "b")

    assert next_harvest(NOW, "b") == second
    assert next_harvest(NOW, "c") == next_harvest(NOW) == first


def test_oldest_job_among_loaded_lms_goes_first():
    _, second, third, _ = make_jobs("a", "c", "b", "b")

    assert next_harvest(NOW, "b", "c") == next_harvest(NOW, "c", "b") == second
    assert next_harvest(NOW, "b", "x") == third


@pytest.mark.parametrize("jobs", [Job.objects.claimable(NOW), Job.objects.unfinished()])
def test_sql_contains_the_status_as_a_literal(jobs):
    """With parameters, PostgreSQL would use a generic plan that cannot use the index of queued jobs."""
    sql, parameters = jobs.query.sql_with_params()

    assert "'queued'" in sql
    assert "'running'" in sql
    assert not {"queued", "running"} & set(parameters)


def test_the_oldest_waiting_job_is_next():
    first, second, third = make_jobs("a", "b", "b")
    begin(third, NOW)

    assert next_harvest(NOW) == first
    begin(first, NOW)
    assert next_harvest(NOW) == second
    begin(second, NOW)
    assert next_harvest(NOW, "a") is None


def test_a_job_is_overtaken_for_ten_minutes_at_most():
    first, second, third = make_jobs("a", "b", "b")
    begin(second, NOW)

    assert next_harvest(NOW + AT_MOST, "b") == third
    assert next_harvest(NOW + AT_MOST + timedelta(seconds=1), "b") == first


def test_younger_jobs_are_checked_only_before_overtaking(monkeypatch):
    calls = []
    monkeypatch.setattr(ledger, "is_overdue", lambda *args: calls.append(args))
    first, second, _ = make_jobs("a", "b", "b")

    assert next_harvest(NOW, "a") == next_harvest(NOW) == first
    assert calls == []
    assert next_harvest(NOW, "b") == second
    assert calls == [(first, "harvest", NOW)]


def test_queues_are_separate_and_loaded_lms_affect_only_lm_queues(settings):
    settings.JOB_RUNNERS = {**settings.JOB_RUNNERS, "no_lm": ""}
    [harvest] = make_jobs("a")
    on_gpu = Job.objects.create(kind="harvest", lm="a", payload={"device": "cuda"})
    urgent, light = Job.objects.create(kind="mark_sensitive"), Job.objects.create(kind="no_lm", lm="b")
    Job.objects.create(kind="no_lm", lm="a")

    jobs = {queue: ledger.next_job(queue, NOW, ["a"]) for queue in ("urgent", "light", "harvest", "gpu", "celery")}

    assert jobs == {"urgent": urgent.pk, "light": light.pk, "harvest": harvest, "gpu": on_gpu.pk, "celery": None}


class Workers:
    """Simulated workers on the real ledger with a clock, lost and duplicate messages, and LMs in memory."""

    def __init__(self, seed: int, n_workers: int, n_kept: int, prefers: bool, monkeypatch):
        self.rng, self.now, self.prefers, self.n_kept = random.Random(seed), NOW, prefers, n_kept
        self.messages: deque[str] = deque()
        self.rows = [factories.make_worker(NOW, queues=["harvest"]) for _ in range(n_workers)]
        self.memory: list[list[str]] = [[] for _ in range(n_workers)]
        self.hands: list[tuple[int, datetime] | None] = [None] * n_workers
        self.begun: list[int] = []
        self.overtaken: dict[int, datetime] = {}  # job id -> first time
        self.longest = timedelta()
        self.n_loads = 0
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(messages, "wake", lambda queue, request_id="": self.send(queue))

    def send(self, queue: str) -> None:
        self.messages.extend([queue] * self.rng.choices([0, 1, 2], [2, 7, 1])[0])

    def step(self) -> None:
        self.now += STEP
        for number in self.rng.sample(range(len(self.hands)), len(self.hands)):
            self.monkeypatch.setattr(workers, "TOKEN", self.rows[number].token)
            self.end(number)
            ledger.wake_idle(self.rows[number], self.now)
            while self.hands[number] is None and self.messages:
                self.take(number, self.messages.popleft())

    def end(self, number: int) -> None:
        if self.hands[number] and self.hands[number][1] <= self.now:
            job_id = self.hands[number][0]
            ended = Job.objects.filter(pk=job_id, status="running")
            assert ended.update(status="succeeded", owner_token=None, lease_expires_at=None)
            self.hands[number] = None
            ledger.wake_next("harvest", self.now)

    def take(self, number: int, queue: str) -> None:
        job_id = ledger.next_job(queue, self.now, self.memory[number] if self.prefers else [])
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
            arrivals.pop(0)
            Job.objects.create(kind="harvest", lm=lms.pop(0))
            sim.send("harvest")
        sim.step()
        assert sim.now < NOW + timedelta(hours=6)
    assert sorted(sim.begun) == sorted(Job.objects.values_list("pk", flat=True))  # each once
    assert len(sim.begun) == n_jobs
    return sim


@pytest.mark.parametrize("seed", range(4))
def test_every_job_runs_once_and_overtaking_is_limited(seed, monkeypatch):
    sim = simulate(seed, prefers=True, monkeypatch=monkeypatch)
    assert sim.longest <= AT_MOST


def test_lms_are_rarely_reloaded_when_two_alternate():
    """Thirty one-minute jobs and one worker that keeps one LM. Without a preference it would load 30 times."""
    now, memory, loads = NOW, "", 0
    for _ in make_jobs(*"ab" * 15):
        job_id = next_harvest(now, memory)
        begin(job_id, now)
        Job.objects.filter(pk=job_id).update(status="succeeded", owner_token=None, lease_expires_at=None)
        now += timedelta(minutes=1)
        lm = Job.objects.get(pk=job_id).lm
        loads, memory = loads + (lm != memory), lm

    assert loads == 3  # 12 jobs of a until b has waited for ten minutes, all jobs of b, the rest of a


def test_worker_chooses_another_job_after_losing_a_claim(monkeypatch, woken):
    first, second = make_jobs("a", "a")
    done: list[int] = []

    def run_job(job_id: int) -> bool:
        if job_id == first:
            begin(first, datetime.now(UTC))  # another worker was faster
            return False
        done.append(job_id)
        return True

    monkeypatch.setattr(ledger, "run_job", run_job)

    tasks.do_next("harvest")

    assert done == [second]


def test_worker_without_a_claim_sends_no_message(monkeypatch, woken):
    """A draining worker cannot claim jobs, for example."""
    make_jobs("a")
    monkeypatch.setattr(ledger, "run_job", lambda job_id: False)

    tasks.do_next("harvest")

    assert woken == []


def test_harvest_job_has_the_harvest_queue():
    job = factories.make_harvest_job()

    assert job.queue == "harvest"
