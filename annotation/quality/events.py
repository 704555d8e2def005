"""Events of a round, its audit trail: who did what, when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from annotation.models import Annotator, Round, RoundEvent


def record_event(round: Round, kind: str, *, by=None, annotator: Annotator | None = None, **details: Any) -> RoundEvent:
    """Add a line to the round's log, within the caller's transaction.

    kind: one of RoundEvent.SENTENCES, details: its names.
    """
    RoundEvent.SENTENCES[kind].format(**details)  # a detail that is missing is a bug of the caller, found here
    return RoundEvent.objects.create(
        round=round, kind=kind, by=by, annotator=annotator, at=timezone.now(), details=details
    )


def event_lines(round: Round) -> Iterator[str]:
    """Yield the log as JSON lines, oldest first."""
    for event in round.events.select_related("by", "annotator").order_by("pk").iterator():
        line = {
            "at": event.at.isoformat(),
            "kind": event.kind,
            "by": event.by.get_username() if event.by else None,
            "annotator": event.annotator.code if event.annotator else None,
            **event.details,
        }
        yield json.dumps(line, ensure_ascii=False) + "\n"
