"""Whether what this process needs is there: asked by `/readyz` and by the command `doctor`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import OperationalError as BrokerError

from kgharvest.celery import app
from kgharvest.jobs import messages
from kgharvest.management.command import has_pending_migrations
from kgharvest.operations.files import FilesUnavailable, kept_files

logger = logging.getLogger(__name__)

BROKER = f"files in {settings.BROKER_DIR}" if hasattr(settings, "BROKER_DIR") else app.connection().as_uri()
DATABASE_ERRORS = (DatabaseError, InterfaceError)  # the latter for a connection that was cut
ASKED_EVERY_S = 2  # so that probes, which anybody may send, do not wear out database and broker
FILES_ASKED_EVERY_S = 30  # as some stores bill each request
MIGRATED, FILES, FILES_ASKED = "operations:migrated", "operations:files", "operations:files-asked"


class Finding(NamedTuple):
    is_well: bool
    says: str  # for the operator: names hosts and folders


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def check_database() -> Finding:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DATABASE_ERRORS as error:
        return Finding(False, f"it does not answer ({first_line(error)}); check DATABASE_URL and that the server runs")
    return Finding(True, f"{connection.vendor} {connection.settings_dict['NAME']}")


def check_migrations() -> Finding:
    """Look at the migrations until all are done; then this code has its tables for as long as it runs."""
    if cache.get(MIGRATED):
        return Finding(True, "done")
    try:
        is_behind = has_pending_migrations()
    except DATABASE_ERRORS:
        return Finding(False, "not known without a database")
    if is_behind:
        return Finding(False, "the database lacks tables; run python manage.py migrate")
    cache.set(MIGRATED, True, None)
    return Finding(True, "done")


def check_broker() -> Finding:
    try:
        messages.connect()
    except (BrokerError, OSError) as error:
        return Finding(False, f"it does not answer ({first_line(error)}); check BROKER_URL and that the broker runs")
    return Finding(True, BROKER)


def check_files() -> Finding:
    """Look whether files can be kept and fetched, in a store by doing so.

    A store that is silent is waited for by one thread; the others tell what was found before.
    """
    files = kept_files()
    if cache.add(FILES_ASKED, True, FILES_ASKED_EVERY_S):
        try:
            files.check()
        except FilesUnavailable as error:
            finding = Finding(False, error.reason)
        except Exception as error:  # of whatever lies between here and the store: a probe tells it
            logger.exception("The store of files could not be checked.")
            reason = f"{type(error).__name__}: {first_line(error)}"
            finding = Finding(False, f"{files.place} could not be checked ({reason}); the log says more")
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
BEARABLE = {"files"}  # without which a server answers nearly all requests, so it stays among those that are ready


def readiness() -> dict[str, Finding]:
    """Return what was found, at most ASKED_EVERY_S ago."""
    return cache.get_or_set(
        "operations:readiness", lambda: {name: check() for name, check in READINESS.items()}, ASKED_EVERY_S
    )
