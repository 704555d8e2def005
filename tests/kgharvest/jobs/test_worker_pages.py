"""Worker and queue status on the page, in the command, and in the API."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from kgharvest.jobs import overview, workers
from kgharvest.models import Job, Role, Worker
from tests import factories

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAGE = "/workers/"


def make_running(worker: Worker, started_at: datetime, **fields) -> Job:
    lease = {"owner_token": worker.token, "lease_expires_at": started_at + timedelta(hours=3)}
    return factories.make_harvest_job("running", worker=worker, started_at=started_at, **lease, **fields)


def output_of(*arguments: str) -> str:
    stdout = StringIO()
    call_command("workers", *arguments, stdout=stdout)
    return stdout.getvalue()


# Status


def test_workers_are_in_one_of_five_states():
    working = factories.make_worker(NOW)
    make_running(working, NOW)
    factories.make_worker(NOW)
    draining = factories.make_worker(NOW, is_draining=True)
    make_running(draining, NOW)
    factories.make_worker(NOW - timedelta(minutes=2), is_draining=True, left_at=NOW - timedelta(minutes=2))
    factories.make_worker(NOW - timedelta(seconds=61))
    factories.make_worker(NOW - timedelta(hours=25))

    assert [row.state for row in overview.worker_rows(None, NOW)] == list(overview.STATES)


def test_throughput_covers_the_last_hour():
    """By hand: 40 + 30 minutes of ended jobs, 10 of a running job, 5 of a job with an expired lease."""
    worker, other = factories.make_worker(NOW), factories.make_worker(NOW)

    def make_ended(begun: int, ended: int, status: str = "succeeded", worker: Worker = worker, **fields) -> None:
        times = {"started_at": NOW - timedelta(minutes=begun), "finished_at": NOW - timedelta(minutes=ended)}
        factories.make_harvest_job(status, worker=worker, **times, **fields)

    make_ended(90, 20, n_tuples=100)
    make_ended(50, 20, "failed")
    make_ended(120, 61, n_tuples=1000)
    make_ended(10, 5, worker=other, n_tuples=7)
    make_running(worker, NOW - timedelta(minutes=10))
    lost = make_running(worker, NOW - timedelta(minutes=20))
    Job.objects.filter(pk=lost.pk).update(lease_expires_at=NOW - timedelta(minutes=15))

    done = overview.throughput_of([worker, other], NOW)

    assert (done[worker.pk].n_jobs, done[worker.pk].n_tuples, done[worker.pk].busy_s) == (2, 100, 85 * 60)
    assert (done[other.pk].n_jobs, done[other.pk].n_tuples, done[other.pk].busy_s) == (1, 7, 5 * 60)


def test_queue_status_includes_queued_jobs_and_missing_workers():
    factories.make_worker(NOW, queues=["urgent", "light", "harvest"])
    factories.make_worker(NOW, queues=["harvest"])
    for device in ("cpu", "cpu", "cuda"):
        factories.make_harvest_job(payload={"device": device})

    rows = {row.name: row for row in overview.queue_rows(NOW)}

    assert [(row.n_waiting, row.n_workers) for row in rows.values()] == [(0, 1), (0, 1), (2, 2), (1, 0)]
    assert [name for name, row in rows.items() if row.lacking] == ["gpu"]


# Page


def test_the_page_without_workers_explains_how_to_start_one(researcher_client):
    page = researcher_client.get(PAGE).content.decode()

    assert "No workers yet" in page
    assert "./run worker" in page


def test_page_shows_workers_and_links_to_their_jobs(researcher_client, django_assert_max_num_queries):
    now = timezone.now()
    job = make_running(
        factories.make_worker(now, language_models=["bert on cpu, float32"]),
        now,
        stage="search",
        lm="bert on cpu, float32",
    )
    for _ in range(5):
        make_running(factories.make_worker(now), now)
    researcher_client.get(PAGE)

    with django_assert_max_num_queries(16):
        page = researcher_client.get(PAGE).content.decode()

    assert job.get_absolute_url() in page
    assert "bert on cpu, float32" in page
    assert "Drain" not in page  # only superusers can drain workers


def test_jobs_of_other_projects_are_not_named(client):
    now = timezone.now()
    other = factories.make_project("other")
    job = make_running(factories.make_worker(now), now, project=other)
    client.force_login(factories.make_member(Role.RESEARCHER))

    page = client.get(PAGE).content.decode()

    assert "(another project)" in page
    assert str(job) not in page
    assert job.get_absolute_url() not in page


def test_a_superuser_drains_and_undrains_a_worker(admin_client):
    worker = factories.make_worker(timezone.now(), name="celery@here")

    page = admin_client.post(reverse("kgharvest:worker_drain", args=[worker.pk]), follow=True).content.decode()
    assert "celery@here is draining" in page
    worker.refresh_from_db()
    assert worker.is_draining
    assert "Undrain" in page

    again = admin_client.post(reverse("kgharvest:worker_drain", args=[worker.pk]), follow=True).content.decode()
    assert "is gone or already draining" in again
    admin_client.post(reverse("kgharvest:worker_undrain", args=[worker.pk]))
    worker.refresh_from_db()
    assert not worker.is_draining


# Command and API


def test_command_lists_and_drains_workers_and_rejects_invalid_names():
    assert "Start a worker with ./run worker" in output_of()
    now = timezone.now()
    worker = factories.make_worker(now, name="celery@here", devices=["cpu, 2 cores"])
    job = make_running(worker, now, stage="search", done=3, total=9)

    assert f"job {job.pk}: {job}, search, 3 of 9" in output_of()
    [shown] = json.loads(output_of("--json"))["workers"]
    assert (shown["state"], shown["devices"], shown["jobs"][0]["id"]) == ("working", ["cpu, 2 cores"], job.pk)
    assert "is draining" in output_of("--drain", "celery@here")
    assert json.loads(output_of("--json"))["workers"][0]["state"] == "draining"
    assert "accepts jobs again" in output_of("--undrain", "celery@here")
    for arguments, sentence in [
        (["--drain", "nobody"], "Worker 'nobody' not found"),
        (["--undrain", "celery@here"], "not draining"),
    ]:
        with pytest.raises(CommandError, match=sentence):
            output_of(*arguments)


def test_the_api_returns_the_same_status(admin_client):
    now = timezone.now()
    worker = factories.make_worker(now)
    job = make_running(worker, now)

    [row] = admin_client.get("/api/v1/workers/").json()["results"]
    assert (row["name"], row["state"], row["jobs"][0]["id"]) == (worker.name, "working", job.pk)
    assert admin_client.post(f"/api/v1/workers/{worker.pk}/drain/").json()["state"] == "draining"
    assert admin_client.post(f"/api/v1/workers/{worker.pk}/drain/").status_code == 409


# Parts of jobs


def test_worker_running_a_part_is_shown_with_its_job():
    owner, other = factories.make_worker(NOW), factories.make_worker(NOW)
    job = make_running(owner, NOW)
    lease = {"status": "running", "started_at": NOW, "lease_expires_at": NOW + timedelta(hours=1)}
    for worker in (owner, other):
        Job.objects.create(kind="harvest-part", parent=job, worker=worker, owner_token=worker.token, **lease)
    Job.objects.create(kind="harvest-part", parent=job, payload={"device": "cuda"})
    Job.objects.create(kind="harvest-part", parent=job, worker=other, status="succeeded", finished_at=NOW)

    rows = overview.worker_rows(None, NOW)

    assert [[shown.job.pk for shown in row.jobs] for row in rows] == [[job.pk], [job.pk]]
    assert {shown.harvest for row in rows for shown in row.jobs} == {str(job)}
    assert [row.throughput.n_jobs for row in rows] == [0, 0]
    assert [row.state for row in rows] == ["working", "working"]
    assert {row.n_waiting for row in overview.queue_rows(NOW)} == {0}
    assert workers.lacking(NOW) == ""


def test_worker_list_query_count_is_independent_of_workers(admin_client, django_assert_max_num_queries):
    now = timezone.now()
    for _ in range(8):
        make_running(factories.make_worker(now), now)
    admin_client.get("/api/v1/workers/")

    with django_assert_max_num_queries(12):
        rows = admin_client.get("/api/v1/workers/").json()["results"]

    assert [row["state"] for row in rows] == ["working"] * 8
