"""Migration of panels and pay from the app `annotation` to `recruiting` keeps their tables."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from annotation.models import Round
from kgharvest.contrib.recruiting.models import Panel, PanelEvent, PayEntry, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.identifiers import decrypted, encrypted
from tests.database_copies import KeptState, remove_tables
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # tests/test_upgrade.py also covers these migrations

OLD = [
    ("auth", "0012_alter_user_first_name_max_length"),
    ("annotation", "0034_submission_browser"),
    ("recruiting", None),
]
CORE_ALONE = [("annotation", "0035_panels_to_recruiting")]
MOVED = [*CORE_ALONE, ("recruiting", "0001_panels_from_annotation")]
MODELS = {"panel", "submission", "panelevent", "platformcommand", "payentry"}
NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)


def migrate(targets) -> None:
    MigrationExecutor(connection).migrate(targets)


def enter_old_state() -> None:
    """Create an empty database at the migration state OLD."""
    remove_tables()
    migrate(OLD)


@pytest.fixture(scope="module")
def old_database(shared_folder) -> KeptState:
    return KeptState(enter_old_state, shared_folder / "before-recruiting.sqlite3")


@pytest.fixture
def old_rows(transactional_db, old_database):
    """Yield the rows of a database before the move: two submissions with commands, pay, and an event."""
    old_database.enter()
    apps = MigrationExecutor(connection).loader.project_state(OLD[:2]).apps

    def create(name: str, app: str = "annotation", /, **fields):
        return apps.get_model(app, name).objects.create(**fields)

    user = create("User", "auth", username="ada")
    project = create("Project", "kgharvest", name="Demo", slug="demo")
    round = create("Round", project=project, name="pilot", status="open")
    panel = create(
        "Panel", round=round, name="main", token="TOKEN", created_by=user, platform_options={"age": [18, 99]}
    )
    event = create("PanelEvent", platform="prolific", event_id="event-1", body=encrypted("{}"))
    for number in range(2):
        annotator = create("Annotator", round=round, code=f"a-{number}")
        submission = create(
            "Submission",
            panel=panel,
            annotator=annotator,
            participant=encrypted(f"person-{number}"),
            participant_digest=f"digest-{number}",
            session_digest=f"session-{number}",
            entered_at=NOW,
        )
        command = create("PlatformCommand", submission=submission, kind="bonus", key="bonus:1", amount=100)
        pay = {"panel": panel, "submission": submission, "purpose": "bonus", "key": "bonus:1", "amount": 100}
        create("PayEntry", **pay, side="owed", reason="Thanks.", event=event, command=command, by=user)
    types = apps.get_model("contenttypes", "ContentType").objects
    types.filter(model__in=MODELS).delete()
    for model in sorted(MODELS):
        permission = create(
            "Permission",
            "auth",
            content_type=types.create(app_label="annotation", model=model),
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
    migrate(CORE_ALONE)
    assert rows_by_table() == old_rows

    migrate(MOVED)
    types = [
        (pk, "recruiting" if model in MODELS else app, model) for pk, app, model in old_rows["django_content_type"]
    ]
    assert rows_by_table() == {**old_rows, "django_content_type": types}

    migrate(OLD)
    assert rows_by_table() == old_rows


def test_app_reads_rows_and_permissions_after_the_move(old_rows):
    call_command("migrate", verbosity=0)

    panel = Round.objects.get(name="pilot").panels.get()
    assert (panel.name, panel.token, panel.created_by.username) == ("main", "TOKEN", "ada")
    assert panel.platform_options == {"age": [18, 99]}
    submissions = panel.submissions.order_by("pk")
    assert [submission.participant_id for submission in submissions] == ["person-0", "person-1"]
    assert [submission.annotator.code for submission in submissions] == ["a-0", "a-1"]
    assert PanelEvent.objects.get().text == decrypted(encrypted("{}"))
    assert [*PlatformCommand.objects.values_list("submission", "amount")] == [(pk, 100) for pk in pks(submissions)]
    entries = PayEntry.objects.values_list("submission", "command__submission", "event__event_id", "by__username")
    assert [*entries] == [(pk, pk, "event-1", "ada") for pk in pks(submissions)]
    assert {*ContentType.objects.filter(model__in=MODELS).values_list("app_label", flat=True)} == {"recruiting"}
    assert Permission.objects.filter(codename__in=[f"change_{model}" for model in MODELS]).count() == len(MODELS)
    assert User.objects.get(username="ada").has_perms(f"recruiting.change_{model}" for model in MODELS)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        PayEntry.objects.update(amount=1)  # the append-only trigger still applies
    new = Submission.objects.create(panel=panel, participant_digest="x", session_digest="x", entered_at=NOW)
    assert new.pk == Submission.objects.latest("pk").pk
    assert Panel.objects.count() == 1


def pks(rows) -> list[int]:
    return [row.pk for row in rows]


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
