"""The time by the database's clock, which all hosts share: leases compare it, and hosts' own clocks may differ.

A host whose clock is a minute ahead would count the jobs of all others as lost and begin each of them anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic

from django.db import connection
from django.utils import timezone

COMPARED_EVERY_S = 60  # as a clock may be set meanwhile

_ahead = timedelta()  # the database's clock of this host's
_compared_on: float | None = None


def shared_now() -> datetime:
    """Return what the database's clock shows, at the cost of a query a minute; of SQLite, which is of one host, none.

    Raises as a query does where the database is away.
    """
    global _ahead, _compared_on
    if connection.vendor != "postgresql":
        return timezone.now()
    if _compared_on is None or monotonic() - _compared_on >= COMPARED_EVERY_S:
        began_at = timezone.now()
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            [at_database] = cursor.fetchone()
        _ahead = at_database - (began_at + (timezone.now() - began_at) / 2)
        _compared_on = monotonic()
    return timezone.now() + _ahead
