"""Migration of preregistrations, statements, and packs from `evaluation` to `publishing`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from kgharvest.contrib.publishing.models import PaperPack, PaperStatement, Preregistration
from tests.database_copies import KeptState, remove_tables
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # tests/test_upgrade.py also covers these migrations

OLD = [
    ("auth", "0012_alter_user_first_name_max_length"),
    ("annotation", "0030_questionnaire"),
    ("evaluation", "0013_score_samples"),
    ("publishing", None),
]
CORE_ALONE = [("evaluation", "0014_papers_to_publishing")]
MOVED = [*CORE_ALONE, ("publishing", "0001_papers_from_evaluation")]
MODELS = ("paperpack", "paperstatement", "preregistration")
NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def migrate(targets) -> None:
    MigrationExecutor(connection).migrate(targets)


def enter_old_state() -> None:
    """Create an empty database at the migration state OLD."""
    remove_tables()
    migrate(OLD)


@pytest.fixture(scope="module")
def old_database(shared_folder) -> KeptState:
    return KeptState(enter_old_state, shared_folder / "before-publishing.sqlite3")


@pytest.fixture
def old_rows(transactional_db, old_database):
    """Yield the rows of a database before the move: two rows per model and a user with permissions."""
    old_database.enter()
    apps = MigrationExecutor(connection).loader.project_state(OLD[:3]).apps
    user = apps.get_model("auth", "User").objects.create(username="ada")
    project = apps.get_model("kgharvest", "Project").objects.create(name="Demo", slug="demo")
    round = apps.get_model("annotation", "Round").objects.create(project=project, name="pilot", status="closed")
    report = apps.get_model("evaluation", "Report").objects.create(
        round=round, document={"n_tasks": 3}, method="", code_version="0.1.0", created_by=user, created_at=NOW
    )
    for number in range(2):
        apps.get_model("evaluation", "Preregistration").objects.create(
            round=round,
            version=number + 1,
            document={"plan": {"analysis": "As usual ☃."}},
            sha256=f"{number}" * 64,
            created_by=user,
            frozen_at=NOW,
        )
        apps.get_model("evaluation", "PaperStatement").objects.create(
            round=round, key=f"languages-{number}", text="English", changed_by=user
        )
        apps.get_model("evaluation", "PaperPack").objects.create(
            kind="pack", status="succeeded", project=project, report=report, sha256="a" * 64, n_bytes=2**40
        )
    for model in MODELS:
        apps.get_model("contenttypes", "ContentType").objects.filter(model=model).delete()
        permission = apps.get_model("auth", "Permission").objects.create(
            content_type=apps.get_model("contenttypes", "ContentType").objects.create(
                app_label="evaluation", model=model
            ),
            codename=f"change_{model}",
            name=f"Can change {model}",
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


def test_migration_changes_only_content_types_and_reverses_them(old_rows):
    assert [len(old_rows[f"evaluation_{model}"]) for model in MODELS] == [2, 2, 2]

    migrate(CORE_ALONE)
    assert rows_by_table() == old_rows

    migrate(MOVED)
    types = [
        (pk, "publishing" if model in MODELS else app, model) for pk, app, model in old_rows["django_content_type"]
    ]
    assert rows_by_table() == {**old_rows, "django_content_type": types}

    migrate(OLD)
    assert rows_by_table() == old_rows


def test_app_reads_rows_and_permissions_after_the_move(old_rows):
    call_command("migrate", verbosity=0)

    assert [*Preregistration.objects.values_list("version", "document", "frozen_at", "round__name")] == [
        (version, {"plan": {"analysis": "As usual ☃."}}, NOW, "pilot") for version in (2, 1)
    ]
    assert [*PaperStatement.objects.values_list("key", "text", "changed_by__username")] == [
        (f"languages-{number}", "English", "ada") for number in range(2)
    ]
    assert [*PaperPack.objects.values_list("sha256", "n_bytes", "report__round__name")] == [
        ("a" * 64, 2**40, "pilot")
    ] * 2
    for model in MODELS:
        assert [*ContentType.objects.filter(model=model).values_list("app_label", flat=True)] == ["publishing"]
        assert Permission.objects.filter(codename=f"change_{model}").count() == 1
        assert User.objects.get(username="ada").has_perm(f"publishing.change_{model}")


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
