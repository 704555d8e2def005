"""Time that all hosts share: the clock of the database. It is used for leases.

If hosts used their local clocks, a host whose clock is one minute ahead would consider the running jobs of all other
hosts lost, and restart these jobs.
"""

from datetime import datetime, timedelta
from time import monotonic

from django.db import connection
from django.utils import timezone

SYNC_EVERY_S = 60  # interval between queries, which limits the error after the clock was adjusted

_synced: tuple[datetime, float] | None = None  # time of the database, and the value of `monotonic` at this time


def shared_now() -> datetime:
    """Return the time of the database. This takes one query per minute.

    For SQLite, return the local time without a query.

    Raises the errors of a query if the database is unavailable.
    """
    global _synced
    if connection.vendor != "postgresql":
        return timezone.now()
    if _synced is None or monotonic() - _synced[1] >= SYNC_EVERY_S:
        started_at = monotonic()
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            [database_time] = cursor.fetchone()
        _synced = database_time, (started_at + monotonic()) / 2
    return _synced[0] + timedelta(seconds=monotonic() - _synced[1])
