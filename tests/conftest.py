"""Fixtures and hooks for all tests. Factories are plain functions in tests/factories.py."""

from __future__ import annotations

import fcntl
import gc
import os
import re
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.database_copies import MigratedOnce, put_back

if TYPE_CHECKING:
    from tests.object_store import Store, StoreServer

ROOT = Path(__file__).resolve().parent.parent

# One test process per core uses the CPU fully; additional torch threads, here and in child processes, would only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: the default of 200 ms per example fails on a busy machine.
hypothesis.settings.register_profile("kgharvest", deadline=None, max_examples=30, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=300)

FIRST = ("browser", "slow")
TESTS_OF_CONTRIB = ROOT / "tests" / "kgharvest" / "contrib"
IMPORTED_APPS = re.compile(r"^ *from (?:tests\.)?kgharvest\.contrib\.(\w+)", re.MULTILINE)


def is_exhaustive(config: pytest.Config) -> bool:
    """Return True if `-m` names the marker `exhaustive`."""
    return "exhaustive" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("thorough" if is_exhaustive(config) else "kgharvest")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore folders of, and modules that import, optional apps that are not installed (KGHARVEST_CONTRIB)."""
    from django.conf import settings

    used = set()
    if collection_path.parent == TESTS_OF_CONTRIB and collection_path.is_dir():
        used = {collection_path.name}
    elif collection_path.suffix == ".py":
        used = set(IMPORTED_APPS.findall(collection_path.read_text()))
    return True if used - set(settings.CONTRIB_APPS) - {"__pycache__"} else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect in one process first. Other processes wait, because in a new clone each would compile all modules."""
    gc.disable()
    with open(__file__) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
            fcntl.flock(lock, fcntl.LOCK_UN)
        return (yield)


def pytest_collection_finish() -> None:
    """Exclude the million objects created by collection from later garbage collections."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect exhaustive tests unless `-m` names them, and start each process with its share of the slow tests.

    The order changes on SQLite only. Its database is restored after transactional tests (`django_db_setup`); on other
    databases, transactional tests must run last.
    """
    from django.conf import settings

    if not is_exhaustive(config):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("exhaustive")])
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    if settings.DATABASES["default"]["ENGINE"] == "kgharvest.sqlite":
        n_processes = config.workerinput["workercount"] if hasattr(config, "workerinput") else 1
        items[:] = dealt(items, n_processes)


def dealt(items: list[pytest.Item], n_processes: int) -> list[pytest.Item]:
    """Return the tests in an order whose equal parts, one per process, each start with some modules of FIRST."""
    first = dict.fromkeys(item for name in FIRST for item in items if item.get_closest_marker(name))
    rest = deque(item for item in items if item not in first)
    modules = [list(tests) for _, tests in groupby(first, key=lambda item: item.path)]
    order: list[pytest.Item] = []
    for number in range(n_processes):
        end = len(order) + (len(items) - len(order)) // (n_processes - number)
        order += chain.from_iterable(modules[number::n_processes])
        while len(order) < end and rest:
            order.append(rest.popleft())
    return [*order, *rest]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """Folder shared by all processes of this test run (see `made_once`)."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def migrated_once(shared_folder) -> MigratedOnce:
    """Database file that the first process of this test run migrates and the others copy."""
    return MigratedOnce(shared_folder)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings, migrated_once, tmp_path_factory) -> None:
    """Test on a SQLite file, as in real use: an in-memory database neither waits for locks nor serves threads."""
    from django.conf import settings

    database = settings.DATABASES["default"]
    if database["ENGINE"] == "kgharvest.sqlite":
        path = tmp_path_factory.mktemp("database") / "test.sqlite3"
        migrated_once.copy_to(path)
        database["TEST"] = {**database.get("TEST", {}), "NAME": str(path)}
        # No fsync: a power cut during a test run may cost the test database.
        database["OPTIONS"]["init_command"] += " PRAGMA synchronous=OFF;"


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb, django_db_modify_db_settings) -> bool:
    """Reuse the database that another process has migrated, if there is one."""
    from django.conf import settings

    name = settings.DATABASES["default"].get("TEST", {}).get("NAME")
    return django_db_keepdb or bool(name and Path(name).exists())


@pytest.fixture(scope="session", autouse=True)
def static_files_found_on_request() -> None:
    """Look up static files on request: listing all of them takes as long as a page."""
    from django.conf import settings

    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(scope="session", autouse=True)
def fast_passwords() -> None:
    """Hash passwords with MD5: Argon2 is slow by design."""
    from django.conf import settings

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *settings.PASSWORD_HASHERS]


@pytest.fixture(scope="session", autouse=True)
def audit_log_without_triggers() -> None:
    """Drop the triggers of the append-only event log, so that tests can empty it. One test covers the triggers."""
    from django.apps import apps
    from django.db.models.signals import post_migrate

    post_migrate.connect(_drop_audit_triggers, sender=apps.get_app_config("kgharvest"), weak=False)


def _drop_audit_triggers(**of_signal) -> None:
    from django.db import connection

    migration = import_module("kgharvest.migrations.0035_events")
    on_postgresql = [f"{name} ON kgharvest_auditentry" for name in ("event_is_append_only", "event_refuses_truncate")]
    triggers = {"sqlite": [*migration.ON_SQLITE], "postgresql": on_postgresql}
    if "kgharvest_auditentry" in connection.introspection.table_names():  # missing while tests reverse migrations
        with connection.cursor() as cursor:
            for trigger in triggers[connection.vendor]:
                cursor.execute(f"DROP TRIGGER IF EXISTS {trigger}")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker, migrated_once) -> Iterator[Path | None]:
    """Restore a copy of the migrated test database after each transactional test.

    Django would leave the tables empty, without the rows that migrations insert, so these tests could only run last.
    """
    from django.db import connection
    from django.test import TransactionTestCase

    database = connection.settings_dict
    if connection.vendor != "sqlite" or database["NAME"] != database["TEST"]["NAME"]:  # no test uses a database
        migrated_once.release()
        connection.execute_wrappers.append(_leave_isolation)
        yield None
        return
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patched:
        migrated_once.save()
        patched.setattr(TransactionTestCase, "_fixture_teardown", lambda of_test: put_back(migrated_once.path))
        yield migrated_once.path


@pytest.fixture(scope="module")
def module_rows(django_db_setup, django_db_blocker) -> Iterator[None]:
    """Let fixtures of scope `module` create rows. All tests of the module see them; their changes are rolled back.

    Tests use copies of the created objects. The module must not have transactional tests.
    """
    from django.db import transaction

    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


def _leave_isolation(execute, sql, params, many, context):
    """Skip SET TRANSACTION inside a test's transaction: PostgreSQL allows it only as the first statement.

    Transactional tests set the isolation level as in production.
    """
    if sql.startswith("SET TRANSACTION ISOLATION LEVEL") and context["connection"].savepoint_ids:
        return None
    return execute(sql, params, many, context)


@pytest.fixture(scope="session")
def migrated_database(django_db_setup, tmp_path_factory) -> Path:
    """Migrated SQLite file to copy."""
    if django_db_setup:
        return django_db_setup
    from tests.kgharvest.test_settings import run_python

    path = tmp_path_factory.mktemp("migrated") / "migrated.sqlite3"
    # In a separate process, as data migrations change the default database.
    done = run_python(path.parent, "manage.py", "migrate", DATABASE_URL=f"sqlite:///{path}", DEBUG="1")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session")
def public_data() -> Path:
    """Folder of optional public test data. Skips the test if it is missing."""
    folder = Path(os.environ.get("KGHARVEST_TEST_DATA") or ROOT / ".." / "shared" / "data").resolve()
    if not folder.is_dir():
        pytest.skip(f"no public test data in {folder}; set KGHARVEST_TEST_DATA to its folder")
    return folder


@pytest.fixture(autouse=True)
def reset_rate_limits() -> None:
    """Reset the request counters of the API's rate limits."""
    from django.core.cache import cache

    cache.clear()


@pytest.fixture
def researcher(db):
    from tests.factories import make_researcher

    return make_researcher()


@pytest.fixture
def installation_owner(researcher):
    """The researcher as a superuser, who can change the data of every user."""
    researcher.is_superuser = True
    researcher.save()
    return researcher


@pytest.fixture
def researcher_client(client, researcher):
    client.force_login(researcher)
    return client


@pytest.fixture
def enqueued(monkeypatch) -> list[int]:
    """Jobs that workers were woken for; no message is sent to a broker."""
    from kgharvest.jobs import ledger, messages

    jobs: list[int] = []
    monkeypatch.setattr(ledger, "wake_for", jobs.extend)
    monkeypatch.setattr(messages, "wake", lambda queue, request_id="": None)
    monkeypatch.setattr(ledger.transaction, "on_commit", lambda call: call())
    return jobs


@pytest.fixture
def woken(monkeypatch) -> list[str]:
    """Queues that received wake-up messages; no message is sent to a broker."""
    from kgharvest.jobs import ledger, messages

    queues: list[str] = []
    monkeypatch.setattr(messages, "wake", lambda queue, request_id="": queues.append(queue))
    monkeypatch.setattr(ledger.transaction, "on_commit", lambda call: call())
    return queues


@pytest.fixture(scope="module")
def store_server() -> Iterator[StoreServer]:
    """Local S3-compatible store that can be stopped and restarted."""
    from tests.object_store import serving_files

    with serving_files() as server:
        yield server


@pytest.fixture
def store(store_server, settings, monkeypatch, tmp_path) -> Iterator[Store]:
    """New bucket for stored files; the data of the host itself are in `tmp_path`."""
    from tests.object_store import store_on

    with store_on(store_server, settings, monkeypatch, tmp_path) as store:
        yield store
