"""Disk, file, and database errors: one sentence and exit status 1, without a traceback."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kgharvest.bulk.file_writing import write_atomically
from kgharvest.errors import DomainError, NotFound, fault_of_machine
from tests import factories
from tests.kgharvest.test_settings import run_python
from tests.refusals import refused

FULL = Path("/dev/full")
RELATIONS = '{"relation": "P%d", "template": "The capital of [X] is [Y] ."}\n'
needs_dev_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def test_domain_error_code_is_its_first_argument_or_class_name():
    error, subclass = DomainError("RoundNotOpen", "Round pilot is closed."), NotFound("No round pilot.")

    assert (error.code, str(error)) == ("RoundNotOpen", "Round pilot is closed.")
    assert (subclass.code, str(subclass)) == ("NotFound", "No round pilot.")
    assert pickle.loads(pickle.dumps(error)).code == error.code


def test_bug_is_not_a_machine_fault():
    assert fault_of_machine(ValueError("odd")) is None


@needs_dev_full
def test_full_disk_is_reported():
    with pytest.raises(OSError) as full, FULL.open("w") as file:  # noqa: PT011 - the error of the operating system
        file.write("a")

    assert fault_of_machine(full.value) == "The disk is full. Free disk space and try again."


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "tuples.jsonl").write_text("old")
    monkeypatch.setattr("os.fsync", lambda descriptor: FULL.write_text("a"))

    with refused("NotWritable", match=r"tuples\.jsonl cannot be written \(No space left on device\)"):
        write_atomically(tmp_path / "tuples.jsonl", ["new"])

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("tuples.jsonl", "old")]


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="tests error messages of SQLite")
@pytest.mark.parametrize(("pragma", "reason"), [("max_page_count=1", "full"), ("query_only=1", "readonly")])
def test_command_reports_an_unwritable_database(tmp_path, pragma, reason):
    (tmp_path / "capitals.jsonl").write_text("".join(RELATIONS % number for number in range(2_000)))
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {pragma}")

    try:
        with pytest.raises(CommandError, match=rf"Database error: .*{reason}.*\. Run python manage.py doct"):
            call_command("import_relations", tmp_path / "capitals.jsonl")
    finally:
        connection.connection.execute("PRAGMA query_only=0")
        connection.connection.execute("PRAGMA max_page_count=4294967294")


@pytest.mark.parametrize("folder", ["/proc/nowhere", __file__])
@pytest.mark.parametrize("command", ["doctor", "migrate"])
def test_unusable_data_folder_is_reported(tmp_path, command, folder):
    done = run_python(tmp_path, "manage.py", command, KGHARVEST_DATA_DIR=folder)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"Error: Cannot use the data folder ({folder}: ")


@pytest.mark.parametrize("command", [["doctor"], ["migrate"]])
def test_failure_to_open_the_database_is_reported(tmp_path, command):
    url = {"DATABASE_URL": "sqlite:////proc/kgharvest.sqlite3", "DEBUG": "1"}

    done = run_python(tmp_path, "manage.py", *command, **url)

    assert done.returncode == 1
    assert "unable to open database file" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_command_without_a_database_names_the_command_that_creates_it(tmp_path):
    done = run_python(tmp_path / "var", "manage.py", "export_relations", "demo")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "python manage.py migrate" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_invalid_database_file_is_reported(tmp_path):
    (tmp_path / "kgharvest.sqlite3").write_text("no database" * 1_000)

    done = run_python(tmp_path, "manage.py", "export_relations", "demo")

    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "file is not a database" in done.stderr


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"model": "m" * 501, "setting": "multi"}, "The LM name .* has 501 characters"),
        ({"model": "", "setting": "multi"}, "The LM name .* has 0 characters"),
        ({"model": "a\nb", "setting": "multi"}, "The LM name .* has a control character"),
        ({"model": "m", "setting": "s" * 31}, "The setting name .* has 31 characters"),
    ],
)
def test_invalid_lm_and_setting_names_are_reported(tmp_path, names, reason):
    (tmp_path / "tuples.jsonl").write_text('{"entities": ["dam", "flood"], "score": -1}\n')

    with pytest.raises(CommandError, match=reason):
        call_command("import_tuples", tmp_path / "tuples.jsonl", relation=factories.make_relation().path, **names)


@pytest.mark.django_db
@pytest.mark.parametrize("number", ["9" * 20, "9" * 5_000])
def test_job_with_an_oversized_number_is_not_found(number):
    with pytest.raises(CommandError, match=r"Harvest job 999\d* not found"):
        call_command("export_tuples", job=number)


@pytest.mark.django_db
def test_non_utf_8_argument_is_reported():
    with pytest.raises(CommandError, match="cannot be written as utf-8"):
        call_command("export_tuples", job="\udcff")


@pytest.mark.django_db
def test_overlong_revision_is_reported():
    with pytest.raises(CommandError, match=r"revision name .* has 101 characters"):
        call_command("harvest", model=["some/bert"], relation=[factories.make_relation().path], revision="r" * 101)
