"""Upload of judged KGs and replication packages to a local fake of the Hugging Face Hub."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from django.core.management import CommandError, call_command

from kgharvest.contrib.publishing.hub_upload import DataSet, read_data_set, upload
from kgharvest.contrib.publishing.packs.archive import PackFile, sums_of
from kgharvest.errors import DomainError
from tests.kgharvest.contrib.publishing.fake_hub import TOKEN, FakeHub, Repository, serving

ROOT = Path(__file__).resolve().parents[4]
REPOSITORY = "lab/pilot"
PARQUET = "data/train-00000-of-00001.parquet"
CARD = """---
pretty_name: "Judged tuples of the round pilot"
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---
# Judged tuples
"""


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)  # the fake has LFS storage
    with serving(FakeHub()) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def judged_kg(tmp_path) -> Path:
    """Folder as written by `export_kg --format hf`."""
    folder = tmp_path / "judged-kg"
    (folder / "data").mkdir(parents=True)
    (folder / PARQUET).write_bytes(b"PAR1 rows PAR1")
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture
def pack(tmp_path) -> Path:
    """ZIP file as written by `pack`."""
    files = [
        PackFile("README.md", b"---\npretty_name: Pilot\n---\n# Pilot\n", "text/markdown", "card"),
        PackFile("rows/judgments.parquet", b"PAR1 judgments PAR1", "", ""),
        PackFile("report.json", b"{}", "application/json", "report"),
    ]
    path = tmp_path / "pack.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in [*files, sums_of(files)]:
            archive.writestr(file.path, file.content)
    return path


def contents_on(hub, branch="main", repository=REPOSITORY):
    return {name: b for name, b in hub.repositories[repository].branches[branch].items() if name != ".gitattributes"}


def code_of(path: Path, *options, repository=REPOSITORY, **more) -> str:
    with pytest.raises(DomainError) as caught:
        upload(read_data_set(path), repository, *options, **more)
    return caught.value.code


def test_judged_kg_becomes_a_private_data_set_in_one_commit(hub, judged_kg, capsys):
    call_command("push", judged_kg, repo=REPOSITORY)

    assert contents_on(hub) == read_data_set(judged_kg).contents
    assert hub.repositories[REPOSITORY].is_private
    assert hub.repositories[REPOSITORY].commits == ["Upload Judged tuples of the round pilot"]
    assert f"{hub.url}/datasets/{REPOSITORY} (private)" in capsys.readouterr().out


def test_package_is_uploaded_from_its_zip_file(hub, pack):
    upload(read_data_set(pack), REPOSITORY)

    assert sorted(contents_on(hub)) == ["README.md", "SHA256SUMS", "report.json", "rows/judgments.parquet"]


def test_new_repository_is_public_only_on_request(hub, judged_kg):
    assert not upload(read_data_set(judged_kg), REPOSITORY, is_public=True).is_private
    assert not hub.repositories[REPOSITORY].is_private


def test_branch_is_created_and_main_is_unchanged(hub, judged_kg):
    upload(read_data_set(judged_kg), REPOSITORY, "v2")
    upload(read_data_set(judged_kg), REPOSITORY, "v2")

    assert contents_on(hub, "v2") == read_data_set(judged_kg).contents
    assert contents_on(hub) == {}
    assert len(hub.repositories[REPOSITORY].commits) == 1


def test_upload_of_unchanged_files_creates_no_commit(hub, judged_kg):
    first = upload(read_data_set(judged_kg), REPOSITORY)
    second = upload(read_data_set(judged_kg), REPOSITORY)

    assert second.commit == first.commit
    assert len(hub.repositories[REPOSITORY].commits) == 1


def test_second_attempt_sends_only_missing_content_and_commits_once(hub, tmp_path):
    contents = {f"rows/{number}.parquet": b"%d" % number for number in range(3)}
    data_set = DataSet("Pilot", {"README.md": CARD.encode(), **contents})
    hub.failures = {r"PUT /storage/6b86b2": 400}  # SHA-256 of b"1"

    with pytest.raises(DomainError) as caught:
        upload(data_set, REPOSITORY)
    assert caught.value.code == "HubFailed"
    assert hub.repositories[REPOSITORY].commits == []
    stored, hub.requests = len(hub.stored), []
    assert stored == 2

    upload(data_set, REPOSITORY)

    assert sum(line.startswith("PUT") for line in hub.requests) == 1
    assert hub.repositories[REPOSITORY].commits == ["Upload Pilot"]
    assert contents_on(hub) == data_set.contents


def test_second_attempt_after_a_failed_commit_sends_no_content_again(hub, judged_kg):
    hub.failures = {r"/commit/main": 500}
    assert code_of(judged_kg) == "HubFailed"
    hub.requests = []

    upload(read_data_set(judged_kg), REPOSITORY)

    assert not any(line.startswith("PUT") for line in hub.requests)
    assert len(hub.repositories[REPOSITORY].commits) == 1


def test_existing_public_repository_needs_the_option(hub, judged_kg):
    hub.repositories[REPOSITORY] = Repository(is_private=False)

    assert code_of(judged_kg) == "PublicRepository"
    assert hub.repositories[REPOSITORY].commits == []
    assert not upload(read_data_set(judged_kg), REPOSITORY, is_public=True).is_private


def test_other_files_of_a_repository_are_deleted_only_on_request(hub, judged_kg):
    hub.repositories[REPOSITORY] = Repository(is_private=True)
    hub.repositories[REPOSITORY].branches["main"]["thesis.pdf"] = b"%PDF"

    assert code_of(judged_kg) == "OtherFiles"
    upload(read_data_set(judged_kg), REPOSITORY, is_replacing=True)

    assert contents_on(hub) == read_data_set(judged_kg).contents
    assert len(hub.repositories[REPOSITORY].commits) == 1


def test_token_is_required_before_any_request(hub, judged_kg, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "/nonexistent")

    assert code_of(judged_kg) == "NoToken"
    assert hub.requests == []


def test_invalid_token(hub, judged_kg, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_other")

    assert code_of(judged_kg) == "NotPermitted"


def test_repository_of_another_owner(hub, judged_kg):
    assert code_of(judged_kg, repository="others/pilot") == "NotPermitted"


@pytest.mark.parametrize("name", ["pilot", "lab/pi lot", "lab/pilot/x", "lab/--", ""])
def test_invalid_repository_names(hub, judged_kg, name):
    assert code_of(judged_kg, repository=name) == "BadRepository"
    assert hub.requests == []


def test_unreachable_hub(hub, judged_kg, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")

    assert code_of(judged_kg) == "HubUnreachable"


def test_private_files_in_a_judged_kg_are_not_uploaded(hub, judged_kg):
    (judged_kg / ".env").write_text("SECRET_KEY=x")

    assert code_of(judged_kg) == "NotADataSet"
    assert hub.requests == []


def test_private_and_altered_files_in_a_package_are_not_uploaded(hub, pack):
    with zipfile.ZipFile(pack, "a") as archive:
        archive.writestr("annotators.csv", "names")

    assert code_of(pack) == "NotADataSet"


def test_folders_of_other_origin_are_not_uploaded(hub, tmp_path):
    (tmp_path / "db.sqlite3").write_bytes(b"SQLite")

    assert code_of(tmp_path) == "NotADataSet"


@pytest.mark.parametrize("card", ["# No fields", "---\n: [\n---\n", "---\npretty_name: x\nconfigs: 5\n---\n", "---\n"])
def test_odd_cards(hub, judged_kg, card):
    (judged_kg / "README.md").write_text(card)

    assert code_of(judged_kg) == "NotADataSet"


def test_missing_path_is_named_by_the_command(tmp_path):
    with pytest.raises(CommandError, match="missing not found"):
        call_command("push", tmp_path / "missing", repo=REPOSITORY)


def test_dry_run_lists_files_without_token_or_request(hub, judged_kg, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")

    call_command("push", judged_kg, repo=REPOSITORY, dry_run=True)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[:-1]] == ["README.md", PARQUET]
    assert "(private)" in lines[-1]
    assert hub.requests == []


def test_command_takes_address_and_token_from_the_environment(hub, judged_kg):
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "DEBUG": "1"}
    command = [sys.executable, "manage.py", "push", judged_kg, "--repo", REPOSITORY]

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert contents_on(hub) == read_data_set(judged_kg).contents
    assert TOKEN not in done.stdout + done.stderr
