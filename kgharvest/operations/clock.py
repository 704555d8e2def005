"""Shared time of all hosts: the database's clock, used for leases.

If hosts used their local clocks, a host one minute ahead would consider the running jobs of all other hosts lost and
restart them.
"""

from datetime import datetime, timedelta
from time import monotonic

from django.db import connection
from django.utils import timezone

SYNC_EVERY_S = 60  # limits the error after a clock adjustment

_synced: tuple[datetime, float] | None = None  # time of the database, and the value of `monotonic` at that time


def shared_now() -> datetime:
    """Return the database's time, at the cost of one query per minute; for SQLite, the local time without a query.

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
