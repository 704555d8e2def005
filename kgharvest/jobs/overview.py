"""Worker and queue status, shared by the workers page, the `workers` command, the API, and the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Count, Min, Q
from django.db.models.functions import Coalesce

from kgharvest.access import User, owns_installation
from kgharvest.jobs import workers
from kgharvest.jobs.queues import QUEUES
from kgharvest.models import Job, Worker

LATELY = timedelta(hours=1)
SHOWN_FOR = timedelta(days=1)  # time after the last heartbeat at which a worker counts as lost

WORKING, IDLE, DRAINING, LEFT, LOST = STATES = ("working", "idle", "draining", "left", "lost")


@dataclass
class Throughput:
    """Throughput of a worker within LATELY, without parts of jobs. n_jobs: number of ended jobs.

    n_tuples: number of tuples from succeeded harvests.
    """

    n_jobs: int = 0
    n_tuples: int = 0
    busy_s: float = 0

    @property
    def rounded_busy_s(self) -> float:
        return round(self.busy_s, 1)


@dataclass(frozen=True)
class WorkerRow:
    """Status of a worker. jobs: jobs that the worker runs, completely or in part.

    silent_s: seconds since the last heartbeat.
    """

    worker: Worker
    state: str
    jobs: Sequence[ShownJob]
    throughput: Throughput
    silent_s: float


class ShownJob(NamedTuple):
    """A running job.

    harvest: name of the harvest; "" for other kinds of jobs, and if the user cannot view the project.
    """

    job: Job
    is_visible: bool
    harvest: str

    @property
    def url(self) -> str:
        return self.job.harvestjob.get_absolute_url() if self.harvest else ""

    @property
    def visible_id(self) -> int | None:
        return self.job.pk if self.is_visible else None


class QueueRow(NamedTuple):
    """Status of a queue. n_waiting: number of queued jobs. oldest: creation time of the oldest queued job.

    n_workers: number of workers that process the queue.
    """

    name: str
    n_waiting: int
    oldest: datetime | None
    n_workers: int
    lacking: str


def state_of(worker: Worker, is_busy: bool, now: datetime) -> str:
    """Return one of STATES. A worker without a heartbeat for a minute counts as lost, unless it has left."""
    if worker.left_at:
        return LEFT
    if not workers.is_alive(worker, now):
        return LOST
    if worker.is_draining:
        return DRAINING
    return WORKING if is_busy else IDLE


def worker_rows(user: User, now: datetime, selected: Sequence[Worker] | None = None) -> list[WorkerRow]:
    """Return the status of the selected workers, in order.

    By default, these are all workers of the last day, live workers first. Of the loaded LMs, the user sees those of
    visible jobs.
    """
    if selected is None:
        seen_lately = Worker.objects.filter(seen_at__gte=now - SHOWN_FOR).order_by("name")
        selected = sorted(seen_lately, key=lambda worker: not workers.is_alive(worker, now))
    if not owns_installation(user):
        loaded = {lm for worker in selected for lm in worker.language_models}
        visible = set(
            Job.objects.visible_to(user).filter(lm__in=loaded).order_by().values_list("lm", flat=True).distinct()
        )
        for worker in selected:
            worker.language_models = [lm for lm in worker.language_models if lm in visible]
    jobs = _running_jobs(selected, user, now)
    throughput = throughput_of(selected, now)
    return [
        WorkerRow(
            worker=worker,
            state=state_of(worker, bool(jobs[worker.pk]), now),
            jobs=jobs[worker.pk],
            throughput=throughput[worker.pk],
            silent_s=max(0.0, (now - worker.seen_at).total_seconds()),
        )
        for worker in selected
    ]


def _running_jobs(selected: Sequence[Worker], user: User, now: datetime) -> dict[int, list[ShownJob]]:
    """Return the running jobs of each worker. A part is represented by its parent job."""
    running = Job.objects.running(now).filter(worker__in=selected)
    pairs = running.order_by(Coalesce("parent", "pk")).values_list("worker", Coalesce("parent", "pk")).distinct()
    by_worker: dict[int, list[int]] = defaultdict(list)
    for worker, job_id in pairs:
        by_worker[worker].append(job_id)
    rows = Job.objects.filter(pk__in={job_id for job_ids in by_worker.values() for job_id in job_ids})
    visible = set(rows.visible_to(user).order_by().values_list("pk", flat=True))
    with_cell = rows.select_related("worker", "project", "harvestjob__relation", "harvestjob__language_model")
    jobs: dict[int, ShownJob] = {}
    for job in with_cell.defer("payload"):
        harvest = str(job.harvestjob) if job.pk in visible and hasattr(job, "harvestjob") else ""
        jobs[job.pk] = ShownJob(job, job.pk in visible, harvest)
    shown = {worker: [jobs[job_id] for job_id in job_ids if job_id in jobs] for worker, job_ids in by_worker.items()}
    return defaultdict(list, shown)


def throughput_of(selected: Sequence[Worker], now: datetime) -> dict[int, Throughput]:
    """Return the throughput of each worker in the last hour. Busy time outside this hour is not counted."""
    since = now - LATELY
    throughput: dict[int, Throughput] = defaultdict(Throughput)
    recent = Job.objects.whole().filter(Q(finished_at__gt=since) | Q(status=Job.Status.RUNNING), worker__in=selected)
    fields = ("worker", "status", "started_at", "finished_at", "lease_expires_at", "harvestjob__n_tuples")
    for worker, status, started_at, finished_at, lease_expires_at, n_tuples in recent.order_by().values_list(*fields):
        of_worker = throughput[worker]
        if status != Job.Status.RUNNING:
            of_worker.n_jobs += 1
        if status == Job.Status.SUCCEEDED:
            of_worker.n_tuples += n_tuples or 0
        end = min(now, lease_expires_at if status == Job.Status.RUNNING else finished_at)
        of_worker.busy_s += max(0.0, (end - max(since, started_at or end)).total_seconds())
    return throughput


def queue_rows(now: datetime) -> list[QueueRow]:
    """Return the status of all queues. Its field `lacking` contains advice if there are queued jobs but no worker."""
    waiting = Job.objects.whole().filter(status=Job.Status.QUEUED).order_by().values("queue")
    counts = {row["queue"]: row for row in waiting.annotate(n=Count("pk"), oldest=Min("created_at"))}
    n_workers = Counter(queue for queues in workers.taking(now).values_list("queues", flat=True) for queue in queues)
    rows = []
    for queue in QUEUES:
        count = counts.get(queue, {"n": 0, "oldest": None})
        lacking = workers.lacking(now, {queue}) if count["n"] and not n_workers[queue] else ""
        rows.append(QueueRow(queue, count["n"], count["oldest"], n_workers[queue], lacking))
    return rows
