"""Messages for jobs that wait and have none: lost jobs, those whose message is used up or was never sent."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q

from kgharvest.jobs import ledger, workers
from kgharvest.jobs.queues import QUEUES, queue_of
from kgharvest.models import Job

ENQUEUED_PER_REAP = 4  # while all workers are busy: so many of a queue's messages are on their way, and no more


def reap(now: datetime) -> None:
    """Fail jobs whose workers keep dying; enqueue lost and stale jobs of the queues that somebody takes again."""
    ledger.fail_lost(now)
    _route(now)
    idle = workers.idle_processes(now) or dict.fromkeys(QUEUES, 0)
    for queue in sorted(idle, key=QUEUES.index):  # urgent ones first
        if idle[queue]:
            enqueue_stale(now, ledger.ENQUEUED_PER_IDLE_PROCESS * idle[queue], queue)
            continue
        sent = Job.objects.filter(queue=queue, status=Job.Status.QUEUED, enqueued_at__gt=now - ledger.SENT_ANEW_AFTER)
        on_their_way = sent.order_by("enqueued_at")[:ENQUEUED_PER_REAP]  # else PostgreSQL looks from the newest job on
        enqueue_stale(now, ENQUEUED_PER_REAP - on_their_way.count(), queue)


def _route(now: datetime) -> None:
    """Give jobs a queue that a web server of an older version has made without one."""
    for job in Job.objects.claimable(now).filter(queue=""):
        Job.objects.filter(pk=job.pk, queue="").update(queue=queue_of(job.kind, job.payload))


def enqueue_stale(now: datetime, most: int, queue: str) -> None:
    """Send messages for at most `most` jobs of a queue that none is on its way for."""
    stale = _stale(now).filter(queue=queue)
    for job_id in list(stale.order_by("pk").values_list("pk", flat=True)[:most]):
        if stale.filter(pk=job_id).update(enqueued_at=now):  # another worker's reaper may have been faster
            ledger.send(job_id, queue)


def send_in_place_of(job_id: int, now: datetime) -> None:
    """Send a message for one job of the queue of this one, whose message is used up, if one waits without."""
    for queue in Job.objects.filter(pk=job_id).values_list("queue", flat=True):
        enqueue_stale(now, 1, queue)


def _stale(now: datetime):
    """Return claimable jobs whose last message was sent too long ago, or before they were lost."""
    sent_long_ago = Q(enqueued_at__lt=now - timedelta(seconds=settings.JOB_STALE_AFTER_S))
    lost_since = Q(status=Job.Status.RUNNING, enqueued_at__lt=F("lease_expires_at"))
    return Job.objects.claimable(now).filter(sent_long_ago | lost_since)
