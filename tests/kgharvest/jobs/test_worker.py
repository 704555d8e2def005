"""Real worker processes with the filesystem broker."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.kgharvest.jobs.installation import Installation, kill_group, wait_until
from tests.kgharvest.jobs.slow_runner import HOLD

pytestmark = [pytest.mark.slow, pytest.mark.django_db]  # each installation copies a migrated database


@pytest.fixture(scope="module")
def installation(tmp_path_factory, migrated_database) -> Installation:
    return Installation(tmp_path_factory.mktemp("installation"), migrated_database)


def test_a_harvest_survives_sigkill_of_its_worker_group(installation):
    job = installation.queue_harvest()
    with installation.worker() as worker:
        wait_until(lambda: installation.job(job)["done"] >= 5)
        kill_group(worker)
    assert installation.job(job)["status"] == "running"

    with installation.worker():
        wait_until(lambda: installation.job(job)["status"] == "succeeded")

    assert installation.ranks(job) == [1, 2, 3]
    assert installation.job(job)["attempts"] == 2
    assert installation.starts().count(job) == 2


def test_job_with_a_lost_message_runs(installation):
    job = installation.queue_harvest()
    shutil.rmtree(installation.folder / "broker" / "messages")

    with installation.worker():
        wait_until(lambda: installation.job(job)["status"] == "succeeded")

    assert installation.ranks(job) == [1, 2, 3]
    assert installation.job(job)["attempts"] == 1


def test_worker_runs_jobs_queued_without_a_broker(tmp_path, migrated_database):
    away = {"BROKER_URL": "amqp://127.0.0.1:9//", "DATABASE_URL": "", "DEBUG": "1"}
    installation = Installation(tmp_path, migrated_database, SLOW_RUNNER_STEPS="2", **away)
    jobs = [installation.queue_harvest(setting) for setting in ("human", "top1", "multi")]
    installation.environment["BROKER_URL"] = "filesystem://"

    with installation.worker():
        wait_until(lambda: all(installation.job(job)["status"] == "succeeded" for job in jobs))

    assert [installation.job(job)["attempts"] for job in jobs] == [1, 1, 1]


def test_sixty_jobs_each_finish_once_despite_two_worker_kills(tmp_path, migrated_database):
    sixty = Installation(tmp_path, migrated_database, SLOW_RUNNER_STEPS="3")
    models = [option for number in range(20) for option in ("--model", f"lm-{number}")]
    settings = [option for setting in ("human", "top1", "multi") for option in ("--setting", setting)]
    assert len(sixty.manage("harvest", "--relation", "can", *models, *settings).splitlines()) == 60

    with sixty.worker("steady"):
        for n_done in (10, 25):
            with sixty.worker("killed") as worker:
                wait_until(lambda n_done=n_done: sixty.n_succeeded() >= n_done)
                kill_group(worker)
        with sixty.worker("killed"):
            wait_until(lambda: not sixty.values("SELECT 1 FROM kgharvest_job WHERE status IN ('queued', 'running')"))

    assert sixty.n_succeeded() == 60
    assert sixty.values("SELECT rank FROM kgharvest_harvestedtuple ORDER BY job_id, rank") == [1, 2, 3] * 60
    attempts = sixty.values("SELECT attempts FROM kgharvest_job")
    # Only the jobs of killed workers start twice. A worker can be killed between the claim and the start.
    assert len(sixty.starts()) <= sum(attempts) <= 62


def test_cancelling_stops_the_search_of_a_real_lm(tmp_path, migrated_database):
    real = Installation(tmp_path, migrated_database, TEST_REAL_LM="1")
    long = ["--candidates", "50000", "--max-entity-tokens", "3"]
    job = int(real.manage("harvest", "--relation", "can", "--setting", "human", *long).split()[0])

    with real.worker():
        wait_until(lambda: real.job(job)["stage"] == "search" and real.job(job)["done"] > 0)
        real.cancel(job)

    stopped = real.job(job)
    assert (stopped["status"], stopped["stage"]) == ("cancelled", "search")
    assert stopped["done"] < stopped["total"]
    assert real.ranks(job) == []


def test_urgent_job_finishes_during_a_harvest(tmp_path, migrated_database):
    installation = Installation(tmp_path, migrated_database, SLOW_RUNNER_STEPS="600")
    harvest = installation.queue_harvest()
    with installation.worker("all"), installation.worker("small", "--queues", "urgent", "--pool", "solo"):
        wait_until(lambda: installation.job(harvest)["done"] > 0)
        urgent = installation.queue_urgent_job()
        wait_until(lambda: installation.job(urgent)["status"] == "succeeded")

        assert installation.job(harvest)["status"] == "running"
    queues = map(json.loads, installation.values("SELECT queues FROM kgharvest_worker ORDER BY name"))
    assert list(queues) == [["harvest", "light", "urgent"], ["urgent"]]
    names = "SELECT name FROM kgharvest_worker w JOIN kgharvest_job j ON j.worker_id = w.id WHERE j.id = {}"
    assert [installation.values(names.format(job))[0].split("@")[0] for job in (harvest, urgent)] == ["all", "small"]


def test_worker_runs_urgent_job_before_the_next_harvest(installation):
    harvests = [installation.queue_harvest("human"), installation.queue_harvest("top1")]
    hold = installation.folder / HOLD
    hold.touch()
    with installation.worker():
        wait_until(lambda: installation.job(harvests[0])["status"] == "running")
        urgent = installation.queue_urgent_job()
        hold.unlink()
        wait_until(lambda: installation.job(harvests[1])["status"] == "succeeded")

    assert installation.job(urgent)["finished_at"] < installation.job(harvests[1])["started_at"]


def state_of(installation: Installation, name: str) -> str:
    found = json.loads(installation.manage("workers", "--json"))["workers"]
    return next(worker["state"] for worker in found if worker["name"].startswith(name))


@pytest.mark.parametrize("by", ["the command", "SIGTERM"])
def test_draining_worker_finishes_its_job_and_starts_no_other(tmp_path, migrated_database, by):
    installation = Installation(tmp_path, migrated_database)
    current, next_job = installation.queue_harvest("human"), installation.queue_harvest("top1")
    hold = installation.folder / HOLD
    hold.touch()
    with installation.worker("first") as first:
        wait_until(lambda: installation.job(current)["status"] == "running")
        if by == "SIGTERM":
            first.terminate()
        else:
            [name] = installation.values("SELECT name FROM kgharvest_worker")
            installation.manage("workers", "--drain", name)
        wait_until(lambda: state_of(installation, "first") == "draining")
        lease = installation.job(current)["lease_expires_at"]
        wait_until(lambda: installation.job(current)["lease_expires_at"] > lease)
        hold.unlink()
        first.join(60)
        assert first.exitcode == 0
    assert installation.job(current)["status"] == "succeeded"
    assert installation.job(next_job)["status"] == "queued"
    assert state_of(installation, "first") == "left"

    with installation.worker("second"):
        wait_until(lambda: installation.job(next_job)["status"] == "succeeded")
    assert [installation.job(job)["attempts"] for job in (current, next_job)] == [1, 1]


def test_an_undrained_worker_continues(tmp_path, migrated_database):
    installation = Installation(tmp_path, migrated_database)
    current, next_job = installation.queue_harvest("human"), installation.queue_harvest("top1")
    hold = installation.folder / HOLD
    hold.touch()
    with installation.worker():
        wait_until(lambda: installation.job(current)["status"] == "running")
        [name] = installation.values("SELECT name FROM kgharvest_worker")
        installation.manage("workers", "--drain", name)
        wait_until(lambda: "Canceling queue harvest" in installation.worker_log())
        installation.manage("workers", "--undrain", name)
        wait_until(lambda: "Started consuming from harvest" in installation.worker_log())
        hold.unlink()
        wait_until(lambda: installation.job(next_job)["status"] == "succeeded")
