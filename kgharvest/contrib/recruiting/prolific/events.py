"""Prolific webhook events: signature verification and handling.

X-Prolific-Request-Signature: base64 of the HMAC-SHA256 of X-Prolific-Request-Timestamp and the raw body, keyed by the
workspace's secret. Events are delivered at least once and in any order, so their content is not used: an event only
triggers a query of the current state of its submission or study.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping

from django.conf import settings
from django.utils import timezone

from kgharvest.contrib.recruiting.models import Panel, PanelEvent, Platform
from kgharvest.contrib.recruiting.prolific.client import Client
from kgharvest.contrib.recruiting.prolific.platform import Prolific, remote_submission
from kgharvest.contrib.recruiting.reconciliation import apply_remote, apply_status

OLDEST_S = 600  # maximum clock difference; older or later requests count as replays
SUBMISSION_CHANGED, STUDY_CHANGED = "submission.status.change", "study.status.change"


def is_genuine(headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a request has a valid and recent signature. now_s: seconds since 1970."""
    secret = settings.PROLIFIC["webhook_secret"]
    timestamp = headers.get("X-Prolific-Request-Timestamp", "")
    if not secret or not timestamp.isdecimal() or abs(now_s - int(timestamp)) > OLDEST_S:
        return False
    signature = headers.get("X-Prolific-Request-Signature", "")
    return hmac.compare_digest(signature.encode(), signed(secret, timestamp, body))


def signed(secret: str, timestamp: str, body: bytes) -> bytes:
    return base64.b64encode(hmac.new(secret.encode(), timestamp.encode() + body, hashlib.sha256).digest())


def event_id(headers: Mapping[str, str], body: bytes) -> str:
    """Return Prolific's event id; without one, a digest that identifies repeated requests."""
    timestamp = headers.get("X-Prolific-Request-Timestamp", "")
    return headers.get("X-Event-ID") or hashlib.sha256(timestamp.encode() + body).hexdigest()


def event_type(body: bytes) -> str:
    """Return the event type in the body, empty if the body is not an event."""
    try:
        kind = json.loads(body)["event_type"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return kind if isinstance(kind, str) else ""


def handle(event: PanelEvent) -> str:
    """Query the event's submission or study and apply its current state; return the outcome in one or more words.

    Raises PlatformUnavailable, PlatformRefused, after which the event is retried.
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
