"""Events of a round, its audit trail: who did what, when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from annotation.models import Annotator, Round, RoundEvent

# What each kind of event says; the names in braces are the event's details.
SENTENCES = {
    "opened": "opened the round with {n_tasks} statements",
    "paused": "paused the round",
    "reopened": "reopened the round",
    "closed": "closed the round with {n_incomplete} statements incomplete",
    "given_back": "released {n} assigned statements",
    "joined": "joined",
    "imported": "imported {n_judgments} judgments from {file}",
    "limits_set": "set limits: {limits}",
    "limit_crossed": "was paused by a limit: {why}",
    "annotator_paused": "paused the annotator",
    "annotator_resumed": "resumed the annotator",
    "excluded": "excluded the annotator, {n_judgments} judgments taken out: {reason}",
    "reinstated": "reinstated the annotator, {n_counted_again} judgments counted again, {n_left_out} kept uncounted",
    "adjudicated": "adjudicated statement {task}: {label}",
}


def record_event(round: Round, kind: str, *, by=None, annotator: Annotator | None = None, **details: Any) -> RoundEvent:
    """Add a line to the round's log, within the caller's transaction. kind: one of SENTENCES, details: its names."""
    SENTENCES[kind].format(**details)  # a detail that is missing is a bug of the caller, found here
    return RoundEvent.objects.create(
        round=round, kind=kind, by=by, annotator=annotator, at=timezone.now(), details=details
    )


def sentence(event: RoundEvent) -> str:
    """Return what happened, without its subject."""
    return SENTENCES[event.kind].format(**event.details)


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
