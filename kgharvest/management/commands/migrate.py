"""`migrate` with a lock timeout and retries, so that migrations do not block a running site."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from kgharvest.environment import create_data_folder

LOCK_TIMEOUT = "3s"
PAUSE_S = 5
ATTEMPTS = 24  # three minutes
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code


class Command(migrate.Command):
    """Django's command waits for table locks on PostgreSQL, and all other queries queue behind it.

    Each migration is one transaction, so a retry continues after the last complete migration.
    """

    def execute(self, *args: Any, **options: Any) -> str | None:
        if not options["check_unapplied"]:
            create_data_folder(settings.DATA_DIR)  # before system checks, which connect to the database
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        for _ in range(ATTEMPTS):
            try:
                with lock_timeout(connections[options["database"]]):
                    return super().handle(*args, **options)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE:
                    raise
                self.stdout.write(f"\nA table is in use. Retrying in {PAUSE_S} s.")
                sleep(PAUSE_S)
        raise CommandError(
            f"A table was still in use after {ATTEMPTS} attempts. Wait until other processes, for example a backup, "
            "have finished, then run migrate again."
        )


@contextmanager
def lock_timeout(connection: BaseDatabaseWrapper) -> Iterator[None]:
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
