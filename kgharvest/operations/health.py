"""Health checks of the services on which this process depends, for `/readyz` and the command `doctor`."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import OperationalError as BrokerError

from kgharvest.celery import app
from kgharvest.environment import PROGRAM
from kgharvest.jobs import messages
from kgharvest.management.command import has_pending_migrations
from kgharvest.operations.files import FilesUnavailable, kept_files

logger = logging.getLogger(__name__)

BROKER = f"files in {settings.BROKER_DIR}" if hasattr(settings, "BROKER_DIR") else app.connection().as_uri()
DATABASE_ERRORS = (DatabaseError, InterfaceError)  # InterfaceError means that the connection was lost
CHECK_EVERY_S = 2  # interval that limits the load of public probes on the database and the broker
CHECK_FILES_EVERY_S = 30  # longer interval, because some stores bill each request
MIGRATED, FILES, FILES_ASKED = "operations:migrated", "operations:files", "operations:files-asked"


class Finding(NamedTuple):
    is_well: bool
    says: str  # for operators only, because it contains hosts and folders


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def check_database() -> Finding:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DATABASE_ERRORS as error:
        return Finding(False, f"no answer ({first_line(error)}); check DATABASE_URL and whether the server is running")
    return Finding(True, f"{connection.vendor} {connection.settings_dict['NAME']}")


def check_migrations() -> Finding:
    """Check for pending migrations. If none are pending, the result is cached for the life of the process."""
    if cache.get(MIGRATED):
        return Finding(True, "done")
    try:
        is_behind = has_pending_migrations()
    except DATABASE_ERRORS:
        return Finding(False, "unknown without a database")
    if is_behind:
        return Finding(False, f"migrations are pending; run {PROGRAM} migrate")
    cache.set(MIGRATED, True, None)
    return Finding(True, "done")


def check_broker() -> Finding:
    try:
        messages.connect()
    except (BrokerError, OSError) as error:
        return Finding(False, f"no answer ({first_line(error)}); check BROKER_URL and whether the broker is running")
    return Finding(True, BROKER)


def check_files() -> Finding:
    """Check that files can be stored and read. Only one thread waits for the store; others return the last result."""
    files = kept_files()
    if cache.add(FILES_ASKED, True, CHECK_FILES_EVERY_S):
        try:
            files.check()
        except FilesUnavailable as error:
            finding = Finding(False, error.reason)
        except Exception as error:
            # Catch all errors, for example of a network library, because probes must report them.
            logger.exception("The check of the file store failed.")
            reason = f"{type(error).__name__}: {first_line(error)}"
            finding = Finding(False, f"the check of {files.place} failed ({reason}); see the log")
        else:
            finding = Finding(True, files.place)
        cache.set(FILES, finding, None)
    return cache.get(FILES) or Finding(False, f"{files.place} has not answered yet")


READINESS: dict[str, Callable[[], Finding]] = {
    "database": check_database,
    "migrations": check_migrations,
    "broker": check_broker,
    "files": check_files,
}
OPTIONAL = {"files"}  # without this service, a server can answer nearly all requests and counts as ready


def readiness() -> dict[str, Finding]:
    """Return the results of all checks, cached for CHECK_EVERY_S."""
    return cache.get_or_set(
        "operations:readiness", lambda: {name: check() for name, check in READINESS.items()}, CHECK_EVERY_S
    )
