"""Jobs survive lost database connections. Connections are really cut, on PostgreSQL."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from kgharvest.engine.types import Progress
from kgharvest.jobs import ledger
from kgharvest.models import HarvestedTuple, Job
from tests import factories
from tests.kgharvest.jobs import slow_runner
from tests.postgres import on_postgresql, run_on_postgresql

needs_postgresql = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="requires a database server that can cut connections"
)
pytestmark = pytest.mark.django_db(transaction=True)


@on_postgresql
def test_module_passes_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def cut_connection() -> None:
    """Terminate the connection of this thread on the server. Its next statement fails."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [backend] = cursor.fetchone()
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])
    other.close()


@pytest.fixture
def runner(settings, monkeypatch):
    """Return a function that sets the runner of harvest jobs."""
    settings.JOB_RUNNERS = {"harvest": "tests.kgharvest.jobs.slow_runner.run"}
    return lambda run: monkeypatch.setattr(slow_runner, "run", run)


def store_three(job: Job) -> None:
    slow_runner.runner.store_result(job.harvestjob, slow_runner.three_tuples(), None)


def cut_in_a_query(job, heartbeat):
    cut_connection()
    Job.objects.get(pk=job.pk)


def cut_while_storing(job, heartbeat):
    def store():
        store_three(job)
        cut_connection()

    return store


def cut_while_storing_a_part(job, heartbeat):
    heartbeat.store(cut_connection)
    heartbeat.store(lambda: Job.objects.exists())


@needs_postgresql
@pytest.mark.parametrize("run", [cut_in_a_query, cut_while_storing, cut_while_storing_a_part])
def test_job_with_lost_connection_is_released_immediately_and_retried(runner, run):
    job = factories.make_harvest_job()
    runner(run)

    for n_cuts in range(1, 6):  # exceeds the limit for jobs with dying workers
        ledger.run_job(job.pk)

        job.refresh_from_db()
        assert (job.status, job.attempts, job.max_attempts) == ("running", n_cuts, 3 + n_cuts)
        assert HarvestedTuple.objects.count() == 0

    assert ledger.next_job("harvest", timezone.now() + timedelta(milliseconds=1), []) == job.pk
    runner(lambda job, heartbeat: lambda: store_three(job))
    ledger.run_job(job.pk)
    job.refresh_from_db()
    assert (job.status, job.attempts, HarvestedTuple.objects.count()) == ("succeeded", 6, 3)


@needs_postgresql
def test_job_with_repeated_connection_losses_finally_fails(runner):
    job = factories.make_harvest_job()
    runner(cut_in_a_query)

    for _ in range(ledger.MOST_ATTEMPTS + 1):
        ledger.run_job(job.pk)

    ledger.recover(timezone.now() + timedelta(milliseconds=1))
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("failed", ledger.MOST_ATTEMPTS)
    assert "The worker died or the database failed" in job.error


@needs_postgresql
def test_a_connection_lost_during_a_report_does_not_interrupt_the_job(runner):
    def run(job, heartbeat):
        cut_connection()
        heartbeat(Progress("search", 1, 2))
        heartbeat(Progress("rescore", 2, 2))
        return lambda: store_three(Job.objects.get(pk=job.pk))

    job = factories.make_harvest_job()
    runner(run)

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert (job.status, job.attempts, HarvestedTuple.objects.count()) == ("succeeded", 1, 3)


def test_an_error_on_a_working_connection_counts_as_an_attempt(runner):
    def run(job, heartbeat):
        raise OperationalError("database is locked")

    job = factories.make_harvest_job()
    runner(run)

    for n_attempts in (1, 2, 3):
        ledger.run_job(job.pk)
        job.refresh_from_db()
        assert (job.status, job.attempts) == ("running", n_attempts)

    ledger.recover(timezone.now() + timedelta(milliseconds=1))
    job.refresh_from_db()
    assert (job.status, job.error) == ("failed", ledger.GAVE_UP)


def test_unavailable_database_leaves_the_job_to_its_lease(runner, monkeypatch):
    def refuse(*args, **kwargs):
        raise OperationalError("the server is starting up")

    def run(job, heartbeat):
        monkeypatch.setattr(ledger.Job.objects, "owned", refuse)
        raise OperationalError("the server went away")

    clock = iter(range(1000))
    monkeypatch.setattr(ledger, "monotonic", lambda: next(clock))
    monkeypatch.setattr(ledger, "sleep", lambda seconds: None)
    job = factories.make_harvest_job()
    runner(run)

    ledger.run_job(job.pk)

    job.refresh_from_db()
    assert job.status == "running"
    assert job.lease_expires_at > timezone.now()
