"""Pack jobs: creation by a worker, audit log, download, and deletion with the report."""

import hashlib
import io
import zipfile
from datetime import timedelta

import pytest
from django.utils import timezone

from kgharvest.contrib.publishing.models import PaperPack
from kgharvest.contrib.publishing.packs import pack_jobs
from kgharvest.contrib.publishing.packs.pack_jobs import delete_files_without_report, name_of, queue_pack
from kgharvest.contrib.publishing.packs.verification import verify_pack
from kgharvest.contrib.publishing.statements.services import save_statements
from kgharvest.events.models import Event
from kgharvest.jobs import ledger
from tests.kgharvest.contrib.publishing.packs.studies import STUDIES

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_figures")]


@pytest.fixture(autouse=True)
def folder(settings, tmp_path):
    files = {"BACKEND": "kgharvest.operations.files.DataFolder", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = settings.STORAGES | {"files": files}
    return tmp_path / "packs"


@pytest.fixture
def report(tmp_path):
    return STUDIES["without_judgments"](tmp_path)


def test_worker_creates_a_pack_for_download(client, researcher, report, enqueued, tmp_path):
    client.force_login(researcher)
    page = f"/reports/{report.pk}/pack/"
    assert f'href="{page}"' in client.get(f"/reports/{report.pk}/").text

    save_statements(report.round, {"licence": "CC-BY-4.0", "authors": "Doe, Jane"}, researcher)
    client.post(page)
    [pack] = report.packs.all()
    assert enqueued == [pack.pk]
    assert f'data-job="/api/v1/reports/{report.pk}/packs/{pack.pk}/"' in client.get(page).text
    ledger.run_job(pack.pk)

    pack.refresh_from_db()
    assert (pack.status, pack.error) == ("succeeded", "")
    assert pack.sha256 in client.get(page).text
    response = client.get(f"{page}{pack.pk}/pack.zip")
    content = b"".join(response.streaming_content)
    assert hashlib.sha256(content).hexdigest() == pack.sha256
    assert response["Content-Disposition"] == f'attachment; filename="{report.round.name}-report-{report.pk}.zip"'
    assert (response["Content-Type"], response["X-Content-Type-Options"]) == ("application/zip", "nosniff")
    assert (response["Content-Length"], response["Cache-Control"]) == (str(pack.n_bytes), "private, no-store")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert b'license: "cc-by-4.0"' in archive.read("README.md")
        assert b'family-names: "Doe"' in archive.read("CITATION.cff")
    assert list(verify_pack(tmp_path / name_of(pack.pk, pack.sha256)).problems) == []
    entry = Event.objects.get(action="report.packed")
    assert entry.known_facts == {"round": report.round.name, "report": report.pk, "sha256": pack.sha256}


def test_queued_pack_is_reused_and_a_finished_one_replaced(report, researcher, enqueued, folder):
    first = queue_pack(report, researcher)
    assert queue_pack(report, researcher).pk == first.pk
    ledger.run_job(first.pk)
    second = queue_pack(report, researcher)
    ledger.run_job(second.pk)

    assert [pack.pk for pack in report.packs.all()] == [second.pk]
    delete_files_without_report(timezone.now())
    second.refresh_from_db()
    assert [path.name for path in folder.iterdir()] == [f"{second.pk}-{second.sha256}.zip"]


def test_cancelled_pack_cannot_be_downloaded(client, report, researcher, enqueued):
    pack = queue_pack(report, researcher)
    ledger.run_job(pack.pk)
    PaperPack.objects.filter(pk=pack.pk).update(status="cancelled")

    client.force_login(researcher)

    assert client.get(f"/reports/{report.pk}/pack/{pack.pk}/pack.zip").status_code == 404


def test_pack_files_are_deleted_with_the_report(report, researcher, enqueued, folder):
    ledger.run_job(queue_pack(report, researcher).pk)
    (folder / "notes.txt").write_text("not a pack")

    report.delete()
    delete_files_without_report(timezone.now())

    assert not PaperPack.objects.exists()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_sweep_runs_once_per_minute(monkeypatch):
    sweep_times = []
    monkeypatch.setattr(pack_jobs, "_swept_at", None)
    monkeypatch.setattr(pack_jobs, "delete_files_without_report", sweep_times.append)
    times = [timezone.now() + timedelta(seconds=seconds) for seconds in (0, 5, 59, 60, 65)]

    for now in times:
        pack_jobs.sweep(now)

    assert sweep_times == [times[0], times[3]]


def test_page_reports_a_deleted_pack_file(client, researcher, report, enqueued, folder):
    client.force_login(researcher)
    pack = queue_pack(report, researcher)
    ledger.run_job(pack.pk)
    [file] = folder.iterdir()
    file.unlink()

    assert "was deleted from this server" in client.get(f"/reports/{report.pk}/pack/").text
    assert client.get(f"/reports/{report.pk}/pack/{pack.pk}/pack.zip").status_code == 404


def test_pack_of_a_changed_round_fails_with_instructions(client, researcher, report, enqueued):
    ledger.run_job(queue_pack(report, researcher).pk)
    report.document |= {"n_tasks": 99}
    report.save()
    pack = queue_pack(report, researcher)
    ledger.run_job(pack.pk)

    pack.refresh_from_db()
    assert pack.status == "failed"
    assert "(n_tasks: packed 99, recomputed 3" in pack.error
    client.force_login(researcher)
    page = client.get(f"/reports/{report.pk}/pack/").text
    assert "Create a new report" in page
    assert "Download" in page  # the pack from before the change is still available
