"""Packs in an S3-compatible store: shared by two hosts, deleted with the report, and store outages."""

from __future__ import annotations

import hashlib
import os
import shutil

import pytest
from django.utils import timezone

from kgharvest.contrib.publishing.packs.pack_jobs import delete_files_without_report, queue_pack
from kgharvest.jobs import ledger
from kgharvest.operations import files
from tests.kgharvest.contrib.publishing.packs.studies import STUDIES
from tests.object_store import CREDENTIALS
from tests.programs import run_program


@pytest.fixture
def report(db, tmp_path, without_figures):
    return STUDIES["without_judgments"](tmp_path)


def test_pack_from_one_host_is_downloaded_from_another(store, migrated_database, tmp_path):
    shutil.copyfile(migrated_database, tmp_path / "shared.sqlite3")
    output = []
    for host, task in {"worker": "make_pack", "web": "fetch_pack"}.items():
        environment = {
            **os.environ,
            **CREDENTIALS,
            "KGHARVEST_DATA_DIR": str(tmp_path / host),
            "DATABASE_URL": f"sqlite:///{tmp_path / 'shared.sqlite3'}",
            "KGHARVEST_FILES": store.address,
            "DEBUG": "1",
        }
        code = f"from tests.kgharvest.contrib.publishing.packs.two_hosts import {task}; {task}()"
        process = run_program(["manage.py", "shell", "-v", "0", "-c", code], environment)
        assert process.returncode == 0, process.stderr
        output += process.stdout.split()

    pack, packed, downloaded = output
    assert packed == downloaded
    assert [name.rpartition("/")[2] for name in store.names()] == [f"{pack}-{packed}.zip"]
    assert not list(tmp_path.glob("w*/**/*.zip"))


def test_packs_in_the_store_are_deleted_with_the_report(store, report, researcher, enqueued):
    first = queue_pack(report, researcher)
    ledger.run_job(first.pk)
    second = queue_pack(report, researcher)
    ledger.run_job(second.pk)
    second.refresh_from_db()
    # left by a worker with an expired lease that packed changed data
    store.client.put_object(
        Bucket=store.bucket, Key=f"lab ä+b/kg/packs/{second.pk}-{'0' * 64}.zip", Body=b"", ContentType="application/zip"
    )
    store.client.put_object(Bucket=store.bucket, Key="lab ä+b/elsewhere/packs/1.zip", Body=b"another installation's")

    delete_files_without_report(timezone.now())
    names_before = store.names()
    report.delete()
    delete_files_without_report(timezone.now())

    other_file = "lab ä+b/elsewhere/packs/1.zip"
    assert names_before == [other_file, f"lab ä+b/kg/packs/{second.pk}-{second.sha256}.zip"]
    assert store.names() == [other_file]


def test_page_and_api_report_a_store_outage(store_server, store, report, client, researcher, enqueued, monkeypatch):
    client.force_login(researcher)
    pack = queue_pack(report, researcher)
    ledger.run_job(pack.pk)
    page, file = f"/reports/{report.pk}/pack/", f"/reports/{report.pk}/pack/{pack.pk}/pack.zip"
    store_server.go_away()
    monkeypatch.setattr(files, "LONGEST_WAIT_S", -1)

    response = client.get(file, follow=True)
    api_response = client.get(f"/api/v1/reports/{report.pk}/packs/{pack.pk}/pack.zip")
    pack_in_outage = queue_pack(report, researcher)
    ledger.run_job(pack_in_outage.pk)
    delete_files_without_report(timezone.now())  # the periodic task must not fail

    assert "The file store does not respond" in response.text
    assert "Download" not in response.text
    assert "no more on this server" not in response.text
    assert api_response.status_code == 503
    assert api_response.json()["error"]["code"] == "FilesUnavailable"
    pack_in_outage.refresh_from_db()
    assert (pack_in_outage.status, pack_in_outage.error) == ("failed", files.AWAY)
    assert store.bucket not in response.text + pack_in_outage.error

    store_server.come_back()
    content = client.get(file).getvalue()
    pack.refresh_from_db()
    assert hashlib.sha256(content).hexdigest() == pack.sha256
    ledger.retry(pack_in_outage, researcher)
    ledger.run_job(pack_in_outage.pk)
    pack_in_outage.refresh_from_db()
    assert pack_in_outage.status == "succeeded"
    assert "Download" in client.get(page).text
