"""`migrate` while people work: a lock that is not to be had at once is given up and asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

LOCK_TIMEOUT = "3s"
PAUSE_S = 5
ATTEMPTS = 24  # three minutes
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code


class Command(migrate.Command):
    """Django's, which on PostgreSQL would wait for the lock of a table, and everybody else behind it.

    What was migrated before a lock was missed is kept: a migration is one transaction.
    """

    def handle(self, *args: Any, **options: Any) -> None:
        for _ in range(ATTEMPTS):
            try:
                with giving_up_locks(connections[options["database"]]):
                    return super().handle(*args, **options)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE:
                    raise
                self.stdout.write(f"\nA table is in use; trying again in {PAUSE_S} s.")
                sleep(PAUSE_S)
        raise CommandError(
            f"A table was in use, {ATTEMPTS} times in a row; wait for what uses it (a backup?), and migrate again."
        )


@contextmanager
def giving_up_locks(connection: BaseDatabaseWrapper) -> Iterator[None]:
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    try:
        yield
    finally:
        if connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")
