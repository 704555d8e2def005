"""What all tests share. Factories are plain functions in tests/factories.py."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# A busy machine is no failure: Hypothesis gives an example 200 ms otherwise.
hypothesis.settings.register_profile("kgharvest", deadline=None)
hypothesis.settings.load_profile("kgharvest")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings, tmp_path_factory) -> None:
    """Test on a SQLite file, as in real use: an in-memory database neither waits for locks nor serves threads."""
    from django.conf import settings

    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        database["TEST"] = {
            **database.get("TEST", {}),
            "NAME": str(tmp_path_factory.mktemp("database") / "test.sqlite3"),
        }
        # No fsync: a power cut during a test run may cost the test database.
        database["OPTIONS"]["init_command"] += " PRAGMA synchronous=OFF;"


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of optional test data from public sources; the test is skipped where it is absent."""
    folder = Path(os.environ.get("KGHARVEST_TEST_DATA") or ROOT / ".." / "shared" / "data").resolve()
    if not folder.is_dir():
        pytest.skip(f"no public test data at {folder}; KGHARVEST_TEST_DATA names its folder")
    return folder


@pytest.fixture
def researcher(db):
    from tests.factories import make_researcher

    return make_researcher()


@pytest.fixture
def installation_owner(researcher):
    """The researcher, made a superuser: who may change what nobody or anybody made."""
    researcher.is_superuser = True
    researcher.save()
    return researcher


@pytest.fixture
def researcher_client(client, researcher):
    client.force_login(researcher)
    return client


@pytest.fixture
def enqueued(monkeypatch) -> list[int]:
    """The jobs that messages were sent for; nothing goes to a broker."""
    from kgharvest.jobs import ledger

    sent: list[int] = []
    monkeypatch.setattr(ledger, "_send", lambda job_id, kind: sent.append(job_id))
    monkeypatch.setattr(ledger.transaction, "on_commit", lambda call: call())
    return sent
