"""`doctor`: is everything there that the product needs, and if not, what to do."""

from __future__ import annotations

from collections.abc import Callable
from shutil import disk_usage

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.jobs import workers
from kgharvest.management.command import DomainCommand, Error
from kgharvest.models import Job
from kgharvest.operations.health import READINESS, Finding

FREE_GB = 1


class Command(DomainCommand):
    help = "Check database, broker, worker, model folder and disk; say what to do about what is missing."

    def handle(self, **options):
        findings = [(name, check()) for name, check in CHECKS.items()]
        for name, finding in findings:
            self.stdout.write(f"{'ok ' if finding.is_well else 'BAD'} {name}: {finding.says}")
        ill = [name for name, finding in findings if not finding.is_well]
        if ill:
            raise Error(f"Not everything is well: see {', '.join(ill)} above.")


def check_worker() -> Finding:
    try:
        now = timezone.now()
        if n_alive := workers.n_alive(now):
            heard = f"{n_alive} were heard of" if n_alive > 1 else "one was heard of"
            lacking = workers.lacking(now)
            return Finding(not lacking, lacking or f"{heard} within the last minute")
        waiting = Job.objects.whole().unfinished().count()
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
    **READINESS,
    "worker": check_worker,
    "model folder": check_model_folder,
    "disk": check_disk,
}
