"""Rows of optional apps that are not installed: not checked, backed up, restored and copied."""

from __future__ import annotations

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
    done = run_python(folder, "manage.py", *arguments, DATABASE_URL=url, DEBUG="1", KGHARVEST_CONTRIB=apps)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def url() -> str:
    """The address of a database with a preregistered round and a report on it."""
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


def test_audited_rows_of_an_app_that_is_not_installed_are_not_checked(url, tmp_path):
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


def test_a_draft_with_rows_of_an_app_that_is_not_installed_is_not_deleted(url, tmp_path):
    freeze(make_draft(name="kept"))

    done = run_python(tmp_path, "-c", DELETE_DRAFT, DATABASE_URL=url, DEBUG="1", KGHARVEST_CONTRIB="none")

    assert done.stdout.startswith("AppNotInstalled "), done.stderr
    assert "publishing" in done.stdout
    assert len(rows_of(url)) == 2


def test_a_backup_has_the_rows_and_is_restored_with_and_without_the_app(url, tmp_path):
    backup, here = tmp_path / "backup.zip", tmp_path / "here"
    here.mkdir()

    said = manage(here, url, "backup", str(backup))
    assert "apps that are not installed: knowledge_graphs, probing, publishing, recruiting." in said

    for apps in ("none", "publishing"):
        folder = tmp_path / apps
        folder.mkdir()
        restored = f"sqlite:///{folder / 'kgharvest.sqlite3'}"
        assert "apps that are not installed: knowledge_graphs, probing" in manage(
            folder, restored, "restore", str(backup), apps=apps
        )
        assert rows_of(restored) == rows_of(url) != []
    assert "1 of preregistration" in manage(folder, restored, "audit", "verify", apps="publishing")


def test_a_copy_of_the_database_has_the_rows(url, tmp_path):
    copied = f"sqlite:///{tmp_path / 'copy.sqlite3'}"

    manage(tmp_path, url, "copy_database", url, copied)

    assert rows_of(copied) == rows_of(url) != []
