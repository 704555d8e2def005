"""What a Celery worker runs: jobs, and every few seconds its heartbeat, the reaper and the periodic tasks.

The rules are in kgharvest.jobs.ledger, turns and workers.
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
from kgharvest.jobs import devices, ledger, reaper, turns, workers
from kgharvest.jobs.queues import GPU
from kgharvest.operations.clock import shared_now
from kgharvest.operations.logs import logged_under

logger = logging.getLogger(__name__)

TRIES = 5  # of a message, where other workers are faster each time


@app.task(name="kgharvest.run_job", bind=True)
def run_job(task, job_id: int) -> None:
    """Do the job, or one of its queue whose turn it is.

    The log carries the id of the request that asked for the job which the message names.
    """
    with logged_under((task.request.headers or {}).get("request_id") or ""):
        _run_job(job_id)


def _run_job(woken_for: int) -> None:
    """Then send one message in the place of the one that is used up, so that lost messages starve no worker.

    None where nothing could be claimed, as while this worker is sent away: it might get that message again at once.
    """
    is_put_back = False
    try:
        is_put_back = not do_next(woken_for)
    except ledger.DATABASE_IS_AWAY as error:
        logger.warning("Job %s was not taken up, as the database is away: %s", woken_for, error)
    finally:
        workers.report_in_memory(language_models.in_memory())
        try:
            if not is_put_back:
                reaper.send_in_place_of(woken_for, shared_now())
        except ledger.DATABASE_IS_AWAY:
            logger.warning("After job %s the database is away; the reaper enqueues what waits.", woken_for)


def do_next(woken_for: int) -> bool:
    """Do the job whose turn it is, if there is one; return whether the message is used up, and not put back."""
    for _ in range(TRIES):
        job_id = turns.next_job(woken_for, shared_now(), language_models.in_memory())
        if job_id is None or ledger.run_job(job_id):
            return True
    ledger.put_back(woken_for)
    return False


def run_periodic_tasks(spec: workers.WorkerSpec, is_leaving: bool = False) -> bool | None:
    """Record the worker's heartbeat; if it has the turn, reap and call what registries.PERIODIC_TASKS names.

    Called in the worker's main process. A failure is logged. Return whether the worker is being drained, None if that
    is not known.
    """
    try:
        now = shared_now()
        is_draining = workers.beat(spec, now, is_leaving).is_draining
        if workers.has_turn(now):
            workers.forget_gone(now)
            reaper.reap(now)
            for path in settings.PERIODIC_TASKS:
                _run_periodic_task(path, now)
        return is_draining
    except (DatabaseError, InterfaceError) as error:
        logger.warning("The reaper could not reach the database and tries again: %s", error)
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
        while not self.ended.wait(settings.JOB_REAP_EVERY_S):
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
