"""File storage in a data folder and in an S3-compatible store: atomic writes and errors of the store."""

from __future__ import annotations

import io
import os
import threading
from urllib.parse import quote

import pytest
import requests
from django.core.exceptions import ImproperlyConfigured
from django.core.files.base import ContentFile, File

from kgharvest.engine.types import Cancelled
from kgharvest.environment import file_storage
from kgharvest.errors import DomainError
from kgharvest.operations import files, health
from kgharvest.operations.files import AWAY, REFUSED, FilesUnavailable, keep, kept_files
from tests.object_store import keep_files_in
from tests.refusals import refused

ODD_NAME = "packs/ä b+c&d=1 %41'#?é.zip"


@pytest.fixture(params=["folder", "store"])
def storage(request, settings, monkeypatch, tmp_path):
    """Configured storage: a data folder or an S3-compatible store."""
    if request.param == "store":
        request.getfixturevalue("store")
    else:
        keep_files_in("", settings, monkeypatch, tmp_path)
    return kept_files()


@pytest.mark.parametrize("name", ["packs/7.zip", ODD_NAME])
def test_file_is_stored_read_partially_replaced_and_deleted(storage, name):
    storage.save(name, ContentFile(b"the first"))
    assert storage.save(name, ContentFile(b"0123456789" * 100)) == name

    with storage.open(name) as file:
        assert (file.size, file.read(4)) == (1000, b"0123")
        file.seek(995)
        assert file.read() == b"56789"
    assert storage.exists(name)
    assert storage.size(name) == 1000
    assert storage.listdir("packs") == ([], [name.removeprefix("packs/")])
    storage.delete(name)
    storage.delete(name)  # two workers may delete the same file
    assert not storage.exists(name)


def test_a_missing_file_raises_file_not_found(storage):
    assert not storage.exists("packs/7.zip")
    with pytest.raises(FileNotFoundError):
        storage.open("packs/7.zip")


def test_names_stay_below_their_prefix(storage):
    with pytest.raises(Exception, match=r"traversal|denied|outside|'\.\.'"):
        storage.save("../elsewhere.zip", ContentFile(b""))


def test_large_file_uses_multipart_upload_and_a_temporary_file(store):
    """Use 9 MB: more than one part, and more than the memory limit for reading."""
    content = os.urandom(9 << 20)

    kept_files().save("packs/large.zip", File(io.BytesIO(content)))

    [key] = store.names()
    assert key == "lab ä+b/kg/packs/large.zip"
    head = store.client.head_object(Bucket=store.bucket, Key=key)
    assert head["ETag"].endswith('-2"')  # uploaded in two parts
    assert head["ContentType"] == "application/zip"
    with kept_files().open("packs/large.zip") as file:
        assert file.file._rolled  # the content is on disk
        assert file.read() == content


def test_files_are_readable_by_their_owner_only(store_server, store):
    kept_files().save("packs/7.zip", ContentFile(b"content"))

    [key] = store.names()
    acl = store.client.get_object_acl(Bucket=store.bucket, Key=key)
    assert [grant["Grantee"]["Type"] for grant in acl["Grants"]] == ["CanonicalUser"]
    assert requests.get(f"{store_server.url}/{store.bucket}/{quote(key)}", timeout=5).status_code == 403


def test_files_are_written_atomically(storage):
    """Read from a file that fails before its end, as on a failing disk."""

    class Broken(io.BytesIO):
        def read(self, n: int = -1) -> bytes:
            if self.tell() >= 6 << 20:
                raise OSError(5, "Input/output error")
            return super().read(n)

    storage.save("packs/7.zip", ContentFile(b"whole"))
    with pytest.raises((OSError, DomainError)):
        storage.save("packs/7.zip", File(Broken(bytes(9 << 20)), name="7.zip"))

    with storage.open("packs/7.zip") as file:
        assert file.read() == b"whole"
    assert storage.listdir("packs") == ([], ["7.zip"])


def test_a_missing_bucket_is_not_a_missing_file(store, settings, monkeypatch, tmp_path):
    keep_files_in(store.address.replace("kg-", "other-"), settings, monkeypatch, tmp_path)
    calls = [
        lambda: kept_files().exists("packs/7.zip"),
        lambda: kept_files().open("packs/7.zip"),
        lambda: kept_files().size("packs/7.zip"),
        lambda: kept_files().listdir("packs"),
        lambda: kept_files().save("packs/7.zip", ContentFile(b"x")),
    ]

    for call in calls:
        with pytest.raises(FilesUnavailable) as refused:
            call()
        assert (str(refused.value), refused.value.is_passing) == (REFUSED, False)
        assert "other-" in refused.value.reason


def test_credential_errors_are_reported_to_the_operator(store_server, store, monkeypatch):
    assert health.check_files().is_well
    requests.post(f"{store_server.url}/moto-api/reset-auth", data="0", timeout=5)  # moto checks signatures from now on
    try:
        health.cache.clear()
        wrong = health.check_files()
    finally:
        requests.post(f"{store_server.url}/moto-api/reset-auth", data="inf", timeout=5)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(FilesUnavailable) as missing:
        files.new_connection().exists("packs/7.zip")

    assert not wrong.is_well
    assert "InvalidAccessKeyId" in wrong.says
    assert "wJalrXUtnFEMI" not in wrong.says
    assert "Unable to locate credentials" in missing.value.reason
    assert not missing.value.is_passing


def test_jobs_wait_for_an_unresponsive_store(store_server, store, monkeypatch):
    """The same connection works again when the store returns, and no file is stored partially."""
    monkeypatch.setattr(files, "RETRY_EVERY_S", 0.05)
    kept_files().save("packs/before.zip", ContentFile(b"before"))
    store_server.go_away()
    stages = []

    def watch(progress) -> None:
        stages.append(progress.stage)
        if stages.count("waiting for the file store") == 2:
            store_server.come_back()

    with pytest.raises(FilesUnavailable) as away:
        kept_files().open("packs/before.zip")
    keep("packs/7.zip", io.BytesIO(b"content"), watch)

    assert (str(away.value), away.value.is_passing) == (AWAY, True)
    assert set(stages) == {"storing the file", "waiting for the file store"}
    with kept_files().open("packs/7.zip") as file:
        assert file.read() == b"content"
    assert kept_files().listdir("packs")[1] == ["7.zip", "before.zip"]


def test_waiting_ends_on_cancellation_and_after_the_time_limit(store_server, store, monkeypatch):
    def cancel(progress) -> None:
        if progress.stage.startswith("waiting"):
            raise Cancelled("The job was cancelled.")

    store_server.go_away()

    with pytest.raises(Cancelled):
        keep("packs/7.zip", io.BytesIO(b"content"), cancel)
    monkeypatch.setattr(files, "LONGEST_WAIT_S", -1)
    with pytest.raises(FilesUnavailable):
        keep("packs/7.zip", io.BytesIO(b"content"), lambda progress: None)
    store_server.come_back()
    assert store.names() == []


def test_threads_share_a_connection(store):
    kept_files().save("packs/7.zip", ContentFile(b"0123456789" * 1000))
    contents: list[bytes] = []

    def read() -> None:
        with kept_files().open("packs/7.zip") as file:
            contents.append(file.read())

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert contents == [b"0123456789" * 1000] * 8


def test_failing_store_is_named_while_the_server_stays_ready(store_server, store, client, db):
    well = client.get("/readyz")
    store_server.go_away()
    health.cache.clear()

    local, remote = client.get("/readyz"), client.get("/readyz", REMOTE_ADDR="192.0.2.7")

    assert well.json()["checks"]["files"] == "ok"
    assert (local.status_code, remote.json()["checks"]["files"]) == (200, "down")
    assert store.bucket in local.json()["checks"]["files"]
    store_server.come_back()
    assert store.names() == []  # the health check deletes its test file


def test_an_unwritable_folder_is_reported(settings, monkeypatch, tmp_path):
    keep_files_in("", settings, monkeypatch, tmp_path / "file" / "folder")
    (tmp_path / "file").write_text("no folder")

    with refused("NotWritable", match="Cannot create"):
        kept_files().save("packs/7.zip", ContentFile(b"x"))
    assert not health.check_files().is_well


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("s3://lab-files", {"bucket_name": "lab-files", "location": ""}),
        ("s3://lab.files/kg/one/", {"bucket_name": "lab.files", "location": "kg/one"}),
        (
            "s3://lab-files/a%20b?endpoint=https://minio.example.org:9000&region=eu-west-1&profile=minio",
            {
                "bucket_name": "lab-files",
                "location": "a b",
                "endpoint_url": "https://minio.example.org:9000",
                "region_name": "eu-west-1",
                "session_profile": "minio",
            },
        ),
    ],
)
def test_store_address_sets_bucket_prefix_and_endpoint(address, options, monkeypatch, tmp_path):
    monkeypatch.setenv("KGHARVEST_FILES", address)

    assert file_storage("KGHARVEST_FILES", tmp_path)["OPTIONS"] == options


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("/var/files", "starts with ''"),
        ("https://lab-files.s3.amazonaws.com/kg", "starts with 'https'"),
        ("s3:///kg", "bucket name ''"),
        ("s3://Lab_Files/kg", "bucket name 'Lab_Files'"),
        ("s3://key:secret@lab-files/kg", "AWS_ACCESS_KEY_ID"),
        ("s3://lab-files/../kg", "the invalid prefix"),
        ("s3://lab-files/a//b", "the invalid prefix"),
        ("s3://lab-files/kg#top", "the invalid prefix"),
        ("s3://lab-files/kg?acl=public-read", "the unknown option 'acl'"),
        ("s3://lab-files/kg?endpoint=minio:9000", "an invalid endpoint"),
        ("s3://lab-files/kg?endpoint=https://key@minio", "an invalid endpoint"),
        ("s3://lab-files/kg?endpoint=https://minio:http", "is invalid ("),
        ("s3://lab-files/kg?region=", "an option without a value"),
        ("s3://lab-files/kg?region", "is invalid ("),
        ("s3://[lab-files/kg", "is invalid ("),
    ],
)
def test_invalid_store_addresses_are_rejected_with_a_message(address, reason, monkeypatch, tmp_path):
    monkeypatch.setenv("KGHARVEST_FILES", address)

    with pytest.raises(ImproperlyConfigured, match=r"^KGHARVEST_FILES .*[.]$") as refused:
        file_storage("KGHARVEST_FILES", tmp_path)

    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
