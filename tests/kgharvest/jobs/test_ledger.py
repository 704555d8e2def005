"""Job ledger: claims, leases, retries, and cleanup after failures."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.db import OperationalError as DatabaseIsLocked
from django.utils import timezone

from kgharvest.engine.types import BadSeed, Progress
from kgharvest.jobs import ledger, tasks
from kgharvest.jobs.workers import WorkerSpec
from kgharvest.models import HarvestedTuple, Job, KnowledgeTuple
from kgharvest.operations.clock import shared_now
from tests import factories
from tests.kgharvest.jobs import slow_runner
from tests.postgres import parameters_counted
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPEC = WorkerSpec("worker@here", ["harvest"], 1)


def use_runner(settings, monkeypatch, runner) -> None:
    settings.JOB_RUNNERS = {"harvest": "tests.kgharvest.jobs.slow_runner.run"}
    monkeypatch.setattr(slow_runner, "run", runner)


def make_running_job(expires_at: datetime, **fields):
    return factories.make_harvest_job(
        Job.Status.RUNNING, owner_token=uuid4(), lease_expires_at=expires_at, **{"attempts": 1, **fields}
    )


def store_three(job: Job) -> ledger.Store:
    return lambda: slow_runner.runner.store_result(job.harvestjob, slow_runner.three_tuples(), None)


# Housekeeping jobs


def test_a_housekeeping_job_is_queued_once(enqueued):
    for _ in range(2):
        ledger.enqueue_once("deliver_webhooks")

    assert enqueued == [Job.objects.get(kind="deliver_webhooks").pk]


def test_housekeeping_jobs_are_deleted_a_day_after_they_ended(enqueued):
    now = timezone.now()
    ended = [
        Job.objects.create(kind=kind, status=Job.Status.SUCCEEDED, finished_at=now - timedelta(hours=hours))
        for kind, hours in [("deliver_webhooks", 25), ("deliver_webhooks", 23), ("panel_events", 25)]
    ]

    ledger.delete_ended("deliver_webhooks")

    assert list(Job.objects.order_by("pk")) == ended[1:]


def test_statements_are_batched(enqueued, monkeypatch):
    monkeypatch.setattr(ledger, "JOBS_AT_ONCE", 10)
    ended = {"status": Job.Status.SUCCEEDED, "finished_at": timezone.now() - timedelta(days=2)}
    Job.objects.bulk_create(Job(kind="deliver_webhooks", **ended) for _ in range(100))
    jobs = Job.objects.bulk_create(Job(kind="harvest") for _ in range(100))
    Job.objects.bulk_create(Job(kind="harvest-part", parent=job) for job in jobs)

    with parameters_counted() as counts:
        ledger.delete_ended("deliver_webhooks")
        n_cancelled = ledger.cancel_all(Job.objects.filter(kind="harvest"))
        n_retried = ledger.retry_all(Job.objects.filter(kind="harvest"))

    assert (n_cancelled, n_retried) == (100, 100)
    assert Job.objects.count() == 100
    assert max(counts) < 50


# Claims


def test_a_queued_job_is_claimed_once():
    job = factories.make_harvest_job()

    assert ledger.claim(job.pk, NOW) is not None
    assert ledger.claim(job.pk, NOW) is None


def test_job_of_unknown_kind_stays_queued_for_a_newer_worker(settings):
    job = factories.make_harvest_job(kind="of-a-later-version")

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == (Job.Status.QUEUED, 0, "")
    settings.JOB_RUNNERS = {**settings.JOB_RUNNERS, "of-a-later-version": "tests.kgharvest.jobs.slow_runner.run"}
    assert ledger.claim(job.pk, NOW) is not None


def test_a_running_job_is_claimed_only_after_its_lease():
    job = make_running_job(NOW)

    assert ledger.claim(job.pk, NOW - timedelta(seconds=1)) is None
    assert ledger.claim(job.pk, NOW + timedelta(seconds=1)) is not None


def test_a_host_with_a_fast_clock_claims_no_running_job(monkeypatch):
    monkeypatch.setattr(ledger, "shared_now", lambda: NOW)
    job = make_running_job(NOW + timedelta(seconds=1))  # expired according to the clock of this host

    assert not ledger.run_job(job.pk)


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_is_not_claimed(status):
    job = factories.make_harvest_job(status)

    assert ledger.claim(job.pk, NOW) is None


def test_claims_are_capped():
    job = make_running_job(NOW, attempts=3, max_attempts=3)

    assert ledger.claim(job.pk, NOW + timedelta(hours=1)) is None


def test_a_running_job_without_owner_cannot_be_stored():
    with pytest.raises(IntegrityError), transaction.atomic():
        factories.make_harvest_job(Job.Status.RUNNING)


# Running


def test_results_and_success_are_stored_in_one_transaction(settings, monkeypatch):
    use_runner(settings, monkeypatch, lambda job, heartbeat: store_three(job))
    job = factories.make_harvest_job()

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.n_tuples, job.attempts, job.owner_token) == (Job.Status.SUCCEEDED, 3, 1, None)
    assert job.tuples.get(rank=1).knowledge_tuple.entities == ["dog", "swim"]
    assert job.summary["rejected"] == {"stop word": 2}


def test_duplicate_message_changes_nothing(settings, monkeypatch):
    use_runner(settings, monkeypatch, lambda job, heartbeat: store_three(job))
    job = factories.make_harvest_job()

    ledger.run_job(job.pk)
    ledger.run_job(job.pk)

    assert HarvestedTuple.objects.filter(job=job).count() == 3


def test_harvests_share_equal_knowledge_tuples(settings, monkeypatch):
    use_runner(settings, monkeypatch, lambda job, heartbeat: store_three(job))
    relation = factories.make_relation()

    for _ in range(2):
        ledger.run_job(factories.make_harvest_job(relation=relation).pk)

    assert KnowledgeTuple.objects.count() == 3
    assert HarvestedTuple.objects.count() == 6


def test_progress_is_stored_and_renews_the_lease(settings, monkeypatch):
    seen = []

    def runner(job, heartbeat):
        before = Job.objects.get(pk=job.pk).lease_expires_at
        heartbeat(Progress("search", 3, 10))
        after = Job.objects.get(pk=job.pk)
        seen.append((after.stage, after.done, after.total, after.lease_expires_at > before))
        return lambda: None

    use_runner(settings, monkeypatch, runner)

    ledger.run_job(factories.make_harvest_job().pk)

    assert seen == [("search", 3, 10, True)]


def test_reports_of_one_stage_are_throttled(monkeypatch, django_assert_num_queries):
    job = factories.make_harvest_job()
    heartbeat = ledger.Heartbeat(job.pk, ledger.claim(job.pk, timezone.now()))
    clock = iter(step / 10 for step in range(1000))
    monkeypatch.setattr(ledger, "monotonic", lambda: next(clock))
    monkeypatch.setattr("kgharvest.operations.clock._synced", None)
    shared_now()  # sync the clock now; otherwise a report does it once a minute

    with django_assert_num_queries(10):  # 40 reports, one in four is stored
        for done in range(40):
            heartbeat(Progress("search", done, 40))


@pytest.mark.django_db(transaction=True)
def test_a_failed_report_does_not_end_the_job(monkeypatch):
    def refuse(**report):
        raise DatabaseIsLocked("database is locked")

    job = factories.make_harvest_job()
    heartbeat = ledger.Heartbeat(job.pk, ledger.claim(job.pk, timezone.now()))
    monkeypatch.setattr(heartbeat, "renew", refuse)
    heartbeat(Progress("search", 1, 10))
    monkeypatch.undo()

    heartbeat(Progress("rescore", 2, 10))

    job.refresh_from_db()
    assert (job.stage, job.done) == ("rescore", 2)


def test_cancelled_job_stops_within_two_seconds(settings, monkeypatch):
    clock = iter(step / 10 for step in range(1000))
    monkeypatch.setattr(ledger, "monotonic", lambda: next(clock))
    reports = []

    def runner(job, heartbeat):
        heartbeat(Progress("search", 0, 100))
        ledger.cancel(job)
        for done in range(1, 100):
            reports.append(done)
            heartbeat(Progress("search", done, 100))
        return store_three(job)

    use_runner(settings, monkeypatch, runner)
    job = factories.make_harvest_job()

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert job.status == Job.Status.CANCELLED
    assert len(reports) < 20  # of 0.1 s each
    assert not HarvestedTuple.objects.exists()


def test_results_of_a_taken_over_job_are_not_stored(settings, monkeypatch):
    def runner(job, heartbeat):
        Job.objects.filter(pk=job.pk).update(owner_token=uuid4())
        return store_three(job)

    use_runner(settings, monkeypatch, runner)
    job = factories.make_harvest_job()

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert job.status == Job.Status.RUNNING
    assert not HarvestedTuple.objects.exists()


def test_failure_while_storing_leaves_no_results(settings, monkeypatch):
    def runner(job, heartbeat):
        def store():
            store_three(job)()
            raise BadSeed("The second half cannot be stored; try again.")

        return store

    use_runner(settings, monkeypatch, runner)
    job = factories.make_harvest_job()

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.n_tuples) == (Job.Status.FAILED, 0)
    assert job.error == "The second half cannot be stored; try again."
    assert not HarvestedTuple.objects.exists()


def test_an_unexpected_error_is_recorded_without_its_text_and_raised(settings, monkeypatch):
    def runner(job, heartbeat):
        raise ZeroDivisionError("/secret/path")

    use_runner(settings, monkeypatch, runner)
    job = factories.make_harvest_job()

    with pytest.raises(ZeroDivisionError):
        ledger.run_job(job.pk)

    job.refresh_from_db()
    assert job.status == Job.Status.FAILED
    assert job.error == f"An unexpected error stopped this job. See the worker's log under job {job.pk}."


@pytest.mark.django_db(transaction=True)
def test_step_without_reports_keeps_its_lease(settings):
    settings.JOB_LEASE_S = 0.3
    started_at = timezone.now()
    job = factories.make_harvest_job()
    heartbeat = ledger.Heartbeat(job.pk, ledger.claim(job.pk, started_at))

    with heartbeat.kept_alive():
        threading.Event().wait(1)

    assert Job.objects.get(pk=job.pk).lease_expires_at > started_at + timedelta(seconds=0.9)


# Cancellation and retries


def test_a_failed_job_is_queued_again_with_all_attempts(enqueued):
    job = factories.make_harvest_job(Job.Status.FAILED, attempts=3, error="Out of memory.")

    ledger.retry(job)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == (Job.Status.QUEUED, 0, "")
    assert enqueued == [job.pk]


def test_an_equal_job_of_another_project_does_not_prevent_a_retry(enqueued):
    here, there = factories.make_project(), factories.make_project()
    failed = Job.objects.create(kind="harvest", project=here, unique_key="same", status=Job.Status.FAILED)
    succeeded = Job.objects.create(kind="harvest", project=here, unique_key="other", status=Job.Status.SUCCEEDED)
    for key in ("same", "other"):
        Job.objects.create(kind="harvest", project=there, unique_key=key)

    ledger.retry(failed)

    failed.refresh_from_db()
    assert failed.status == Job.Status.QUEUED
    with refused("JobNotOpen", match="neither failed nor been canceled"):
        ledger.retry(succeeded)


@pytest.mark.parametrize("has_project", [True, False])
def test_an_equal_job_of_the_same_project_prevents_a_retry(enqueued, has_project):
    project = factories.make_project() if has_project else None
    failed = Job.objects.create(kind="harvest", project=project, unique_key="same", status=Job.Status.FAILED)
    Job.objects.create(kind="harvest", project=project, unique_key="same")

    with refused("JobNotOpen", match="same task"):
        ledger.retry(failed)


def test_succeeded_job_is_neither_cancelled_nor_retried(enqueued):
    job = factories.make_harvest_job(Job.Status.SUCCEEDED)

    with refused("JobNotOpen", match="already ended"):
        ledger.cancel(job)
    with refused("JobNotOpen", match="neither failed nor been canceled"):
        ledger.retry(job)
    assert enqueued == []


# Worker wake-up


def make_jobs(n: int, **fields) -> list[Job]:
    return [factories.make_harvest_job(**fields) for _ in range(n)]


def test_new_jobs_wake_idle_processes_or_at_least_one_worker(woken):
    jobs = make_jobs(5)

    ledger.enqueue(*jobs, Job.objects.create(kind="pack"))
    assert woken == ["harvest", "light"]
    woken.clear()
    factories.make_worker(timezone.now(), queues=["harvest"], n_processes=3)
    ledger.enqueue(*jobs)
    assert woken == ["harvest"] * 3
    woken.clear()
    ledger.enqueue(jobs[0])
    assert woken == ["harvest"]


def test_retried_jobs_wake_workers(woken):
    factories.make_worker(timezone.now(), queues=["harvest"], n_processes=2)
    make_jobs(3, status="failed")

    assert ledger.retry_all(Job.objects.all()) == 3
    assert woken == ["harvest"] * 2


def test_idle_worker_is_woken_for_jobs_with_lost_messages(woken, settings):
    settings.JOB_RUNNERS = settings.JOB_RUNNERS | {"pack": "kgharvest.contrib.publishing.packs.pack_jobs.run_pack_job"}
    worker = factories.make_worker(NOW, queues=["harvest", "light"], n_processes=3)
    make_running_job(NOW + timedelta(minutes=1), worker=worker)
    make_jobs(5)
    Job.objects.create(kind="pack")

    ledger.wake_idle(worker, NOW)

    assert woken == ["light", "harvest", "harvest"]


def test_busy_workers_receive_no_messages(woken):
    worker = factories.make_worker(NOW, queues=["harvest"])
    make_running_job(NOW + timedelta(minutes=1), worker=worker)
    make_jobs(5)

    ledger.wake_idle(worker, NOW)

    assert woken == []


def test_worker_is_woken_only_for_acceptable_jobs(woken):
    worker = factories.make_worker(NOW, queues=["urgent", "light", "harvest"])
    make_jobs(2, payload={"device": "cuda"})
    ledger.wake_idle(worker, NOW)
    assert woken == []

    worker.is_draining = True
    make_jobs(1)
    ledger.wake_idle(worker, NOW)
    assert woken == []


def test_lost_job_wakes_an_idle_worker_immediately(woken):
    job = make_running_job(NOW)
    worker = factories.make_worker(NOW, queues=["harvest"])

    ledger.wake_idle(worker, NOW)
    assert woken == []
    ledger.wake_idle(worker, NOW + timedelta(seconds=1))
    assert woken == ["harvest"]
    assert ledger.next_job("harvest", NOW + timedelta(seconds=1), []) == job.pk


def test_ended_job_wakes_a_worker_for_the_next_queue(woken, monkeypatch):
    worker = factories.make_worker(NOW, queues=["urgent", "light", "harvest"])
    monkeypatch.setattr(ledger.workers, "TOKEN", worker.token)
    make_jobs(2)
    make_jobs(1, payload={"device": "cuda"})
    Job.objects.create(kind="mark_sensitive")

    for queue in ("harvest", "urgent", "light", "gpu"):
        ledger.wake_next(queue, NOW)
    assert woken == ["urgent", "harvest", "harvest", "urgent"]
    Job.objects.all().delete()
    ledger.wake_next("harvest", NOW)
    assert len(woken) == 4


def test_task_without_database_leaves_its_job_queued(woken, monkeypatch, caplog):
    def refuse(*args):
        raise DatabaseIsLocked("the server is starting up")

    [job] = make_jobs(1)
    monkeypatch.setattr(ledger, "claim", refuse)

    tasks.run_job.apply(routing_key="harvest")

    job.refresh_from_db()
    assert (job.status, woken) == (Job.Status.QUEUED, [])
    assert "The database is unavailable" in caplog.text


@pytest.mark.parametrize("arguments", [[], [1], [10**9]])
def test_message_of_older_version_runs_next_job_of_its_queue(woken, monkeypatch, settings, arguments):
    use_runner(settings, monkeypatch, lambda job, heartbeat: lambda: None)
    first, second = make_jobs(2)

    result = tasks.run_job.apply(args=arguments, routing_key="harvest")

    assert result.successful()
    statuses = [Job.objects.get(pk=job.pk).status for job in (first, second)]
    assert (statuses, woken) == (["succeeded", "queued"], ["harvest"])


def test_message_of_a_removed_queue_does_nothing(woken):
    make_jobs(1)

    assert tasks.run_job.apply(args=[1], routing_key="celery").successful()
    assert (Job.objects.get().status, woken) == ("queued", [])


def test_unexpected_failure_wakes_a_worker_for_the_next_job(woken, monkeypatch, settings):
    def fail_at_once(job, heartbeat):
        raise ZeroDivisionError

    use_runner(settings, monkeypatch, fail_at_once)
    make_jobs(2)

    tasks.run_job.apply(routing_key="harvest")

    assert woken == ["harvest"]


# Lost jobs


def test_job_with_dying_workers_fails_with_advice():
    job = make_running_job(NOW, attempts=3)

    ledger.recover(NOW + timedelta(seconds=1))

    job.refresh_from_db()
    assert job.status == Job.Status.FAILED
    assert "insufficient memory" in job.error


def test_a_job_with_a_valid_lease_is_not_recovered():
    job = make_running_job(NOW + timedelta(minutes=1))

    ledger.recover(NOW)

    job.refresh_from_db()
    assert job.status == Job.Status.RUNNING


def test_jobs_of_an_older_version_get_their_queue():
    job = factories.make_harvest_job()
    Job.objects.update(queue="")

    ledger.recover(NOW)

    job.refresh_from_db()
    assert job.queue == "harvest"


# Periodic tasks


def fail(now: datetime) -> None:
    raise ValueError("a task")


def retry_later(now: datetime) -> None:
    raise DatabaseIsLocked("away")


def test_failed_periodic_duties_are_retried(settings, caplog):
    settings.JOB_LOOK_EVERY_S = 0
    duties = object.__new__(tasks.Duties)
    duties.ended, duties.is_draining = threading.Event(), False
    n_rounds = 0

    def run() -> None:
        nonlocal n_rounds
        n_rounds += 1
        if n_rounds == 2:
            duties.ended.set()
        raise ValueError("a bug")

    duties.run = run
    duties.run_until_ended()

    assert n_rounds == 2
    assert "a bug" in caplog.text


def test_a_failing_periodic_task_does_not_stop_the_others(settings, caplog, monkeypatch):
    monkeypatch.setattr(tasks, "connection", SimpleNamespace(close=lambda: None))
    calls: list[datetime] = []
    monkeypatch.setattr(tasks, "import_string", {"fail": fail, "count": calls.append}.get)
    settings.PERIODIC_TASKS = ["fail", "count"]

    tasks.run_periodic_tasks(SPEC)

    assert len(calls) == 1
    assert "The periodic task fail failed." in caplog.text


def test_periodic_tasks_are_skipped_without_a_database(settings, caplog, monkeypatch):
    monkeypatch.setattr(tasks, "connection", SimpleNamespace(close=lambda: None))
    calls: list[datetime] = []
    monkeypatch.setattr(tasks, "import_string", {"retry": retry_later, "count": calls.append}.get)
    settings.PERIODIC_TASKS = ["retry", "count"]

    tasks.run_periodic_tasks(SPEC)

    assert calls == []
    assert "cannot reach the database" in caplog.text
