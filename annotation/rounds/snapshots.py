"""Counts of large rounds, kept for a while.

A round of up to LIVE_JUDGMENTS judgments is counted for each look. A larger one is counted again when its last count
is REST times as old as counting took, in a thread of its own, so that nobody waits; until then the last count shows.
What changes much at once, such as an import, forgets the counts: whoever looks next waits for new ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from annotation.models import Round, Snapshot

LIVE_JUDGMENTS = 30_000
REST = 20
GIVEN_UP_AFTER = timedelta(minutes=5)  # the process that was counting is gone

Count = Callable[[Round], Any]


@dataclass(frozen=True)
class Counted:
    """counted_at: None if it was counted for this look."""

    content: Any
    counted_at: datetime | None


def counted(round: Round, subject: str, count: Count, now: datetime) -> Counted:
    """Return what `count` says of the round, perhaps as it was a while ago."""
    if round.n_tasks * round.judgments_per_task <= LIVE_JUDGMENTS:
        return Counted(count(round), None)
    last = round.snapshots.filter(subject=subject).first() or _first_count(round, subject, count)
    if _is_old(last, now) and _claim(last, now):
        Thread(target=_count_aside, args=(last, count), daemon=True).start()
    return Counted(last.content, last.counted_at)


def forget_counts(round: Round) -> None:
    """Let the next look count anew, whatever is being counted now. Call it in the transaction that changes much."""
    round.snapshots.all().delete()


def _is_old(last: Snapshot, now: datetime) -> bool:
    return now - last.counted_at > timedelta(seconds=REST * last.took_s)


def _claim(last: Snapshot, now: datetime) -> bool:
    """Return whether it is us who count next."""
    free = Q(counting_since=None) | Q(counting_since__lt=now - GIVEN_UP_AFTER)
    return bool(Snapshot.objects.filter(free, pk=last.pk).update(counting_since=now))


def _first_count(round: Round, subject: str, count: Count) -> Snapshot:
    return Snapshot.objects.update_or_create(round=round, subject=subject, defaults=_count(round, count))[0]


def _count_aside(last: Snapshot, count: Count) -> None:
    try:
        Snapshot.objects.filter(pk=last.pk).update(**_count(last.round, count))  # none if it was forgotten meanwhile
    finally:
        connection.close()


def _count(round: Round, count: Count) -> dict[str, Any]:
    begin, counted_at = time.monotonic(), timezone.now()
    content = count(round)
    return {
        "content": content,
        "counted_at": counted_at,
        "took_s": time.monotonic() - begin,
        "counting_since": None,
    }
