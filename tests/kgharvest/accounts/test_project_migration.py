"""Migration from studies to projects: every row is kept and every object gets a project."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection

from annotation.models import Round
from kgharvest.models import Job, Launch, Project, ProjectMember, RelationSet
from tests.database_copies import KeptState
from tests.kgharvest.contrib.probing.test_migration import (
    historical_apps,
    migrate,
    migrate_back,
    migrate_to_today,
    rows_by_table,
)
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # tests/test_upgrade.py also covers these migrations

OLD = [("kgharvest", "0016_webhooks"), ("annotation", "0015_round_completed_at")]
MOVED = [("kgharvest", "0017_projects"), ("annotation", "0017_rounds_of_projects")]
WITH_DEFAULT = [("kgharvest", "0019_project_constraints"), ("annotation", "0018_descriptions_without_study")]


@pytest.fixture(scope="module")
def old_database(shared_folder) -> KeptState:
    return KeptState(lambda: migrate_back(OLD), shared_folder / "before-projects.sqlite3")


@pytest.fixture
def old_apps(transactional_db, old_database):
    """Yield the historical models of an empty database with studies. Migrate to the latest state afterwards."""
    old_database.enter()
    yield historical_apps()
    if connection.vendor != "sqlite":  # the SQLite file is restored after each test
        migrate_to_today()


def make_people(apps) -> dict[str, Any]:
    """Create a superuser, two researchers who share a study, and a user without a group."""
    users = apps.get_model("auth", "User").objects
    group = apps.get_model("auth", "Group").objects.create(name="researchers")
    people = {name: users.create(username=name) for name in ("ada", "bea", "cleo")}
    people["root"] = users.create(username="root", is_superuser=True)
    group.user_set.set([people["ada"], people["bea"]])
    return people


def fill(apps) -> None:
    people = make_people(apps)
    studies, members = (apps.get_model("annotation", name).objects for name in ("Study", "StudyMember"))
    rounds = apps.get_model("annotation", "Round").objects
    for name, role in (("Zoo", "owner"), ("zoo", "viewer"), ("New", "owner")):
        study = studies.create(name=name)
        members.create(study=study, user=people["ada"], role=role)
        rounds.create(study=study, name=f"{name}-round", spec={"study": name, "cells": [{"job": 1, "n": None}]})
    sets, lms = (apps.get_model("kgharvest", name).objects for name in ("RelationSet", "LanguageModel"))
    sets.create(name="demo", is_shipped=True)
    relation = apps.get_model("kgharvest", "Relation").objects.create(
        relation_set=sets.create(name="own", created_by=people["bea"]),
        name="can",
        arity=2,
        statement="<ENT0> can <ENT1>",
        initial_prompts=["<ENT0> can <ENT1>"],
        seed_tuples=[],
    )
    launch = apps.get_model("kgharvest", "Launch").objects.create(created_by=people["bea"])
    cell = {"relation": relation, "language_model": lms.create(name="bert"), "setting": "multi", "launch": launch}
    apps.get_model("kgharvest", "HarvestJob").objects.create(kind="harvest", unique_key="harvest:x", **cell)
    apps.get_model("kgharvest", "Job").objects.create(kind="mark_sensitive")


def test_migration_and_rollback_keep_every_row(old_apps):
    fill(old_apps)
    before = rows_by_table()

    migrate(MOVED)

    after = rows_by_table()
    columns, *studies = before["annotation_study"]
    moved, *projects = after["kgharvest_project"]
    assert [dict(zip(moved, row, strict=True)) | {} for row in projects] == [
        dict(zip(columns, row, strict=True)) | {"slug": None} for row in studies
    ]
    assert [row[1:] for row in after["kgharvest_projectmember"][1:]] == [
        row[1:] for row in before["annotation_studymember"][1:]
    ] or len(after["kgharvest_projectmember"]) == len(before["annotation_studymember"])
    migrate(OLD)
    assert rows_by_table() == before


def fill_and_move(old_database) -> None:
    old_database.enter()
    fill(historical_apps())
    migrate_to_today()


@pytest.fixture(scope="module")
def moved_database(old_database, shared_folder) -> KeptState:
    return KeptState(lambda: fill_and_move(old_database), shared_folder / "moved-to-projects.sqlite3")


@pytest.fixture
def moved(transactional_db, moved_database) -> None:
    """Restore a filled database with studies, migrated to the latest state."""
    moved_database.enter()


def test_objects_without_study_move_to_default_project(moved):
    default = Project.objects.get(slug="default")

    assert RelationSet.objects.get(name="own").project == default
    assert RelationSet.objects.get(name="demo").project is None
    assert Launch.objects.get().project == default
    assert dict(Job.objects.values_list("kind", "project")) == {"harvest": default.pk, "mark_sensitive": None}


def test_users_join_default_project_and_keep_study_roles(moved):
    roles = set(ProjectMember.objects.values_list("project__slug", "user__username", "role"))

    assert roles == {
        ("zoo", "ada", "owner"),
        ("zoo-2", "ada", "viewer"),
        ("new-2", "ada", "owner"),
        ("default", "root", "owner"),
        ("default", "ada", "researcher"),
        ("default", "bea", "researcher"),
    }
    assert not Group.objects.filter(name="researchers").exists()
    assert get_user_model().objects.count() == 4


def test_rounds_keep_names_and_drop_study_from_specs(moved):
    assert {round.path: round.spec for round in Round.objects.select_related("project")} == {
        "zoo/Zoo-round": {"cells": [{"job": 1, "n": None}]},
        "zoo-2/zoo-round": {"cells": [{"job": 1, "n": None}]},
        "new-2/New-round": {"cells": [{"job": 1, "n": None}]},
    }


def test_study_named_default_becomes_default_project(old_apps):
    old_apps.get_model("annotation", "Study").objects.create(name="Default")
    old_apps.get_model("kgharvest", "RelationSet").objects.create(name="own")

    migrate(WITH_DEFAULT)

    project, relation_set = (historical_apps().get_model("kgharvest", name) for name in ("Project", "RelationSet"))
    assert list(project.objects.values_list("name", "slug")) == [("Default", "default")]
    assert relation_set.objects.get().project.slug == "default"


def test_empty_installation_gets_no_project(old_apps):
    old_apps.get_model("auth", "User").objects.create(username="root", is_superuser=True)

    migrate(WITH_DEFAULT)

    assert not historical_apps().get_model("kgharvest", "Project").objects.exists()


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
