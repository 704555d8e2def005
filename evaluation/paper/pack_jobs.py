"""Packs as work of workers: asked for on the page of a report or by the API, and kept as files in the data folder.

A report has one pack that can be had: a new one takes the place of the last. Files go with their reports.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from django.conf import settings
from django.db import transaction

from evaluation.models import PaperPack, Report
from evaluation.paper.archive import write_pack, zip_of
from evaluation.paper.files import PackFile
from evaluation.paper.pack import pack_files
from kgharvest.access import Action, check_may
from kgharvest.audit.trail import record
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.errors import NotFound
from kgharvest.jobs import ledger
from kgharvest.models import Job

SUFFIX = ".zip"


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
    with heartbeat.kept_alive():
        files = pack_files(pack.report, on_progress=heartbeat)
        content = zip_of(files)
        settings.PACKS_DIR.mkdir(parents=True, exist_ok=True)
        write_atomically(file_of(pack), [content])
    digest = sha256(content).hexdigest()

    def store() -> None:
        PaperPack.objects.filter(pk=pack.pk).update(sha256=digest, n_bytes=len(content))
        pack.report.packs.filter(pk__lt=pack.pk).exclude(status__in=["queued", "running"]).delete()
        record_packed(pack.report, digest, pack.created_by)

    return store


def pack_now(report: Report, output: Path, files: Sequence[PackFile]) -> None:
    """Write files that the operator had made at a command."""
    write_pack(files, output)
    record_packed(report, sha256(zip_of(files)).hexdigest(), None)


def record_packed(report: Report, digest: str, by) -> None:
    facts = {"round": report.round.name, "report": report.pk, "sha256": digest}
    record("report.packed", report, by, report.round.project_id, **facts)


# -- files -------------------------------------------------------------------------------------------------------------


def file_of(pack: PaperPack) -> Path:
    return settings.PACKS_DIR / f"{pack.pk}{SUFFIX}"


def open_file(pack: PaperPack):
    """Return the file of a pack that is done. Raises NotFound."""
    if pack.status == Job.Status.SUCCEEDED:  # one that was cancelled at its end may have left a file
        with suppress(FileNotFoundError):
            return file_of(pack).open("rb")
    raise NotFound("This pack is not done, or its file is no more; have it made again.")


def delete_files_without_report(now: datetime) -> None:
    """Delete the files of packs that are gone, as they go with their reports. A periodic task of every worker."""
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(settings.PACKS_DIR) if name.endswith(SUFFIX) and name[:-4].isdecimal()]
        ids = {int(name.removesuffix(SUFFIX)) for name in names}
        for pk in ids - set(PaperPack.objects.filter(pk__in=ids).values_list("pk", flat=True)):
            (settings.PACKS_DIR / f"{pk}{SUFFIX}").unlink(missing_ok=True)
