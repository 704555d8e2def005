"""Clock shared by all hosts."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

from django.utils import timezone

from kgharvest.operations import clock


class FakeDatabaseConnection:
    """Connection to a PostgreSQL server whose clock is one hour ahead of this host."""

    vendor = "postgresql"
    n_queries = 0

    @contextmanager
    def cursor(self):
        self.n_queries += 1
        time = timezone.now() + timedelta(hours=1)
        yield SimpleNamespace(execute=lambda sql: None, fetchone=lambda: (time,))


def test_the_database_time_is_queried_once_a_minute(monkeypatch):
    database = FakeDatabaseConnection()
    monkeypatch.setattr(clock, "connection", database)
    monkeypatch.setattr(clock, "_synced", None)

    times = [clock.shared_now() for _ in range(3)]

    assert abs(times[-1] - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)
    assert database.n_queries == 1


def test_sqlite_uses_the_local_time(monkeypatch):
    monkeypatch.setattr(clock, "connection", SimpleNamespace(vendor="sqlite"))

    assert abs(clock.shared_now() - timezone.now()) < timedelta(minutes=1)
