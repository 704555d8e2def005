"""Migration of uploads from the app `kgharvest` to `knowledge_graphs` keeps their table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from kgharvest.models import Project
from tests import factories
from tests.database_copies import KeptState, remove_tables
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # tests/test_upgrade.py also covers these migrations

OLD = [
    ("auth", "0012_alter_user_first_name_max_length"),
    ("kgharvest", "0033_wake_only_messages"),
    ("knowledge_graphs", None),
]
CORE_ALONE = [("kgharvest", "0034_uploads_to_knowledge_graphs")]
MOVED = [*CORE_ALONE, ("knowledge_graphs", "0001_uploads_from_kgharvest")]
NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
CONTENT = bytes(range(256))


def migrate(targets) -> None:
    MigrationExecutor(connection).migrate(targets)


def enter_old_state() -> None:
    """Create an empty database at the migration state OLD."""
    remove_tables()
    migrate(OLD)


@pytest.fixture(scope="module")
def old_database(shared_folder) -> KeptState:
    return KeptState(enter_old_state, shared_folder / "before-knowledge-graphs.sqlite3")


@pytest.fixture
def old_rows(transactional_db, old_database):
    """Yield the rows of a database before the move: three uploads and a user with a permission for them."""
    old_database.enter()
    apps = MigrationExecutor(connection).loader.project_state(OLD[:2]).apps
    user = apps.get_model("auth", "User").objects.create(username="ada")
    project = apps.get_model("kgharvest", "Project").objects.create(name="Demo", slug="demo")
    for number in range(3):
        apps.get_model("kgharvest", "UploadedKG").objects.create(
            project=project,
            uploaded_by=user,
            uploaded_at=NOW,
            system=f"GPTKB {number}",
            file_name="kg ☃.tsv",
            file_format="tsv",
            content=CONTENT,
            labels=CONTENT[::-1] if number else None,
        )
    content_types = apps.get_model("contenttypes", "ContentType").objects
    content_types.filter(model="uploadedkg").delete()
    permission = apps.get_model("auth", "Permission").objects.create(
        content_type=content_types.create(app_label="kgharvest", model="uploadedkg"),
        codename="change_uploadedkg",
        name="Can change uploaded kg",
    )
    user.user_permissions.add(permission)
    yield rows_by_table()
    if connection.vendor != "sqlite":  # SQLite is restored after each test
        call_command("migrate", verbosity=0)


def rows_by_table() -> dict[str, list[tuple]]:
    """Return all rows except the list of applied migrations."""
    rows = {}
    with connection.cursor() as cursor:
        for table in set(connection.introspection.table_names(cursor)) - {"django_migrations"}:
            cursor.execute(f'SELECT * FROM "{table}" ORDER BY 1')
            rows[table] = cursor.fetchall()
    return rows


def test_migration_changes_only_the_content_type_and_reverses_it(old_rows):
    migrate(CORE_ALONE)
    assert rows_by_table() == old_rows

    migrate(MOVED)
    [(pk, *_)] = [row for row in old_rows["django_content_type"] if row[1:] == ("kgharvest", "uploadedkg")]
    others = [row for row in old_rows["django_content_type"] if row[0] != pk]
    types = sorted([*others, (pk, "knowledge_graphs", "uploadedkg")])
    assert rows_by_table() == {**old_rows, "django_content_type": types}

    migrate(OLD)
    assert rows_by_table() == old_rows


def test_app_reads_uploads_and_permissions_after_the_move(old_rows):
    call_command("migrate", verbosity=0)

    assert [bytes(upload.content) for upload in UploadedKG.objects.all()] == [CONTENT] * 3
    uploads = UploadedKG.objects.order_by("pk").values_list("system", "uploaded_by__username", "uploaded_at")
    assert [*uploads] == [(f"GPTKB {number}", "ada", NOW) for number in range(3)]
    assert [*ContentType.objects.filter(model="uploadedkg").values_list("app_label", flat=True)] == ["knowledge_graphs"]
    assert Permission.objects.filter(codename="change_uploadedkg").count() == 1
    assert User.objects.get(username="ada").has_perm("knowledge_graphs.change_uploadedkg")
    new = UploadedKG.objects.create(
        project=Project.objects.get(slug="demo"), uploaded_by=factories.make_user(), uploaded_at=NOW, content=b""
    )
    assert new.pk == UploadedKG.objects.latest("pk").pk
    User.objects.get(username="ada").delete()
    assert UploadedKG.objects.get() == new


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
