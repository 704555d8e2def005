"""`doctor`: is everything there that the product needs, and if not, what to do."""

from __future__ import annotations

from collections.abc import Callable
from shutil import disk_usage
from typing import NamedTuple

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from kgharvest.celery import app
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.jobs import ledger
from kgharvest.management.command import DomainCommand, Error, has_pending_migrations
from kgharvest.models import Job

FREE_GB = 1


BROKER = f"files in {settings.BROKER_DIR}" if hasattr(settings, "BROKER_DIR") else app.connection().as_uri()


class Finding(NamedTuple):
    is_well: bool
    says: str


class Command(DomainCommand):
    help = "Check database, broker, worker, model folder and disk; say what to do about what is missing."

    def handle(self, **options):
        findings = [(name, check()) for name, check in CHECKS.items()]
        for name, finding in findings:
            self.stdout.write(f"{'ok ' if finding.is_well else 'BAD'} {name}: {finding.says}")
        ill = [name for name, finding in findings if not finding.is_well]
        if ill:
            raise Error(f"Not everything is well: see {', '.join(ill)} above.")


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def check_database() -> Finding:
    try:
        if has_pending_migrations():
            return Finding(False, "it lacks tables; run python manage.py migrate")
    except DatabaseError as error:
        return Finding(False, f"it does not answer ({first_line(error)}); check DATABASE_URL and that the server runs")
    return Finding(True, f"{connection.vendor} {connection.settings_dict['NAME']}")


def check_broker() -> Finding:
    try:
        with app.connection_for_write(connect_timeout=3) as broker:
            broker.ensure_connection(max_retries=1, timeout=3)
            return Finding(True, BROKER)
    except (BrokerError, OSError) as error:
        return Finding(False, f"it does not answer ({first_line(error)}); check BROKER_URL and that the broker runs")


def check_worker() -> Finding:
    try:
        if ledger.has_worker(timezone.now()):
            return Finding(True, "one was heard of within the last minute")
        waiting = Job.objects.unfinished().count()
    except DatabaseError:
        return Finding(False, "not known without a database")
    return Finding(False, f"none was heard of for a minute and {waiting} jobs wait; start one with ./run worker")


def check_model_folder() -> Finding:
    missing = [name for name, folder in EMBEDDED_LMS.items() if not (folder / "config.json").is_file()]
    if missing:
        return Finding(False, f"{', '.join(missing)} missing; run python manage.py train_embedded_lm or clone again")
    return Finding(True, ", ".join(f"{name} in {folder}" for name, folder in EMBEDDED_LMS.items()))


def check_disk() -> Finding:
    free_gb = disk_usage(settings.DATA_DIR).free / 1e9
    if free_gb < FREE_GB:
        return Finding(
            False, f"only {free_gb:.1f} GB are free in {settings.DATA_DIR}; make room or move KGHARVEST_DATA_DIR"
        )
    return Finding(True, f"{free_gb:.0f} GB free in {settings.DATA_DIR}")


CHECKS: dict[str, Callable[[], Finding]] = {
    "database": check_database,
    "broker": check_broker,
    "worker": check_worker,
    "model folder": check_model_folder,
    "disk": check_disk,
}
