"""Packs in an S3-compatible store: made on one host, given out on another, and what is said while the store is away."""

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


def test_a_pack_of_one_host_is_downloaded_from_another(store, migrated_database, tmp_path):
    shutil.copyfile(migrated_database, tmp_path / "shared.sqlite3")
    printed = []
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
        done = run_program(["manage.py", "shell", "-v", "0", "-c", code], environment)
        assert done.returncode == 0, done.stderr
        printed += done.stdout.split()

    pack, packed, downloaded = printed
    assert packed == downloaded
    assert [name.rpartition("/")[2] for name in store.names()] == [f"{pack}-{packed}.zip"]
    assert not list(tmp_path.glob("w*/**/*.zip"))


def test_packs_in_the_store_go_with_their_report(store, report, researcher, enqueued):
    first = queue_pack(report, researcher)
    ledger.run_job(first.pk)
    second = queue_pack(report, researcher)
    ledger.run_job(second.pk)
    second.refresh_from_db()
    # of a worker that was taken for lost, and made the pack from what had changed meanwhile
    store.client.put_object(
        Bucket=store.bucket, Key=f"lab ä+b/kg/packs/{second.pk}-{'0' * 64}.zip", Body=b"", ContentType="application/zip"
    )
    store.client.put_object(Bucket=store.bucket, Key="lab ä+b/elsewhere/packs/1.zip", Body=b"another installation's")

    delete_files_without_report(timezone.now())
    kept = store.names()
    report.delete()
    delete_files_without_report(timezone.now())

    others = "lab ä+b/elsewhere/packs/1.zip"
    assert kept == [others, f"lab ä+b/kg/packs/{second.pk}-{second.sha256}.zip"]
    assert store.names() == [others]


def test_page_and_api_say_that_the_store_is_away(
    store_server, store, report, client, researcher, enqueued, monkeypatch
):
    client.force_login(researcher)
    pack = queue_pack(report, researcher)
    ledger.run_job(pack.pk)
    page, file = f"/reports/{report.pk}/pack/", f"/reports/{report.pk}/pack/{pack.pk}/pack.zip"
    store_server.go_away()
    monkeypatch.setattr(files, "LONGEST_WAIT_S", -1)

    refused = client.get(file, follow=True)
    by_api = client.get(f"/api/v1/reports/{report.pk}/packs/{pack.pk}/pack.zip")
    late = queue_pack(report, researcher)
    ledger.run_job(late.pk)
    delete_files_without_report(timezone.now())  # a worker's timer goes on

    assert "The file store does not respond" in refused.text
    assert "Download" not in refused.text
    assert "no more on this server" not in refused.text
    assert by_api.status_code == 503
    assert by_api.json()["error"]["code"] == "FilesUnavailable"
    late.refresh_from_db()
    assert (late.status, late.error) == ("failed", files.AWAY)
    assert store.bucket not in refused.text + late.error

    store_server.come_back()
    content = client.get(file).getvalue()
    pack.refresh_from_db()
    assert hashlib.sha256(content).hexdigest() == pack.sha256
    ledger.retry(late, researcher)
    ledger.run_job(late.pk)
    late.refresh_from_db()
    assert late.status == "succeeded"
    assert "Download" in client.get(page).text
