"""Packs as work of workers: asked for on the page of a report or by the API, and kept as files that all hosts share.

A report has one pack that can be had: a new one takes the place of the last. Files go with their reports.
"""

from __future__ import annotations

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
from evaluation.paper.files import PackFile
from kgharvest.access import Action, check_may
from kgharvest.contrib.publishing.models import PaperPack
from kgharvest.contrib.publishing.packs.archive import write_pack, zipped
from kgharvest.contrib.publishing.packs.pack import pack_files
from kgharvest.errors import NotFound
from kgharvest.events.recording import record
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.operations.files import FilesUnavailable, keep, kept_files, new_connection

logger = logging.getLogger(__name__)

FOLDER = "packs"
FILE_NAME = re.compile(r"(?P<pk>[0-9]{1,18})(?:-(?P<digest>[0-9a-f]{64}))?\.zip")
DRAFT = re.compile(rf"\.{FILE_NAME.pattern}\.\d+")  # of bulk.file_writing, in a data folder
ABANDONED_AFTER = timedelta(days=1)
SWEPT_EVERY = timedelta(minutes=1)

_swept_at: datetime | None = None  # by this process


def queue_pack(report: Report, by=None) -> PaperPack:
    """Ask a worker for the report's pack, unless one is under way already. Raises NotAllowed."""
    check_may(by, Action.WORK, report.project)
    with transaction.atomic():
        Report.objects.select_for_update(no_key=True).only("pk").get(pk=report.pk)  # two clicks are one pack
        under_way = PaperPack.objects.unfinished().filter(report=report).first()
        if under_way:
            return under_way
        pack = PaperPack.objects.create(kind=PaperPack.KIND, project=report.project, report=report, created_by=by)
        ledger.enqueue(pack)
    return pack


def run_pack_job(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Runner of its kind of job."""
    pack = PaperPack.objects.select_related("report__round__project", "created_by").get(pk=job.pk)
    with heartbeat.kept_alive(), zipped(pack_files(pack.report, on_progress=heartbeat), settings.DATA_DIR) as file:
        digest, n_bytes = file_digest(file, "sha256").hexdigest(), file.tell()
        keep(name_of(pack.pk, digest), file, heartbeat)

    def store() -> None:
        PaperPack.objects.filter(pk=pack.pk).update(sha256=digest, n_bytes=n_bytes)
        pack.report.packs.filter(pk__lt=pack.pk).exclude(status__in=["queued", "running"]).delete()
        record_packed(pack.report, digest, pack.created_by)

    return store


def pack_now(report: Report, output: Path, files: Sequence[PackFile]) -> None:
    """Write files that the operator had made at a command."""
    write_pack(files, output)
    with zipped(files, output.parent) as file:
        record_packed(report, file_digest(file, "sha256").hexdigest(), None)


def record_packed(report: Report, digest: str, by) -> None:
    record("report.packed", report, by, round=report.round, report=report.pk, sha256=digest)


# -- files -------------------------------------------------------------------------------------------------------------


def name_of(pk: int, digest: str) -> str:
    """Return the name of a pack's file. Two workers that make one pack twice, and differently, make two files."""
    return f"{FOLDER}/{pk}-{digest}.zip"


def names_of(pack: PaperPack) -> list[str]:
    """Return the names that the file may have: its own, and that of packs of before names had a checksum."""
    return [name_of(pack.pk, pack.sha256), f"{FOLDER}/{pack.pk}.zip"]


def has_file(pack: PaperPack) -> bool:
    """Raises FilesUnavailable."""
    return any(kept_files().exists(name) for name in names_of(pack))


def open_file(pack: PaperPack) -> File:
    """Return the file of a pack that is done. Raises NotFound or FilesUnavailable."""
    if pack.status == Job.Status.SUCCEEDED:  # one that was cancelled at its end may have left a file
        for name in names_of(pack):
            with suppress(FileNotFoundError):
                return kept_files().open(name)
    raise NotFound("This pack is not done, or its file is no more; have it made again.")


def sweep(now: datetime) -> None:
    """Delete the files of deleted packs. A periodic task; each worker does it once a minute: stores can bill lists."""
    global _swept_at
    if _swept_at is None or now - _swept_at >= SWEPT_EVERY:
        _swept_at = now
        delete_files_without_report(now)


def delete_files_without_report(now: datetime) -> None:
    """Delete the files of packs that were deleted with their reports, and drafts that were never finished."""
    files = new_connection()
    try:
        names = files.listdir(FOLDER)[1]
        found = [match for name in names if (match := FILE_NAME.fullmatch(name))]
        packs = PaperPack.objects.in_bulk({int(match["pk"]) for match in found})
        for match in found:
            pack = packs.get(int(match["pk"]))
            if not pack or (pack.status == Job.Status.SUCCEEDED and match["digest"] not in (pack.sha256, None)):
                files.delete(f"{FOLDER}/{match[0]}")
        for draft in (f"{FOLDER}/{name}" for name in names if DRAFT.fullmatch(name)):
            if now - files.get_modified_time(draft) > ABANDONED_AFTER:
                files.delete(draft)
    except FileNotFoundError:
        pass  # nothing was ever kept
    except FilesUnavailable as error:
        logger.warning("Files of packs that are gone wait to be deleted: %s", error.reason)
