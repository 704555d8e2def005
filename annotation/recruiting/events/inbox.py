"""Take in what platforms tell: committed before it is answered, handled by a job until that succeeds.

The same event is stored once, by the platform's id for it. A try is counted and the next one set before it is made, so
that a worker that is killed at any line leaves an event that is handled again: handlers do what they do once, however
often they are called and in whatever order.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.module_loading import import_string

from annotation.models import PanelEvent, Platform
from annotation.recruiting.panels.identifiers import encrypted
from annotation.recruiting.platforms import PlatformUnavailable
from kgharvest.engine.types import Progress
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.webhooks.delivery import wait_after

logger = logging.getLogger(__name__)

JOB_KIND = "panel_events"
BODIES_LAST = timedelta(days=30)  # of what is handled; the ids stay, so that no late copy is taken for a new event
UNEXPECTED = "An unexpected error; the worker's log has the details."

# What handles the events of a platform: functions of a PanelEvent that return its outcome in a word. They raise
# DomainError to be called again later, and open transactions of their own.
HANDLERS = {
    Platform.PROLIFIC: "annotation.recruiting.prolific.events.handle",
}


def store(platform: str, event_id: str, event_type: str, body: str) -> bool:
    """Store an event, committed when this returns; return whether it is new. Call it outside of transactions."""
    try:
        with transaction.atomic(durable=True):
            PanelEvent.objects.create(
                platform=platform, event_id=event_id[:200], event_type=event_type[:100], body=encrypted(body)
            )
    except IntegrityError:
        return False
    enqueue_due_events(timezone.now())
    return True


def enqueue_due_events(now: datetime) -> None:
    """Queue the job that handles what is due, unless there is one. A periodic task of every worker."""
    if PanelEvent.objects.due(now).exists():
        ledger.enqueue_once(JOB_KIND)


def run_events_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Handle until nothing is due. The runner of the kind JOB_KIND; one job at a time, by its unique key."""
    n_handled = 0
    while event := start_next(timezone.now()):
        with heartbeat.kept_alive():
            handle(event)
        n_handled += 1
        heartbeat(Progress("handling events", n_handled, None))
    return _after_job


def start_next(now: datetime) -> PanelEvent | None:
    """Return an event that is due, its try counted and the next one set; None where nothing is due."""
    while event := PanelEvent.objects.due(now).first():
        started = PanelEvent.objects.filter(pk=event.pk, handled_at=None, n_tries=event.n_tries)
        if started.update(n_tries=F("n_tries") + 1, next_try_at=now + wait_after(event.n_tries + 1)):
            event.refresh_from_db()
            return event
    return None


def handle(event: PanelEvent) -> None:
    """Have the platform's handler handle an event, and store how that went. Call it outside of transactions."""
    try:
        outcome = import_string(HANDLERS[Platform(event.platform)])(event)
    except PlatformUnavailable as reason:
        _put_off(event, str(reason), reason.after_s)
    except DomainError as reason:
        _put_off(event, str(reason))
    except ledger.DATABASE_IS_AWAY:
        raise
    except Exception:
        logger.exception("Event %s could not be handled and is handled again later.", event.pk)
        _put_off(event, UNEXPECTED)
    else:
        unhandled = PanelEvent.objects.filter(pk=event.pk, handled_at=None)
        unhandled.update(handled_at=timezone.now(), outcome=outcome[:30], error="")


def _put_off(event: PanelEvent, error: str, after_s: float | None = None) -> None:
    logger.warning("Event %s is handled again later: %s", event.pk, error)
    fields: dict = {"error": error[:300]}
    if after_s:
        fields["next_try_at"] = max(event.next_try_at, timezone.now() + timedelta(seconds=after_s))
    PanelEvent.objects.filter(pk=event.pk, handled_at=None).update(**fields)


def _after_job() -> None:
    """Forget what is old, and look once more when the job has ended: whoever stored an event meanwhile queued none."""
    now = timezone.now()
    PanelEvent.objects.filter(handled_at__lt=now - BODIES_LAST).exclude(body="").update(body="")
    ledger.delete_ended(JOB_KIND)
    transaction.on_commit(lambda: enqueue_due_events(timezone.now()))
