"""Celery task that runs jobs, and the duties of each worker: heartbeat, recovery of lost jobs, and periodic tasks.

kgharvest.jobs.ledger and kgharvest.jobs.workers contain the rules.
"""

import logging
import os
import signal
import threading

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

CLAIM_TRIES = 20  # maximum number of tries if other workers claim the jobs first


@app.task(name="kgharvest.run_job", bind=True)
def run_job(task, *arguments) -> None:
    """Run the next job of the message's queue. Log lines contain the id of the request that sent the message.

    arguments: ignored. Messages of older versions contain a job id.
    """
    with logged_under((task.request.headers or {}).get("request_id") or ""):
        do_next(task.request.delivery_info["routing_key"])


def do_next(queue: str) -> None:
    """Run one job of the queue, if there is one, and then wake a worker for the next job.

    If no job could be claimed, for example because the worker is draining, no message is sent, because the same worker
    could receive it immediately.
    """
    has_claimed = True  # wake a worker even if the job raises an exception
    try:
        has_claimed = _claim_and_run(queue)
    except ledger.DATABASE_IS_AWAY as error:
        has_claimed = False
        logger.warning("The database is unavailable. Jobs of the queue %s stay queued: %s", queue, error)
    finally:
        workers.report_in_memory(language_models.in_memory())
        if has_claimed:
            try:
                ledger.wake_next(queue, shared_now())
            except ledger.DATABASE_IS_AWAY as error:
                logger.warning("The database is unavailable. Queued jobs wait for an idle worker: %s", error)


def _claim_and_run(queue: str) -> bool:
    """Return whether a job was claimed."""
    for _ in range(CLAIM_TRIES):
        job_id = ledger.next_job(queue, shared_now(), language_models.in_memory())
        if job_id is None:
            return False
        if ledger.run_job(job_id):
            return True
    return False


def run_periodic_tasks(spec: workers.WorkerSpec, is_leaving: bool = False) -> bool | None:
    """Record the worker's heartbeat, recover lost jobs, and call registries.PERIODIC_TASKS. Errors are logged.

    Runs in the worker's main process. Returns whether the worker is draining, or None if the database is unavailable.
    """
    try:
        now = shared_now()
        worker = workers.beat(spec, now, is_leaving)
        workers.forget_gone(now)
        ledger.recover(now)
        ledger.wake_idle(worker, now)
        for path in settings.PERIODIC_TASKS:
            try:
                import_string(path)(now)
            except ledger.DATABASE_IS_AWAY:
                raise
            except Exception:
                logger.exception("The periodic task %s failed. The other tasks continue.", path)
        return worker.is_draining
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The worker cannot reach the database and will retry: %s", error)
        return None
    finally:
        connection.close()


class Duties(bootsteps.StartStopStep):
    """Calls `run_periodic_tasks` in a thread of the worker's main process until the worker exits.

    The main process never loads torch. A thread is necessary, because the worker's own timers stop while the worker
    waits for its last job. Forks are blocked while the thread is working, because a child process would inherit locks
    that are never released. Celery beat is not used, because it would require an additional process. Several workers
    can run the tasks without harm.
    """

    def __init__(self, worker, **kwargs):
        super().__init__(worker, **kwargs)
        self.ended = threading.Event()
        self.fork_lock = threading.RLock()
        self.is_draining = False  # if True, the worker consumes no messages and exits when idle
        self.is_leaving = False

    def start(self, worker):
        os.register_at_fork(
            before=self.fork_lock.acquire, after_in_parent=self.fork_lock.release, after_in_child=self.fork_lock.release
        )
        self.worker = worker
        self.spec = workers.WorkerSpec(worker.hostname, sorted(worker.app.amqp.queues.consume_from), worker.concurrency)
        signals.worker_shutting_down.connect(self.note_leaving, weak=False)
        signals.worker_shutdown.connect(self.leave, weak=False)
        self.run()  # called before the first job, because the job's claim refers to the worker's row
        threading.Thread(target=self.run_until_ended, name="duties", daemon=True).start()

    def run_until_ended(self) -> None:
        while not self.ended.wait(settings.JOB_LOOK_EVERY_S):
            try:
                self.run()
            except Exception:
                # Catch all errors; otherwise, the worker would continue without heartbeats and could not be drained.
                logger.exception("The worker's periodic duties failed and will be retried.")
            if self.is_draining and not self.is_leaving and not state.reserved_requests:
                os.kill(os.getpid(), signal.SIGTERM)  # the signal that also ends a worker at other times

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
        """Signal handler: remember that the worker is exiting. The next heartbeat reports it."""
        self.is_leaving = True

    def leave(self, **kwargs) -> None:
        """Record the worker's exit. Called when the last job has ended."""
        self.ended.set()
        with self.fork_lock:
            try:
                workers.leave(shared_now())
            except (DatabaseError, InterfaceError) as error:
                logger.warning("The worker could not record its exit: %s", error)
            finally:
                connection.close()
        workers.close_reports()


app.steps["worker"].add(Duties)


@signals.celeryd_init.connect
def set_up_worker(instance, options, **kwargs) -> None:
    """Set up the worker before any fork.

    Without `--queues`, the worker processes the queue gpu only if there is a GPU.
    """
    workers.open_reports()
    if not options.get("queues") and not devices.gpus():
        instance.app.amqp.queues.deselect([GPU])
