"""Command `migrate` on PostgreSQL: lock timeouts and retries."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.core.management.commands import migrate as django_migrate
from django.db import OperationalError, connection

from kgharvest.management.commands import migrate
from tests.postgres import on_postgresql, run_on_postgresql


def failing_with(sqlstate: str) -> OperationalError:
    error = OperationalError("canceling statement due to lock timeout")
    error.__cause__ = Exception()
    error.__cause__.sqlstate = sqlstate
    return error


@pytest.fixture
def outcomes(monkeypatch) -> list[Exception | None]:
    """Errors that Django's command raises, one per call; None for success. Pauses take no time."""
    raised: list[Exception | None] = []

    def handle(self, *args, **options):
        if error := raised.pop(0):
            raise error

    monkeypatch.setattr(django_migrate.Command, "handle", handle)
    monkeypatch.setattr(migrate, "sleep", lambda seconds: None)
    return raised


@pytest.mark.django_db
def test_lock_timeout_is_retried(outcomes, capsys):
    outcomes += [failing_with("55P03"), failing_with("55P03"), None]

    call_command("migrate")

    assert outcomes == []
    assert capsys.readouterr().out.count("A table is in use") == 2


@pytest.mark.django_db
def test_repeated_lock_timeout_is_reported(outcomes):
    outcomes += [failing_with("55P03")] * migrate.ATTEMPTS

    with pytest.raises(CommandError, match="Wait until other processes"):
        call_command("migrate")


@pytest.mark.django_db
def test_errors_other_than_lock_timeouts_are_not_retried(outcomes):
    outcomes += [failing_with("42P07"), None]

    with pytest.raises(OperationalError):
        call_command("migrate")


@on_postgresql
def test_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite allows only one writer")
def test_migration_gives_up_on_a_held_lock(monkeypatch):
    """Reverse a migration while an open transaction reads its table."""
    monkeypatch.setattr(migrate, "ATTEMPTS", 1)
    monkeypatch.setattr(migrate, "PAUSE_S", 0)
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "200ms")
    reader = connection.copy()
    try:
        reader.set_autocommit(False)
        with reader.cursor() as cursor:
            cursor.execute("SELECT 1 FROM evaluation_scoreevaluation")
        with pytest.raises(CommandError, match="A table was still in use"):
            call_command("migrate", "evaluation", "0012")
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",)
    finally:
        reader.close()
