"""Jobs that create packages. They are requested on a report's page or through the API.

All hosts share the storage for the resulting files.

A report has one package: a new package replaces the previous one. Files are deleted with their reports.
"""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import file_digest
from pathlib import Path

from django.conf import settings
from django.core.files import File
from django.db import transaction

from evaluation.models import Report
from kgharvest.access import Action, check_may
from kgharvest.contrib.publishing.models import PaperPack
from kgharvest.contrib.publishing.packs.archive import PackFile, write_pack, zipped
from kgharvest.environment import create_data_folder
from kgharvest.errors import NotFound
from kgharvest.events.recording import record
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.operations.files import FilesUnavailable, keep, kept_files, new_connection

logger = logging.getLogger(__name__)

FOLDER = "packs"
FILE_NAME = re.compile(r"(?P<pk>[0-9]{1,18})(?:-(?P<digest>[0-9a-f]{64}))?\.zip")
DRAFT = re.compile(rf"\.{FILE_NAME.pattern}\.\d+")  # temporary files that bulk.file_writing creates in a data folder
ABANDONED_AFTER = timedelta(days=1)
SWEPT_EVERY = timedelta(minutes=1)

_swept_at: datetime | None = None  # time of the last sweep by this process


def queue_pack(report: Report, by=None) -> PaperPack:
    """Queue a job for the report's package, or return the unfinished one. Raises NotAllowed."""
    check_may(by, Action.WORK, report.project)
    with transaction.atomic():
        # Lock the report, so that two clicks create only one package.
        Report.objects.select_for_update(no_key=True).only("pk").get(pk=report.pk)
        if under_way := PaperPack.objects.unfinished().filter(report=report).first():
            return under_way
        pack = PaperPack.objects.create(kind=PaperPack.KIND, project=report.project, report=report, created_by=by)
        ledger.enqueue(pack)
    return pack


def run_pack_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Create the package and store its file."""
    from kgharvest.contrib.publishing.packs.pack import pack_files

    pack = PaperPack.objects.select_related("report__round__project", "created_by").get(pk=job.pk)
    folder = create_data_folder(settings.DATA_DIR)
    with heartbeat.kept_alive(), zipped(pack_files(pack.report, on_progress=heartbeat), folder) as file:
        digest, n_bytes = file_digest(file, "sha256").hexdigest(), file.tell()
        keep(name_of(pack.pk, digest), file, heartbeat)

    def store() -> None:
        PaperPack.objects.filter(pk=pack.pk).update(sha256=digest, n_bytes=n_bytes)
        pack.report.packs.filter(pk__lt=pack.pk).exclude(status__in=["queued", "running"]).delete()
        record_packed(pack.report, digest, pack.created_by)

    return store


def pack_now(report: Report, output: Path, files: Sequence[PackFile]) -> None:
    """Write the files of a package created by a command."""
    write_pack(files, output)
    with zipped(files, output.parent) as file:
        record_packed(report, file_digest(file, "sha256").hexdigest(), None)


def write_pack_of(report: Report, output: Path) -> None:
    """Create the package of the report and write it. Raises RoundChanged, NotWritable."""
    from kgharvest.contrib.publishing.packs.pack import pack_files

    pack_now(report, output, pack_files(report))


def record_packed(report: Report, digest: str, by) -> None:
    record("report.packed", report, by, round=report.round, report=report.pk, sha256=digest)


def name_of(pk: int, digest: str) -> str:
    """Return the name of a package's file.

    It contains a digest, so that different files by two workers are both kept.
    """
    return f"{FOLDER}/{pk}-{digest}.zip"


def names_of(pack: PaperPack) -> list[str]:
    """Return the possible names of the file: the current name, and the name in older versions, without a checksum."""
    return [name_of(pack.pk, pack.sha256), f"{FOLDER}/{pack.pk}.zip"]


def has_file(pack: PaperPack) -> bool:
    """Return whether the file of the package exists. Raises FilesUnavailable."""
    return any(kept_files().exists(name) for name in names_of(pack))


def open_file(pack: PaperPack) -> File:
    """Return the file of a finished package. Raises NotFound or FilesUnavailable."""
    # Without this check, the file of a job that was canceled late could be returned.
    if pack.status == Job.Status.SUCCEEDED:
        for name in names_of(pack):
            with suppress(FileNotFoundError):
                return kept_files().open(name)
    raise NotFound("The package is unfinished or its file was deleted. Build the package again.")


def sweep(now: datetime) -> None:
    """Delete files of deleted packages. Each worker does this once a minute, because stores can charge for listing.

    A periodic task.
    """
    global _swept_at
    if _swept_at is None or now - _swept_at >= SWEPT_EVERY:
        _swept_at = now
        delete_files_without_report(now)


def delete_files_without_report(now: datetime) -> None:
    """Delete the files of packages whose report was deleted, and temporary files of interrupted jobs."""
    files = new_connection()
    try:
        names = files.listdir(FOLDER)[1]
        matches = [match for name in names if (match := FILE_NAME.fullmatch(name))]
        packs = PaperPack.objects.in_bulk({int(match["pk"]) for match in matches})
        for match in matches:
            pack = packs.get(int(match["pk"]))
            if not pack or (pack.status == Job.Status.SUCCEEDED and match["digest"] not in (pack.sha256, None)):
                files.delete(f"{FOLDER}/{match[0]}")
        for draft in (f"{FOLDER}/{name}" for name in names if DRAFT.fullmatch(name)):
            if now - files.get_modified_time(draft) > ABANDONED_AFTER:
                files.delete(draft)
    except FileNotFoundError:
        pass  # the folder is missing, because no package was ever stored
    except FilesUnavailable as error:
        logger.warning("Cannot delete files of deleted packages yet: %s", error.reason)
