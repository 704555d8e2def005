"""Events that Prolific sends: whether one is Prolific's, and what an event makes us do.

X-Prolific-Request-Signature is base64 of the HMAC-SHA256 of X-Prolific-Request-Timestamp and the body as it came, by
the workspace's secret. Events come at least once and in any order, so none is believed for what it says: it makes us
look at the submission or study as it is now.
"""

from __future__ import annotations

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

OLDEST_S = 600  # a request that was signed longer ago, or so far ahead, is somebody's copy
SUBMISSION_CHANGED, STUDY_CHANGED = "submission.status.change", "study.status.change"


def is_genuine(headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a request is signed by the workspace's secret, and not long ago. now_s: seconds since 1970."""
    secret = settings.PROLIFIC["webhook_secret"]
    timestamp = headers.get("X-Prolific-Request-Timestamp", "")
    if not secret or not timestamp.isdecimal() or abs(now_s - int(timestamp)) > OLDEST_S:
        return False
    signature = headers.get("X-Prolific-Request-Signature", "")
    return hmac.compare_digest(signature.encode(), signed(secret, timestamp, body))


def signed(secret: str, timestamp: str, body: bytes) -> bytes:
    return base64.b64encode(hmac.new(secret.encode(), timestamp.encode() + body, hashlib.sha256).digest())


def event_id(headers: Mapping[str, str], body: bytes) -> str:
    """Return Prolific's id of the event; without one, the same request is the same event."""
    timestamp = headers.get("X-Prolific-Request-Timestamp", "")
    return headers.get("X-Event-ID") or hashlib.sha256(timestamp.encode() + body).hexdigest()


def event_type(body: bytes) -> str:
    """Return what kind of event a body says it is, empty where it is no event."""
    try:
        kind = json.loads(body)["event_type"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return kind if isinstance(kind, str) else ""


def handle(event: PanelEvent) -> str:
    """Look at what the event is about, and bring ours to what it is now; return the outcome in a word.

    Raises PlatformUnavailable, PlatformRefused: it is called again then.
    """
    try:
        about = json.loads(event.text)["resource_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "unreadable"
    now = timezone.now()
    if event.event_type == SUBMISSION_CHANGED:
        row = Client().submission(str(about))
        panel = _panel_of(row["study_id"]) if row else None
        if row is None or panel is None:
            return "not of ours"
        is_changed = apply_remote(panel, remote_submission(panel, row, row["participant"], now), now, event)
    elif event.event_type == STUDY_CHANGED:
        panel = _panel_of(str(about))
        if panel is None:
            return "not of ours"
        is_changed = apply_status(panel, Prolific(panel).status(), now)
    else:
        return "of no concern"
    return "changed" if is_changed else "known"


def _panel_of(study: str) -> Panel | None:
    panels = Panel.objects.select_related("round__project")
    return panels.filter(platform=Platform.PROLIFIC, external_id=study).first()
