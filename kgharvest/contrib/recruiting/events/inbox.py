"""Events from recruiting platforms: committed before they are acknowledged, handled by a job until that succeeds.

An event is stored once, by the platform's id of the event. It can be handled several times and in any order, so
handlers are idempotent.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from kgharvest.contrib.recruiting.models import PanelEvent, Platform
from kgharvest.contrib.recruiting.panels.identifiers import encrypted
from kgharvest.contrib.recruiting.platforms import PlatformUnavailable
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.jobs.outbox import Outbox, Outcome, Result

logger = logging.getLogger(__name__)

BODIES_LAST = timedelta(days=30)  # of handled events; ids are kept, so that a late copy does not count as a new event
UNEXPECTED = "An unexpected error; the worker's log has the details."

# Handlers by platform: functions of a PanelEvent that return the outcome in a word. To be called again later they raise
# DomainError. They open transactions of their own.
HANDLERS = {
    Platform.PROLIFIC: "kgharvest.contrib.recruiting.prolific.events.handle",
}


def store(platform: str, event_id: str, event_type: str, body: str) -> bool:
    """Store an event and commit it; return whether it is new. Must not be called in a transaction."""
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
            logger.warning("Event %s will be handled again: %s", event.pk, reason)
            return Outcome(
                Result.RETRY, str(reason), reason.after_s if isinstance(reason, PlatformUnavailable) else None
            )
        except ledger.DATABASE_IS_AWAY:
            raise
        except Exception:
            logger.exception("Event %s could not be handled and will be handled again.", event.pk)
            return Outcome(Result.RETRY, UNEXPECTED)
        return Outcome(Result.DONE, fields={"handled_at": timezone.now(), "outcome": outcome[:30]})

    def clean_up(self, now: datetime) -> None:
        """Delete the bodies of old events."""
        PanelEvent.objects.filter(handled_at__lt=now - BODIES_LAST).exclude(body="").update(body="")


outbox = EventOutbox()
