"""The time by the database's clock, which all hosts share: leases compare it, and hosts' own clocks may differ.

A host whose clock is a minute ahead would count the jobs of all others as lost and begin each of them anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic

from django.db import connection
from django.utils import timezone

ASKED_EVERY_S = 60  # so that a clock that is set, there or here, is wrong for no longer

_shown: tuple[datetime, float] | None = None  # what the database's clock showed, and `monotonic` then


def shared_now() -> datetime:
    """Return what the database's clock shows, at the cost of a query a minute; of SQLite, which is of one host, none.

    Raises as a query does where the database is away.
    """
    global _shown
    if connection.vendor != "postgresql":
        return timezone.now()
    if _shown is None or monotonic() - _shown[1] >= ASKED_EVERY_S:
        began_at = monotonic()
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            [at_database] = cursor.fetchone()
        _shown = at_database, (began_at + monotonic()) / 2
    return _shown[0] + timedelta(seconds=monotonic() - _shown[1])
