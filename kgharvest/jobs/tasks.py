"""What a worker does. The rules are in kgharvest.jobs.ledger."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone
from django.utils.module_loading import import_string

from kgharvest.celery import app
from kgharvest.jobs import ledger

logger = logging.getLogger(__name__)


@app.task(name="kgharvest.run_job")
def run_job(job_id: int) -> None:
    ledger.answer_ring(job_id)


def look_after_jobs(worker: str, n_processes: int) -> None:
    """Sign in, reap and do the chores; called by a timer in the worker's main process.

    A failure is logged, the timer goes on.
    """
    now = timezone.now()
    try:
        ledger.sign_in(worker, now, n_processes)
        ledger.reap(now)
        for chore in settings.CHORES:
            import_string(chore)(now)
    except DatabaseError:
        logger.exception("The reaper could not reach the database; it tries again.")
    finally:
        connection.close()  # the pool forks from this process
