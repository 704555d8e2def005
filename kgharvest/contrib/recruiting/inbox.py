"""Inbox for platform events: each event is committed before it is acknowledged, and handled by a job until it succeeds.

An event is stored once, by the platform's event id. Events can be handled repeatedly and in any order, so handlers are
idempotent.
"""

import logging
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from kgharvest.contrib.recruiting.models import PanelEvent, Platform
from kgharvest.contrib.recruiting.panels.identifiers import encrypted
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.jobs.outbox import Outbox, Outcome, Result

logger = logging.getLogger(__name__)

BODIES_LAST = timedelta(days=30)  # for handled events; ids are stored forever, so that a late copy is not a new event
UNEXPECTED = "Unexpected error. See the worker log for details."

# Handlers take a PanelEvent, open their own transactions, and return the outcome in one or two words. A DomainError
# causes a retry.
HANDLERS = {Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.events.handle"}


def store(platform: str, event_id: str, event_type: str, body: str) -> bool:
    """Store and commit an event; return False for a duplicate. Must not be called in a transaction."""
    try:
        with transaction.atomic(durable=True):
            PanelEvent.objects.create(
                platform=platform, event_id=event_id[:200], event_type=event_type[:100], body=encrypted(body)
            )
    except IntegrityError:
        return False
    outbox.enqueue_if_due(timezone.now())
    return True


class EventOutbox(Outbox):
    job_kind = "panel_events"
    model = PanelEvent
    stage = "handling events"

    def attempt(self, event: PanelEvent) -> Outcome:
        try:
            outcome = import_string(HANDLERS[Platform(event.platform)])(event)
        except DomainError as reason:
            logger.warning("Event %s failed and will be retried: %s", event.pk, reason)
            return Outcome(Result.RETRY, str(reason), getattr(reason, "after_s", None))
        except ledger.DATABASE_IS_AWAY:
            raise
        except Exception:
            logger.exception("Event %s failed unexpectedly and will be retried.", event.pk)
            return Outcome(Result.RETRY, UNEXPECTED)
        return Outcome(Result.DONE, fields={"handled_at": timezone.now(), "outcome": outcome[:30]})

    def clean_up(self, now: datetime) -> None:
        """Delete the bodies of old events."""
        PanelEvent.objects.filter(handled_at__lt=now - BODIES_LAST).exclude(body="").update(body="")


outbox = EventOutbox()
