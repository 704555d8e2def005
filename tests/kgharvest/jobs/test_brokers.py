"""Real workers with RabbitMQ and Redis: jobs run despite a cut connection and an emptied queue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import pytest
from kombu import Connection

from kgharvest.jobs.queues import QUEUES
from tests.cut_link import Link
from tests.kgharvest.jobs.installation import Installation, wait_until
from tests.kgharvest.jobs.slow_runner import HOLD

BROKERS = {"rabbitmq": "KGHARVEST_TEST_RABBITMQ", "redis": "KGHARVEST_TEST_REDIS"}
pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.django_db]


@pytest.fixture(params=BROKERS)
def broker(request) -> Iterator[str]:
    """Yield the URL of a broker. The kgharvest queues are empty and reserved for this test."""
    variable = BROKERS[request.param]
    url = os.environ.get(variable)
    if not url:
        pytest.skip(f"{variable} is not set")
    delete_queues(url)
    yield url
    delete_queues(url)


def delete_queues(url: str) -> None:
    with Connection(url) as connection:
        for queue in QUEUES:
            connection.default_channel.queue_delete(queue)


def empty_queues(url: str) -> None:
    with Connection(url) as connection:
        for queue in QUEUES:
            with suppress(connection.channel_errors):  # the queue does not exist unless a worker serves it
                connection.channel().queue_purge(queue)


def test_jobs_run_despite_cut_connection_and_emptied_queue(broker, tmp_path, migrated_database):
    at = urlsplit(broker)
    with Link(at.hostname, at.port) as link:
        user, has_user, _ = at.netloc.rpartition("@")
        by_link = urlunsplit(at._replace(netloc=f"{user}{has_user}127.0.0.1:{link.port}"))
        installation = Installation(
            tmp_path, migrated_database, BROKER_URL=by_link, DEBUG="1", SLOW_RUNNER_STEPS="2", DATABASE_URL=""
        )
        is_done = lambda job: installation.job(job)["status"] == "succeeded"  # noqa: E731

        with installation.worker():
            first = installation.queue_harvest("human")
            wait_until(lambda: is_done(first))
            n_before = link.n_connections
            link.cut()
            second = installation.queue_harvest("top1")
            wait_until(lambda: is_done(second))
            wait_until(lambda: link.n_connections > n_before)  # the worker has reconnected

            (tmp_path / HOLD).touch()
            held = installation.queue_harvest("multi")
            wait_until(lambda: installation.job(held)["status"] == "running")
            lost = [installation.queue_harvest("human"), installation.queue_harvest("top1")]
            empty_queues(broker)
            (tmp_path / HOLD).unlink()
            wait_until(lambda: all(map(is_done, [held, *lost])))

    assert {installation.job(job)["attempts"] for job in (first, second, held, *lost)} == {1}
    assert all(installation.ranks(job) == [1, 2, 3] for job in (first, second, held, *lost))
