"""Rows of uninstalled optional apps: skipped by audit checks; backed up, restored, and copied."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection

from annotation.judging.sealing import seal_judgments
from annotation.rounds.services import open_draft
from evaluation.reports.services import create_report
from tests import factories
from tests.kgharvest.contrib.publishing.preregistration.planning import freeze, make_draft, planned
from tests.kgharvest.test_settings import run_python
from tests.load.web_server import url_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

TABLE = "evaluation_preregistration"


def manage(folder: Path, url: str, *arguments: str, apps: str = "none") -> str:
    process = run_python(folder, "manage.py", *arguments, DATABASE_URL=url, DEBUG="1", KGHARVEST_CONTRIB=apps)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def url() -> str:
    """Return the URL of a database with a preregistered round and a report on it."""
    if connection.vendor != "sqlite":
        pytest.skip("reads files of SQLite")
    draft = make_draft()
    freeze(draft, planned())
    round = open_draft(draft)
    factories.judge_all(round, ["true"] * round.n_tasks)
    seal_judgments()
    create_report(round)
    return url_of(connection)


def rows_of(url: str) -> list[tuple]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        return database.execute(f"SELECT * FROM {TABLE}").fetchall()


def test_audit_skips_rows_of_uninstalled_apps(url, tmp_path):
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {TABLE} SET sha256 = 'another'")

    assert "Not checked: 1 of preregistration" in manage(tmp_path, url, "audit", "verify")


DELETE_DRAFT = """
import django
django.setup()
from annotation.models import Round
from annotation.rounds.services import delete_draft
from kgharvest.errors import DomainError
try:
    delete_draft(Round.objects.get(name="kept"))
except DomainError as refusal:
    print(refusal.code, refusal)
"""


def test_draft_with_rows_of_an_uninstalled_app_is_not_deleted(url, tmp_path):
    freeze(make_draft(name="kept"))

    process = run_python(tmp_path, "-c", DELETE_DRAFT, DATABASE_URL=url, DEBUG="1", KGHARVEST_CONTRIB="none")

    assert process.stdout.startswith("AppNotInstalled "), process.stderr
    assert "publishing" in process.stdout
    assert len(rows_of(url)) == 2


def test_backup_is_restored_with_and_without_the_app(url, tmp_path):
    backup, here = tmp_path / "backup.zip", tmp_path / "here"
    here.mkdir()

    output = manage(here, url, "backup", str(backup))
    assert "apps that are not installed: crawling, knowledge_graphs, probing, publishing, recruiting." in output

    for apps in ("none", "publishing"):
        folder = tmp_path / apps
        folder.mkdir()
        restored_url = f"sqlite:///{folder / 'kgharvest.sqlite3'}"
        assert "apps that are not installed: crawling, knowledge_graphs, probing" in manage(
            folder, restored_url, "restore", str(backup), apps=apps
        )
        assert rows_of(restored_url) == rows_of(url) != []
    assert "1 of preregistration" in manage(folder, restored_url, "audit", "verify", apps="publishing")


@pytest.mark.parametrize("is_migrated", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_database_copy_contains_rows_of_uninstalled_apps(url, tmp_path, migrated_database, is_migrated):
    copy = tmp_path / "copy.sqlite3"
    if is_migrated:
        shutil.copyfile(migrated_database, copy)
    copy_url = f"sqlite:///{copy}"

    manage(tmp_path, url, "copy_database", url, copy_url)

    assert rows_of(copy_url) == rows_of(url) != []
