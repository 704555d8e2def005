"""The clock that all hosts share."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

from django.utils import timezone

from kgharvest.operations import clock


class ClockOfTheDatabase:
    """A connection to a PostgreSQL whose clock is an hour ahead of this host's."""

    vendor = "postgresql"
    n_asked = 0

    @contextmanager
    def cursor(self):
        self.n_asked += 1
        shown = timezone.now() + timedelta(hours=1)
        yield SimpleNamespace(execute=lambda sql: None, fetchone=lambda: (shown,))


def test_the_database_time_is_queried_once_a_minute(monkeypatch):
    database = ClockOfTheDatabase()
    monkeypatch.setattr(clock, "connection", database)
    monkeypatch.setattr(clock, "_synced", None)

    shown = [clock.shared_now() for _ in range(3)]

    assert abs(shown[-1] - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)
    assert database.n_asked == 1


def test_sqlite_uses_the_local_time(monkeypatch):
    monkeypatch.setattr(clock, "connection", SimpleNamespace(vendor="sqlite"))

    assert abs(clock.shared_now() - timezone.now()) < timedelta(minutes=1)
