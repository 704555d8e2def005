"""What a Celery worker runs: jobs, and every few seconds its heartbeat, the reaper and the periodic tasks.

The rules are in kgharvest.jobs.ledger.
"""

from __future__ import annotations

import logging
from datetime import datetime

from celery import bootsteps
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone
from django.utils.module_loading import import_string

from kgharvest.celery import app
from kgharvest.jobs import ledger
from kgharvest.operations.logs import logged_under

logger = logging.getLogger(__name__)


@app.task(name="kgharvest.run_job", bind=True)
def run_job(task, job_id: int) -> None:
    """Do the job; then send one message in the place of its own, so that lost messages starve no worker.

    The log carries the id of the request that asked for the job.
    """
    with logged_under((task.request.headers or {}).get("request_id") or ""):
        _run_job(job_id)


def _run_job(job_id: int) -> None:
    try:
        ledger.run_job(job_id)
    except ledger.DATABASE_IS_AWAY as error:
        logger.warning("Job %s was not taken up, as the database is away: %s", job_id, error)
    finally:
        try:
            ledger.enqueue_stale(timezone.now(), 1)
        except ledger.DATABASE_IS_AWAY:
            logger.warning("After job %s the database is away; the reaper enqueues what waits.", job_id)


def run_periodic_tasks(worker: str, n_processes: int) -> None:
    """Record the worker's heartbeat, reap, and call what registries.PERIODIC_TASKS names.

    Called by a timer in the worker's main process. A failure is logged, the timer goes on.
    """
    now = timezone.now()
    try:
        ledger.record_heartbeat(worker, now, n_processes)
        ledger.reap(now)
        for path in settings.PERIODIC_TASKS:
            _run_periodic_task(path, now)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The reaper could not reach the database and tries again: %s", error)
    finally:
        connection.close()  # the pool forks from this process


def _run_periodic_task(path: str, now: datetime) -> None:
    """Let the others go on where one fails, unless the database is away."""
    try:
        import_string(path)(now)
    except ledger.DATABASE_IS_AWAY:
        raise
    except Exception:
        logger.exception("The periodic task %s failed; the others go on.", path)


class PeriodicTasks(bootsteps.StartStopStep):
    """Calls `run_periodic_tasks` in the worker's main process, which never loads torch.

    A timer in the worker instead of Celery beat: no further process, and several workers doing it are harmless.
    """

    requires = {"celery.worker.components:Timer"}

    def __init__(self, worker, **kwargs):
        super().__init__(worker, **kwargs)
        self.entry = None

    def start(self, worker):
        # A worker of urgent jobs alone does none of those that people wait for, so it counts for no processes.
        takes_all = settings.CELERY_TASK_DEFAULT_QUEUE in worker.app.amqp.queues.consume_from
        arguments = [worker.hostname, worker.concurrency if takes_all else 0]
        self.entry = worker.timer.call_repeatedly(settings.JOB_REAP_EVERY_S, run_periodic_tasks, arguments)

    def stop(self, worker):
        if self.entry:
            self.entry.cancel()


app.steps["worker"].add(PeriodicTasks)
