from collections.abc import Callable
from shutil import disk_usage

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.environment import PROGRAM, RUN, create_data_folder
from kgharvest.jobs import workers
from kgharvest.management.command import DomainCommand, Error
from kgharvest.models import Job
from kgharvest.operations.health import READINESS, Finding
from kgharvest.pages.number_format import counted

FREE_GB = 1


class Command(DomainCommand):
    help = "Check the database, broker, workers, model folder, and disk space, and explain how to fix problems."

    def handle(self, **options):
        create_data_folder(settings.DATA_DIR)
        findings = [(name, check()) for name, check in CHECKS.items()]
        for name, finding in findings:
            self.stdout.write(f"{'ok ' if finding.is_well else 'BAD'} {name}: {finding.says}")
        if failed := [name for name, finding in findings if not finding.is_well]:
            raise Error(f"Failed checks: {', '.join(failed)}. See above.")


def check_worker() -> Finding:
    try:
        now = timezone.now()
        if n_alive := workers.alive(now).count():
            lacking = workers.lacking(now)
            return Finding(not lacking, lacking or f"{counted(n_alive, 'active worker')}")
        n_unfinished = Job.objects.whole().unfinished().count()
    except DatabaseError:
        return Finding(False, "unknown, because the database is unavailable")
    return Finding(
        False, f"no active worker, {counted(n_unfinished, 'unfinished job')}; start a worker with {RUN} worker"
    )


def check_model_folder() -> Finding:
    missing = [name for name, folder in EMBEDDED_LMS.items() if not (folder / "config.json").is_file()]
    if missing:
        return Finding(
            False, f"{', '.join(missing)} missing; install kgharvest again or run {PROGRAM} train_embedded_lm"
        )
    return Finding(True, ", ".join(f"{name} in {folder}" for name, folder in EMBEDDED_LMS.items()))


def check_disk() -> Finding:
    free_gb = disk_usage(settings.DATA_DIR).free / 1e9
    if free_gb < FREE_GB:
        reason = f"only {free_gb:.1f} GB free in {settings.DATA_DIR}; free disk space or move KGHARVEST_DATA_DIR"
        return Finding(False, reason)
    return Finding(True, f"{free_gb:.0f} GB free in {settings.DATA_DIR}")


CHECKS: dict[str, Callable[[], Finding]] = {
    **READINESS,
    "worker": check_worker,
    "model folder": check_model_folder,
    "disk": check_disk,
}
