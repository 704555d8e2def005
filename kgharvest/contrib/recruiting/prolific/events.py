"""Prolific webhook events: signature verification, inbox, and handling.

The header X-Prolific-Request-Signature contains the base64 of the HMAC-SHA256 of X-Prolific-Request-Timestamp and the
raw body, keyed by the workspace's secret. Events are delivered at least once and in any order, so their content is not
used. An event only triggers a query of the current state of its submission or study. Each event id is stored once, in a
transaction that is committed before the event is acknowledged. A job then handles the event, with retries until it
succeeds.
"""

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, PanelEvent, Platform
from kgharvest.contrib.recruiting.panels.identifiers import encrypted
from kgharvest.contrib.recruiting.prolific.client import Client
from kgharvest.contrib.recruiting.prolific.platform import Prolific, remote_submission
from kgharvest.contrib.recruiting.reconciliation import apply_remote, apply_status
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger
from kgharvest.jobs.outbox import Outbox, Outcome, Result

logger = logging.getLogger(__name__)

OLDEST_S = 600  # maximum difference between a request's timestamp and the clock; other requests count as replays
SUBMISSION_CHANGED, STUDY_CHANGED = "submission.status.change", "study.status.change"
# Period for bodies of handled events; event ids are kept longer, so that a late copy is not handled again.
BODIES_LAST = timedelta(days=30)
UNEXPECTED = "Unexpected error. See the worker log for details."


def is_genuine(headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a request has a valid and recent signature. now_s: seconds since 1970."""
    secret = settings.PROLIFIC["webhook_secret"]
    timestamp = headers.get("X-Prolific-Request-Timestamp", "")
    if not secret or not timestamp.isdecimal() or abs(now_s - int(timestamp)) > OLDEST_S:
        return False
    expected = base64.b64encode(hmac.new(secret.encode(), timestamp.encode() + body, hashlib.sha256).digest())
    return hmac.compare_digest(headers.get("X-Prolific-Request-Signature", "").encode(), expected)


def store(headers: Mapping[str, str], body: bytes) -> bool:
    """Store an event in a transaction of its own. Return False for a duplicate. Must not be called in a transaction.

    If the event has no id by Prolific, a digest identifies repeated requests. The type is empty if the body is not an
    event.
    """
    timestamp = headers.get("X-Prolific-Request-Timestamp", "")
    event_id = headers.get("X-Event-ID") or hashlib.sha256(timestamp.encode() + body).hexdigest()
    try:
        kind = json.loads(body)["event_type"]
    except (ValueError, LookupError, TypeError, RecursionError):
        kind = ""
    fields = {"event_id": event_id[:200], "event_type": kind[:100] if isinstance(kind, str) else ""}
    try:
        with transaction.atomic(durable=True):
            text = encrypted(body.decode(errors="replace"))
            PanelEvent.objects.create(platform=Platform.PROLIFIC, **fields, body=text)
    except IntegrityError:
        return False
    outbox.enqueue_if_due(timezone.now())
    return True


class EventOutbox(Outbox):
    """Outbox that handles events. Events can arrive repeatedly and in any order, so handling is idempotent."""

    job_kind = "panel_events"
    model = PanelEvent
    stage = "handling events"

    def attempt(self, event: PanelEvent) -> Outcome:
        try:
            outcome = handle(event)
        except DomainError as reason:
            logger.warning("Event %s failed and will be retried: %s", event.pk, reason)
            return Outcome(Result.RETRY, str(reason), getattr(reason, "after_s", None))
        except ledger.DATABASE_IS_AWAY:
            raise
        except Exception:
            logger.exception("Event %s failed unexpectedly and will be retried.", event.pk)
            return Outcome(Result.RETRY, UNEXPECTED)
        return Outcome(Result.DONE, fields={"handled_at": timezone.now(), "outcome": outcome})

    def clean_up(self, now: datetime) -> None:
        """Delete the bodies of old events."""
        PanelEvent.objects.filter(handled_at__lt=now - BODIES_LAST).exclude(body="").update(body="")


outbox = EventOutbox()


def handle(event: PanelEvent) -> str:
    """Query the event's submission or study, and apply its current state. Return the outcome in a few words.

    If it raises PlatformUnavailable or PlatformRefused, the event is retried.
    """
    try:
        resource_id = str(json.loads(event.text)["resource_id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return "unreadable"
    now = timezone.now()
    if event.event_type == SUBMISSION_CHANGED:
        row = Client().submission(resource_id)
        panel = _panel_of(row["study_id"]) if row else None
        if row is None or panel is None:
            return "not of ours"
        is_changed = apply_remote(panel, remote_submission(panel, row, row["participant"], now), now, event)
    elif event.event_type == STUDY_CHANGED:
        panel = _panel_of(resource_id)
        if panel is None:
            return "not of ours"
        is_changed = apply_status(panel, Prolific(panel).status(), now)
    else:
        return "of no concern"
    return "changed" if is_changed else "known"


def _panel_of(study: str) -> Panel | None:
    panels = Panel.objects.select_related("round__project")
    return panels.filter(platform=Platform.PROLIFIC, external_id=study).first()
