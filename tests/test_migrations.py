"""Compatibility of migrations with the last release: docs/deployment.md, "Rules for migrations".

An update migrates first and then replaces web servers and workers one by one, so old code uses new tables for a while.
There are two checks: of the operations in each migration since the last release, and of the migrated database, with
the models of the last release.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.test.utils import CaptureQueriesContext

from kgharvest.bulk.indexes import AddIndex, RemoveIndex
from tests.kgharvest.old_release import upgraded_release
from tests.postgres import on_postgresql, run_on_postgresql

# The last migration of each app in the release that runs in production. Update with each release.
LAST_RELEASE = {
    "kgharvest": "0026_entity_tables",
    "annotation": "0030_questionnaire",
    "evaluation": "0013_score_samples",
    "probing": "0001_probes_from_evaluation",
}
needs_apps_of_last_release = pytest.mark.skipif(
    not all(apps.is_installed(f"kgharvest.contrib.{app}") or apps.is_installed(app) for app in LAST_RELEASE),
    reason="an app of the last release is not installed",
)
# Tables with a row per tuple, statement, or judgment.
LARGE = {
    "knowledgetuple", "entityoccurrence", "harvestedtuple", "stratum", "judgmenttask", "draw", "assignment", "judgment",
    "judgeanswer", "auditentry", "paperstatement",
}  # fmt: skip
REASON = "safe_while_the_last_release_runs"  # attribute of a migration: one sentence
MAY_CREATE_MODELS = (migrations.CreateModel, migrations.AlterModelOptions, migrations.AlterModelManagers)
LOOSENS = (migrations.RemoveConstraint, migrations.AlterModelTableComment)
NEVER = (migrations.RemoveField, migrations.DeleteModel, migrations.RenameField, migrations.RenameModel)


# Operations


def flattened_database_operations(operations: list[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from flattened_database_operations(operation.database_operations)
        else:
            yield operation


def has_value_for_old_code(field: models.Field) -> bool:
    """Return True if code that does not know the field can insert a row."""
    return field.many_to_many or field.null or field.db_default is not models.NOT_PROVIDED


def narrows(old: models.Field, new: models.Field) -> bool:
    """Return True if the column accepts fewer values than before, or changes its type."""
    old_length, new_length = old.max_length, new.max_length
    shrinks = new_length is not None and (old_length is None or new_length < old_length)
    another_type = old.get_internal_type() != new.get_internal_type()
    return shrinks or another_type or (old.null and not new.null) or (new.unique and not old.unique)


def fault_of(operation: Operation, app: str, state: ProjectState, is_atomic: bool) -> str:
    """Return how the operation breaks code of the last release, empty if it does not. state: before the operation."""
    model = getattr(operation, "model_name_lower", "")
    if isinstance(operation, (*MAY_CREATE_MODELS, *LOOSENS)):
        return ""
    if isinstance(operation, migrations.AddField):
        if not has_value_for_old_code(operation.field):
            return f"{operation.name} has no default in the database; set db_default or null=True"
        has_index = operation.field.db_index or operation.field.unique
        return f"{operation.name} has an index, which locks a large table" if model in LARGE and has_index else ""
    if isinstance(operation, migrations.AlterField):
        old = state.models[app, model].fields[operation.name]
        return f"{operation.name} accepts fewer values than before" if narrows(old, operation.field) else ""
    if isinstance(operation, (migrations.AddIndex, migrations.RemoveIndex)) and model in LARGE:
        if not isinstance(operation, (AddIndex, RemoveIndex)):
            return "it locks a large table; use AddIndex or RemoveIndex of kgharvest.bulk.indexes"
        return "its migration needs atomic = False" if is_atomic else ""
    if isinstance(operation, (migrations.AddIndex, migrations.RemoveIndex, migrations.RenameIndex)):
        return ""
    if isinstance(operation, NEVER):
        return "the last release uses it; remove it from the models in one release and from the database in the next"
    return f"explain in {REASON} why the operation is safe"  # AddConstraint, RunPython, RunSQL, ...


def faults_of(migration: migrations.Migration, state: ProjectState, created: set[tuple[str, str]]) -> list[str]:
    """Return the faults of `migration` that break the last release, and apply the migration to `state`.

    created: (app, model) of models created since the release, on which any operation is permitted. Updated.
    """
    app, faults = migration.app_label, []
    has_reason = bool(getattr(migration, REASON, ""))
    for operation in migration.operations:
        for step in flattened_database_operations([operation]):
            name = getattr(step, "model_name_lower", None) or getattr(step, "name_lower", "")
            if isinstance(step, migrations.CreateModel):
                created.add((app, name))
            if (app, name) in created:
                continue
            fault = fault_of(step, app, state, migration.atomic)
            if fault and (isinstance(step, NEVER) or not has_reason):
                faults.append(f"{app}.{migration.name}, {step.describe()}: {fault}")
        operation.state_forwards(app, state)
    return faults


def migrations_since_last_release(loader: MigrationLoader) -> tuple[ProjectState, list[migrations.Migration]]:
    """Return the models of the last release, and the migrations since then in order of application."""
    targets = list(LAST_RELEASE.items())
    state = loader.project_state(targets)
    released = {key for target in targets for key in loader.graph.forwards_plan(target)}
    plan = [
        key for app in LAST_RELEASE for leaf in loader.graph.leaf_nodes(app) for key in loader.graph.forwards_plan(leaf)
    ]
    newer = dict.fromkeys(key for key in plan if key not in released and key[0] in LAST_RELEASE)
    return state, [loader.graph.nodes[key] for key in newer]


@needs_apps_of_last_release
def test_new_migrations_are_compatible_with_the_last_release():
    state, newer = migrations_since_last_release(MigrationLoader(None))
    created: set[tuple[str, str]] = set()

    assert [fault for migration in newer for fault in faults_of(migration, state, created)] == []


def project_of(*names: str, **options: Any) -> ProjectState:
    """Return a project state with the models, each with a nullable `name` of ten characters."""
    state = ProjectState()
    for name in names:
        fields = [("id", models.BigAutoField(primary_key=True)), ("name", models.CharField(max_length=10, null=True))]
        migrations.CreateModel(name, fields, options).state_forwards("annotation", state)
    return state


def faults(*operations: Operation, reason: str = "", atomic: bool = True) -> list[str]:
    """Return the faults of a migration with `operations` in a project of two models, Draw (large) and Panel."""
    state = project_of("Draw", "Panel")
    migration = migrations.Migration("9999_example", "annotation")
    migration.operations, migration.atomic = list(operations), atomic
    setattr(migration, REASON, reason)
    return faults_of(migration, state, set())


PATH = models.Index(fields=["name"], name="draw_name")
ADDED = migrations.AddField("panel", "n", models.IntegerField(default=0))
BREAKING = {
    "a column without a database default": ADDED,
    "a deleted column": migrations.RemoveField("panel", "name"),
    "a renamed column": migrations.RenameField("panel", "name", "title"),
    "a deleted table": migrations.DeleteModel("Panel"),
    "a renamed table": migrations.RenameModel("Panel", "Board"),
    "a shortened column": migrations.AlterField("panel", "name", models.CharField(max_length=9, null=True)),
    "a column made required": migrations.AlterField("panel", "name", models.CharField(max_length=10)),
    "a column with a changed type": migrations.AlterField("panel", "name", models.IntegerField(null=True)),
    "a column made unique": migrations.AlterField(
        "panel", "name", models.CharField(max_length=10, null=True, unique=True)
    ),
    "a constraint": migrations.AddConstraint("panel", models.UniqueConstraint(fields=["name"], name="panel_name")),
    "SQL": migrations.RunSQL("SELECT 1"),
    "Python": migrations.RunPython(migrations.RunPython.noop),
    "a locking index of a large table": migrations.AddIndex("draw", PATH),
    "an indexed column of a large table": migrations.AddField(
        "draw", "n", models.IntegerField(null=True, db_index=True)
    ),
    "a nested operation": migrations.SeparateDatabaseAndState(database_operations=[ADDED]),
}


@pytest.mark.parametrize("operation", BREAKING.values(), ids=BREAKING)
def test_breaking_operation_is_rejected(operation):
    assert len(faults(operation)) == 1


@pytest.mark.parametrize(
    "operation",
    [
        migrations.CreateModel("Board", [("id", models.BigAutoField(primary_key=True)), ("n", models.IntegerField())]),
        migrations.AddField("panel", "n", models.IntegerField(null=True)),
        migrations.AddField("panel", "n", models.IntegerField(db_default=0)),
        migrations.AddIndex("panel", models.Index(fields=["name"], name="panel_name")),
        migrations.AlterField("panel", "name", models.CharField(max_length=20, null=True)),
        migrations.AlterField("panel", "name", models.CharField(max_length=10, null=True, help_text="seen")),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("panel", "name")]),
    ],
    ids=lambda operation: operation.describe(),
)
def test_additive_operation_is_accepted(operation):
    assert faults(operation) == []


def test_index_of_a_large_table_requires_a_non_atomic_migration():
    assert "atomic = False" in faults(AddIndex("draw", PATH))[0]
    assert faults(AddIndex("draw", PATH), atomic=False) == []


def test_reason_permits_sql_but_no_removal_of_a_field():
    reason = "Release 0.2 has neither read nor written the column."

    assert faults(migrations.RunSQL('ALTER TABLE "annotation_panel" DROP COLUMN "name"'), reason=reason) == []
    assert len(faults(migrations.RemoveField("panel", "name"), reason=reason)) == 1


# Database


def incompatibilities_of(model: type[models.Model]) -> list[str]:
    """Return the reasons why the model of an older release cannot read and write its current table."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        now = {column.name: column for column in connection.introspection.get_table_description(cursor, table)}
        numbered = {sequence["column"] for sequence in connection.introspection.get_sequences(cursor, table)}
    old_columns = {field.column for field in model._meta.local_concrete_fields}
    missing = [f"{table} has no {column}" for column in sorted(old_columns - now.keys())]
    refusing = [
        f"{table}.{name} requires a value"
        for name, column in now.items()
        if name not in old_columns | numbered and not column.null_ok and column.default is None
    ]
    return missing + refusing


@needs_apps_of_last_release
@pytest.mark.django_db(transaction=True)
def test_last_release_can_use_the_upgraded_database(shared_folder):
    upgraded_release(shared_folder).enter()
    state, _ = migrations_since_last_release(MigrationLoader(None))
    released = [model for app in LAST_RELEASE for model in state.apps.get_app_config(app).get_models()]

    assert len(released) > 60
    assert [reason for model in released for reason in incompatibilities_of(model)] == []


@pytest.mark.django_db
def test_incompatible_table_is_detected():
    state = project_of("Example")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE annotation_example (id bigint NOT NULL PRIMARY KEY, wanted integer NOT NULL,"
            " given integer DEFAULT 1 NOT NULL, free integer)"
        )

    reasons = incompatibilities_of(state.apps.get_model("annotation", "Example"))

    assert reasons == ["annotation_example has no name", "annotation_example.wanted requires a value"]


def test_indexes_of_large_tables_are_ordinary_on_sqlite():
    created = []
    editor = SimpleNamespace(
        connection=SimpleNamespace(vendor="sqlite", alias="default"),
        add_index=lambda model, index: created.append(index.name),
        remove_index=lambda model, index: created.remove(index.name),
    )
    without, with_index = (project_of("Draw", indexes=indexes) for indexes in ([], [PATH]))

    AddIndex("draw", PATH).database_forwards("annotation", editor, without, with_index)
    assert created == [PATH.name]

    RemoveIndex("draw", PATH.name).database_forwards("annotation", editor, with_index, without)
    assert created == []


@on_postgresql
def test_on_postgresql():
    done = run_on_postgresql(__file__)

    assert done.returncode == 0, done.stdout


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL creates indexes concurrently")
def test_indexes_of_large_tables_are_recreated_concurrently():
    index = models.Index(fields=["id"], name="draw_id_again")
    without, with_index = (project_of("Draw", indexes=indexes) for indexes in ([], [index]))

    def valid() -> list[bool]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('draw_id_again')")
            return [is_valid for (is_valid,) in cursor.fetchall()]

    with connection.cursor() as cursor, CaptureQueriesContext(connection) as queries:
        cursor.execute("SET lock_timeout = '3s'")
        for _ in range(2):
            with connection.schema_editor(atomic=False) as editor:
                AddIndex("draw", index).database_forwards("annotation", editor, without, with_index)
        assert valid() == [True]
        with connection.schema_editor(atomic=False) as editor:
            RemoveIndex("draw", index.name).database_forwards("annotation", editor, with_index, without)
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("3s",)
        cursor.execute("RESET lock_timeout")

    assert valid() == []
    changes = [query["sql"] for query in queries if " INDEX " in query["sql"]]
    assert len(changes) == 5
    assert all(" INDEX CONCURRENTLY " in change for change in changes)
