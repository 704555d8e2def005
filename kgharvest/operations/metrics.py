"""Prometheus metrics: counts of requests served by this machine's web processes, and readings from the database.

Each process counts in its own file in settings.METRICS_DIR. The process that is scraped sums up all files
(prometheus_client's multiprocess mode). Readings from the database are computed at each scrape. Apps add readings in
registries.METRICS.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db.models import Count
from django.utils import timezone
from django.utils.module_loading import import_string

# prometheus_client reads this variable when it is imported.
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(settings.METRICS_DIR)

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from kgharvest.environment import create_data_folder
from kgharvest.jobs import overview, workers
from kgharvest.models import Job
from kgharvest.webhooks.models import Delivery

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
# Methods that are counted by name, because clients can send any text.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
SCRAPE_TRIES = 5
LATENCIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

REQUESTS = prometheus_client.Counter(
    "kgharvest_requests", "Requests answered.", ["view", "method", "status"], registry=None
)
REQUEST_SECONDS = prometheus_client.Histogram(
    "kgharvest_request_seconds",
    "Seconds until a request was answered.",
    ["view", "method"],
    buckets=LATENCIES_S,
    registry=None,
)


class Reading(NamedTuple):
    """A metric read from the database. values: numbers by label values.

    is_total: True for a counter, which never decreases.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]
    is_total: bool = False


def create_metrics_folder() -> None:
    """Create the folder for this machine's counts. Call it before the first count of a process."""
    create_data_folder(settings.METRICS_DIR)


def exposition() -> bytes:
    """Return all metrics in Prometheus's text format."""
    for _ in range(SCRAPE_TRIES):
        registry = prometheus_client.CollectorRegistry()
        MultiProcessCollector(registry)
        registry.register(DatabaseCollector())
        with suppress(FileNotFoundError):  # the file of an ended process was deleted after the files were listed
            return prometheus_client.generate_latest(registry)
    raise RuntimeError("Metrics files were repeatedly deleted while they were being read.")


class DatabaseCollector:
    def collect(self) -> Iterator[Metric]:
        """Yield the database readings, or only kgharvest_database_up with the value 0."""
        try:
            now = timezone.now()
            readings = [reading for path in settings.METRICS for reading in import_string(path)(now)]
        except (DatabaseError, InterfaceError):
            readings = []
        is_up = Reading("kgharvest_database_up", "1 if the database answers.", (), {(): bool(readings)})
        for reading in [is_up, *readings]:
            family = CounterMetricFamily if reading.is_total else GaugeMetricFamily
            metric = family(reading.name, reading.help, labels=reading.labels)
            for labels, value in reading.values.items():
                metric.add_metric(labels, value)
            yield metric


def job_metrics(now: datetime) -> Iterable[Reading]:
    """Yield the readings of jobs, workers, queues, and webhooks."""
    jobs = Job.objects.whole().order_by().values_list("kind", "status").annotate(n=Count("pk"))
    yield Reading("kgharvest_jobs", "Jobs by kind and state.", ("kind", "state"), {row[:2]: row[2] for row in jobs})
    yield Reading("kgharvest_workers_alive", "Workers with a recent heartbeat.", (), {(): workers.alive(now).count()})
    n_by_state = Counter(row.state for row in overview.worker_rows(None, now))
    by_state = {(state,): n_by_state[state] for state in overview.STATES}
    yield Reading("kgharvest_workers", "Workers of the last day by state.", ("state",), by_state)
    queues = overview.queue_rows(now)
    waiting = {(queue.name,): queue.n_waiting for queue in queues}
    yield Reading("kgharvest_jobs_waiting", "Queued jobs.", ("queue",), waiting)
    takers = {(queue.name,): queue.n_workers for queue in queues}
    yield Reading("kgharvest_queue_workers", "Workers that process the queue.", ("queue",), takers)
    yield Reading("kgharvest_worker_processes", "Parallel harvests.", (), {(): workers.n_processes(now)})
    n_waiting = Delivery.objects.filter(state=Delivery.State.WAITING).count()
    yield Reading("kgharvest_webhook_deliveries_waiting", "Pending webhook deliveries.", (), {(): n_waiting})


def forget_dead_processes() -> None:
    """Delete the metrics files of this machine's ended processes. Called when a web server starts."""
    for file in Path(settings.METRICS_DIR).glob("*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdecimal() and not workers.is_running(int(pid)):
            with suppress(OSError):
                file.unlink()
