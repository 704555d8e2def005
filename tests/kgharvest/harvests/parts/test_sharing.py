"""Harvests shared by several workers. The tuples do not change if workers die or fail."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine import harvest as engine
from kgharvest.engine import parts
from kgharvest.engine.types import EngineError, HarvestParams
from kgharvest.harvests.parts import sharing
from kgharvest.harvests.parts.sharing import KIND, PREPARED
from kgharvest.harvests.runner import HarvestRequest, create_harvest_job, run_harvest
from kgharvest.jobs import ledger, workers
from kgharvest.models import HarvestedTuple, HarvestJob, HarvestPart, Job, JobPrompt, Worker
from kgharvest.operations.metrics import job_metrics
from tests import factories
from tests.sampling import every

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not (EMBEDDED_LMS["embedded"] / "config.json").is_file(), reason="the embedded LM is missing"),
]

PARAMS = HarvestParams(candidates=12, max_tuples=20)


class Killed(BaseException):
    """Simulated death of a worker process: the ledger receives no more reports of the job."""


@pytest.fixture(autouse=True)
def idle_worker(monkeypatch, settings):
    """Simulate a second worker that is idle from the start, and split re-scoring into several parts."""
    settings.HARVEST_SHARED_AFTER_S = 0
    monkeypatch.setattr(sharing, "POLL_S", 0)
    monkeypatch.setattr(workers, "idle_processes", lambda now: {"harvest": 1})
    monkeypatch.setattr(parts, "MIN_TOGETHER", 3)
    monkeypatch.setattr(parts, "MOST_RESCORE_PARTS", 5)


@pytest.fixture
def cell_request(db):
    relation = factories.make_relation(
        "capital_of",
        statement="<ENT0> is the capital of <ENT1>.",
        initial_prompts=["<ENT0> is the capital of <ENT1>.", "the capital of <ENT1> is <ENT0>."],
        seed_tuples=[["lisbon", "portugal"], ["berlin", "germany"]],
    )
    return HarvestRequest(relation, factories.make_language_model("embedded"), "human", PARAMS)


def make_job(request) -> HarvestJob:
    return HarvestJob.objects.get(pk=create_harvest_job(request).pk)


def results_of(job: HarvestJob):
    """Return the tuples, prompts, and summary of a succeeded harvest with exact floats."""
    job.refresh_from_db()
    assert job.status == "succeeded", job.error
    summary = {name: job.summary[name] for name in ("rejected", "stats", "notice", "warning", "codes", "revision")}
    rows = HarvestedTuple.objects.filter(job=job).order_by("rank")
    prompts = JobPrompt.objects.filter(job=job).order_by("prompt")
    return (
        list(rows.values_list("rank", "knowledge_tuple", "surface", "score", "mtl")),
        list(prompts.values_list("prompt", "weight", "compatibility")),
        summary,
    )


@pytest.fixture
def expected(cell_request, monkeypatch):
    """Return the results of a single worker."""
    with monkeypatch.context() as patched:
        patched.setattr(workers, "idle_processes", lambda now: {"harvest": 0})
        job = make_job(cell_request)
        ledger.run_job(job.pk)
    found = results_of(job)
    assert "parts" not in job.summary
    return found


class OtherWorkers:
    """Simulated workers that run some parts in random order when the harvest creates parts or waits."""

    def __init__(self, monkeypatch, seed=0, share=0.5):
        self.random, self.share, self.n_done = random.Random(seed), share, 0
        hand_out = sharing.Sharing._hand_out

        def hand_out_and_do(shared):
            hand_out(shared)
            self.do_some()

        monkeypatch.setattr(sharing.Sharing, "_hand_out", hand_out_and_do)
        monkeypatch.setattr(sharing, "sleep", lambda seconds: self.do_some())

    def do_some(self):
        waiting = list(Job.objects.claimable(timezone.now()).filter(kind=KIND).values_list("pk", flat=True))
        self.random.shuffle(waiting)
        for job_id in waiting[: round(self.share * len(waiting))]:
            assert ledger.run_job(job_id)
            self.n_done += 1


def test_a_shared_harvest_without_other_workers_is_the_same(cell_request, expected):
    job = make_job(cell_request)

    ledger.run_job(job.pk)

    assert results_of(job) == expected
    assert job.summary["parts"]["n"] > 4
    assert job.summary["parts"]["n_workers"] == 1
    assert not Job.objects.filter(kind=KIND).exists()
    assert not HarvestPart.objects.exists()


@pytest.mark.parametrize(("seed", "share"), every(3, [(0, 0.5), (1, 1), (2, 0.2)]))
def test_results_do_not_depend_on_the_workers_of_parts(cell_request, expected, monkeypatch, seed, share):
    others = OtherWorkers(monkeypatch, seed, share)
    job = make_job(cell_request)

    ledger.run_job(job.pk)

    assert results_of(job) == expected
    assert others.n_done > 1


def test_small_harvests_are_not_shared(cell_request, expected, settings):
    settings.HARVEST_SHARED_AFTER_S = 60
    job = make_job(cell_request)

    ledger.run_job(job.pk)

    assert results_of(job) == expected
    assert "parts" not in job.summary


def die_at(monkeypatch, when):
    """Patch the heartbeat to raise Killed at the first report for which `when(progress)` is true."""
    report = ledger.Heartbeat.__call__

    def report_or_die(heartbeat, progress):
        report(heartbeat, progress)
        if when(progress):
            raise Killed

    monkeypatch.setattr(ledger.Heartbeat, "__call__", report_or_die)


def expire_leases():
    Job.objects.filter(status="running").update(lease_expires_at=timezone.now() - timedelta(seconds=1))


@pytest.mark.parametrize("stage", ["search", "rescore"])
def test_another_worker_resumes_the_harvest_of_a_killed_worker(cell_request, expected, monkeypatch, stage):
    job = make_job(cell_request)
    with monkeypatch.context() as patched:
        die_at(patched, lambda progress: progress.stage == stage and "1 of" in progress.note)
        with pytest.raises(Killed):
            ledger.run_job(job.pk)
    expire_leases()
    n_done = HarvestPart.objects.filter(job__status="succeeded").exclude(stage=PREPARED).count()
    assert n_done >= (1 if stage == "search" else 4)
    n_done_again = []
    monkeypatch.setattr(engine, "prepare", None)  # the stored preparation must be reused
    do_part = sharing.run_part
    monkeypatch.setattr(sharing, "run_part", lambda *args: n_done_again.append(1) or do_part(*args))

    ledger.run_job(job.pk)

    assert results_of(job) == expected
    assert job.attempts == 2
    assert len(n_done_again) == job.summary["parts"]["n"] - n_done


def test_parts_of_another_version_are_discarded(cell_request, expected, monkeypatch):
    job = make_job(cell_request)
    with monkeypatch.context() as patched:
        die_at(patched, lambda progress: "1 of" in progress.note)
        with pytest.raises(Killed):
            ledger.run_job(job.pk)
    expire_leases()
    monkeypatch.setattr(sharing, "code_version", lambda: "of tomorrow")

    ledger.run_job(job.pk)

    assert results_of(job) == expected


def test_lost_part_is_taken_over(cell_request, expected, monkeypatch):
    with monkeypatch.context() as patched:
        others = OtherWorkers(patched, share=0)
        job = make_job(cell_request)
        lost = []

        def claim_and_die():
            for part in Job.objects.filter(kind=KIND, status="queued")[:1]:
                if not lost and ledger.claim(part.pk, timezone.now()):
                    lost.append(part.pk)
                    return
            expire_leases_of(lost)

        def expire_leases_of(job_ids):
            Job.objects.filter(pk__in=job_ids, status="running").update(lease_expires_at=F("started_at"))

        others.do_some = claim_and_die
        ledger.run_job(job.pk)

    assert lost
    assert results_of(job) == expected


def test_an_error_in_a_part_fails_the_harvest_with_its_message(cell_request, monkeypatch):
    def refuse(*args):
        raise EngineError("The LM answers with NaN; its weights are damaged.")

    OtherWorkers(monkeypatch)
    monkeypatch.setattr(sharing, "run_part", refuse)
    job = make_job(cell_request)

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.error) == ("failed", "The LM answers with NaN; its weights are damaged.")
    assert not Job.objects.filter(kind=KIND).exists()


def test_harvest_worker_runs_parts_that_failed_on_other_workers(cell_request, expected, monkeypatch):
    """Simulate a worker without the folder of the LM or with insufficient memory."""
    other, failed_parts = factories.make_worker(timezone.now()), []
    do_part = sharing.run_part

    def refuse_elsewhere(part, heartbeat):
        if heartbeat.token == part.parent.owner_token:
            return do_part(part, heartbeat)
        failed_parts.append(part.pk)
        Job.objects.filter(pk=part.pk).update(worker=other)
        raise EngineError("There is no such folder here.")

    OtherWorkers(monkeypatch)
    monkeypatch.setattr(sharing, "run_part", refuse_elsewhere)
    job = make_job(cell_request)

    ledger.run_job(job.pk)

    assert results_of(job) == expected
    assert len(failed_parts) > 1


def test_a_worker_of_another_version_runs_no_part(cell_request, monkeypatch):
    job = make_job(cell_request)
    with monkeypatch.context() as patched:
        die_at(patched, lambda progress: "1 of" in progress.note)
        with pytest.raises(Killed):
            ledger.run_job(job.pk)
    part = Job.objects.filter(kind=KIND, status="queued").first()
    monkeypatch.setattr(sharing, "code_version", lambda: "of tomorrow")

    ledger.run_job(part.pk)

    part.refresh_from_db()
    assert part.status == "failed"
    assert "needs kgharvest version" in part.error


@pytest.mark.parametrize("by", ["own worker", "other worker"])
def test_cancelling_a_harvest_ends_its_parts(cell_request, monkeypatch, by):
    job = make_job(cell_request)
    do_part, begun = sharing.run_part, []

    def cancel_in_a_part(part, heartbeat):
        begun.append(part.pk)
        if len(begun) == 2:
            ledger.cancel(Job.objects.get(pk=job.pk))
        return do_part(part, heartbeat)

    if by == "other worker":
        OtherWorkers(monkeypatch, share=1)
    monkeypatch.setattr(sharing, "run_part", cancel_in_a_part)
    try:
        ledger.run_job(job.pk)
    except AssertionError:  # parts disappear before the other worker runs them
        assert by == "other worker"

    job.refresh_from_db()
    assert job.status == "cancelled"
    assert len(begun) == 2
    assert not Job.objects.filter(kind=KIND).exists()


def test_parts_do_not_appear_as_jobs(cell_request, monkeypatch, client):
    seen = []
    researcher = factories.make_researcher()

    def look(*args):
        rows = Job.objects.visible_to(researcher).values_list("kind", flat=True)
        [jobs] = [reading for reading in job_metrics(timezone.now()) if reading.name == "kgharvest_jobs"]
        seen.append((list(rows), sorted({kind for kind, _ in jobs.values}), Job.objects.filter(kind=KIND).count() > 1))
        return do_part(*args)

    do_part = sharing.run_part
    monkeypatch.setattr(sharing, "run_part", look)
    job = make_job(cell_request)

    ledger.run_job(job.pk)

    assert set(map(str, seen)) == {str((["harvest"], ["harvest"], True))}


def test_a_draining_worker_runs_the_parts_of_its_harvest(cell_request, expected):
    Worker.objects.create(name="one@here", token=workers.TOKEN, seen_at=timezone.now(), queues=["harvest"])
    job = make_job(cell_request)
    token = ledger.claim(job.pk, timezone.now())
    Worker.objects.update(is_draining=True)

    store = run_harvest(Job.objects.get(pk=job.pk), ledger.Heartbeat(job.pk, token))
    ledger._finish(job.pk, token, store)

    assert results_of(job) == expected
