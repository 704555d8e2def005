"""The Celery task that does jobs, and what each worker does every few seconds: heartbeat, recovery, periodic tasks.

The rules are in kgharvest.jobs.ledger and kgharvest.jobs.workers.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from datetime import datetime

from celery import bootsteps, signals
from celery.worker import state
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils.module_loading import import_string

from kgharvest.celery import app
from kgharvest.harvests import language_models
from kgharvest.jobs import devices, ledger, workers
from kgharvest.jobs.queues import GPU
from kgharvest.operations.clock import shared_now
from kgharvest.operations.logs import logged_under

logger = logging.getLogger(__name__)

TRIES = 20  # to claim a job, if other workers are faster each time


@app.task(name="kgharvest.run_job", bind=True)
def run_job(task, *arguments) -> None:
    """Do the next job of the queue that the message came from. arguments: older versions sent the id of a job.

    The log carries the id of the request that sent the message.
    """
    with logged_under((task.request.headers or {}).get("request_id") or ""):
        do_next(task.request.delivery_info["routing_key"])


def do_next(queue: str) -> None:
    """Do one job of the queue if one waits, then wake a worker for the next one.

    If nothing could be claimed, as while this worker is being drained, no message is sent: it would come back at once.
    """
    has_claimed = True  # also if the job raises
    try:
        has_claimed = _do_one(queue)
    except ledger.DATABASE_IS_AWAY as error:
        has_claimed = False
        logger.warning("The database is away, so jobs of the queue %s wait: %s", queue, error)
    finally:
        workers.report_in_memory(language_models.in_memory())
        if has_claimed:
            try:
                ledger.wake_next(queue, shared_now())
            except ledger.DATABASE_IS_AWAY as error:
                logger.warning("The database is away, so waiting jobs wait for an idle worker: %s", error)


def _do_one(queue: str) -> bool:
    """Return whether a job was claimed. Another process can be faster each time."""
    for _ in range(TRIES):
        job_id = ledger.next_job(queue, shared_now(), language_models.in_memory())
        if job_id is None:
            return False
        if ledger.run_job(job_id):
            return True
    return False


def run_periodic_tasks(spec: workers.WorkerSpec, is_leaving: bool = False) -> bool | None:
    """Record the worker's heartbeat, recover lost jobs and call registries.PERIODIC_TASKS.

    Called in the worker's main process. A failure is logged. Return whether the worker is being drained, or None if the
    database does not answer.
    """
    try:
        now = shared_now()
        worker = workers.beat(spec, now, is_leaving)
        workers.forget_gone(now)
        ledger.recover(now)
        ledger.wake_idle(worker, now)
        for path in settings.PERIODIC_TASKS:
            _run_periodic_task(path, now)
        return worker.is_draining
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The worker could not reach the database and tries again: %s", error)
        return None
    finally:
        connection.close()


def _run_periodic_task(path: str, now: datetime) -> None:
    """Let the others go on where one fails, unless the database is away."""
    try:
        import_string(path)(now)
    except ledger.DATABASE_IS_AWAY:
        raise
    except Exception:
        logger.exception("The periodic task %s failed; the others go on.", path)


class Duties(bootsteps.StartStopStep):
    """Calls `run_periodic_tasks` in a thread of the worker's main process, which never loads torch, until the end.

    A thread, as the worker's own timers stand still while it waits for its last job. It forks no process meanwhile: a
    child would find the thread's locks held for good. No Celery beat: no further process, and several workers doing it
    are harmless.
    """

    def __init__(self, worker, **kwargs):
        super().__init__(worker, **kwargs)
        self.ended = threading.Event()
        self.fork_lock = threading.RLock()
        self.is_draining = False  # takes no messages, and goes when it has no job
        self.is_leaving = False

    def start(self, worker):
        os.register_at_fork(
            before=self.fork_lock.acquire, after_in_parent=self.fork_lock.release, after_in_child=self.fork_lock.release
        )
        self.worker = worker
        self.spec = workers.WorkerSpec(worker.hostname, sorted(worker.app.amqp.queues.consume_from), worker.concurrency)
        signals.worker_shutting_down.connect(self.note_leaving, weak=False)
        signals.worker_shutdown.connect(self.leave, weak=False)
        self.run()  # before the first job: its claim says which worker it is
        threading.Thread(target=self.run_until_ended, name="duties", daemon=True).start()

    def run_until_ended(self) -> None:
        while not self.ended.wait(settings.JOB_LOOK_EVERY_S):
            try:
                self.run()
            except Exception:  # or the worker would go on without a heartbeat, and nobody could send it away
                logger.exception("The worker's round failed; the next one follows.")
            if self.is_draining and not self.is_leaving and not state.reserved_requests:
                os.kill(os.getpid(), signal.SIGTERM)  # the one way in which workers end

    def run(self) -> None:
        with self.fork_lock:
            is_draining = run_periodic_tasks(self.spec, self.is_leaving)
        if is_draining is None or is_draining == self.is_draining or self.is_leaving:
            return
        self.is_draining = is_draining
        consumer = self.worker.consumer
        change = consumer.cancel_task_queue if is_draining else consumer.add_task_queue
        for queue in self.spec.queues:
            consumer.call_soon(change, queue)

    def note_leaving(self, **kwargs) -> None:
        """Called in a handler of signals: the next heartbeat says it."""
        self.is_leaving = True

    def leave(self, **kwargs) -> None:
        """Called when the last job has ended."""
        self.ended.set()
        with self.fork_lock:
            try:
                workers.leave(shared_now())
            except (DatabaseError, InterfaceError) as error:
                logger.warning("The worker leaves and cannot say so: %s", error)
            finally:
                connection.close()
        workers.close_reports()


app.steps["worker"].add(Duties)


@signals.celeryd_init.connect
def set_up_worker(instance, options, **kwargs) -> None:
    """Before any process is forked. Without `--queues`, jobs for a GPU are taken only where there is one."""
    workers.open_reports()
    if not options.get("queues") and not devices.gpus():
        instance.app.amqp.queues.deselect([GPU])
