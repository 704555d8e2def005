"""Whose turn it is when a message wakes a worker: usually the job that it names, at times another one of its queue.

A message stands for one job of its queue, whichever. A worker that holds an LM in memory takes one that wants that LM
first, so that LMs are loaded seldom. It does so within bounds: once a younger job of the queue was begun more than
OVERTAKEN_AT_MOST before, the oldest one is next whatever it wants. A job whose turn another one took has the message of
that other one left, and the reaper besides, as for every job (kgharvest.jobs.reaper).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import QuerySet

from kgharvest.jobs.queues import GPU, HARVEST
from kgharvest.models import Job

OVERTAKEN_AT_MOST = timedelta(minutes=10)  # many loads of an LM, few harvests that people wait for


def next_job(woken_for: int, now: datetime, in_memory: Collection[str]) -> int | None:
    """Return the job that this process should claim, None if there is none. in_memory: the LMs that it holds.

    Urgent and light jobs are taken as they are named. It is no claim: somebody else may be faster.
    """
    queue = Job.objects.filter(pk=woken_for).values_list("queue", flat=True).first()
    if queue not in (HARVEST, GPU):
        return woken_for if Job.objects.claimable(now).filter(pk=woken_for).exists() else None
    waiting = Job.objects.claimable(now).filter(queue=queue).order_by("pk")
    oldest = waiting.values_list("pk", flat=True).first()
    if oldest is None:
        return None
    wanted = min(filter(None, (_first_that_wants(lm, waiting) for lm in in_memory)), default=None)
    chosen = wanted or (woken_for if waiting.filter(pk=woken_for).exists() else oldest)
    # Looks at all younger jobs of the queue, so only where one would overtake: most messages are for the oldest.
    return oldest if chosen != oldest and is_overdue(oldest, queue, now) else chosen


def _first_that_wants(lm: str, waiting: QuerySet) -> int | None:
    # A range of one LM, sorted by it, which job_unfinished_of_lm alone can give: PostgreSQL takes an LM that most jobs
    # of the past wanted for one that waiting jobs want as well, and would read all of these for one that wants it.
    wanting = waiting.filter(lm__gte=lm, lm__lte=lm).order_by("lm", "pk")
    return wanting.values_list("pk", flat=True).first()


def is_overdue(job_id: int, queue: str, now: datetime) -> bool:
    """Return whether a younger job of the queue was begun so long ago that this one may not be overtaken again."""
    younger = Job.objects.filter(queue=queue, pk__gt=job_id, started_at__lt=now - OVERTAKEN_AT_MOST)
    # Sorted, as PostgreSQL would else read the table until it comes to one, and often there is none.
    return younger.order_by("pk").values_list("pk", flat=True).first() is not None
