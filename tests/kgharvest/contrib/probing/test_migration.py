"""Migration of probes from the app `evaluation` to `probing` preserves every row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import ProtectedError

from kgharvest.contrib.probing.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord
from kgharvest.contrib.probing.probes.services import document_of
from kgharvest.models import Job, LanguageModel
from tests.database_copies import KeptState, remove_tables
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # tests/test_upgrade.py also covers these migrations

OLD = [
    ("kgharvest", "0007_worker_processes"),
    ("annotation", "0007_lists_of_statements"),
    ("evaluation", "0006_probe_vocabulary"),
    ("probing", None),
]
MOVED = [("evaluation", "0007_probes_to_probing"), ("probing", "0001_probes_from_evaluation")]
TABLES = ("probe", "probedrelation", "proberecord", "learnedprompt")
OLD_TABLES = {f"evaluation_{table}" for table in TABLES}
BOOKKEEPING = {"django_migrations", "sqlite_sequence"}
NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def migrate(targets) -> None:
    MigrationExecutor(connection).migrate(targets)


def migrate_back(targets) -> None:
    """Create an empty database at the migration state `targets`."""
    remove_tables()
    migrate(targets)


def historical_apps() -> Any:
    """Return the app registry with the historical models that match the database."""
    loader = MigrationExecutor(connection).loader
    return loader.project_state([key for key in loader.applied_migrations if key in loader.graph.nodes]).apps


def migrate_to_today() -> None:
    migrate(MigrationExecutor(connection).loader.graph.leaf_nodes())


@pytest.fixture(scope="module")
def old_database(shared_folder) -> KeptState:
    return KeptState(lambda: migrate_back(OLD), shared_folder / "before-probing.sqlite3")


@pytest.fixture
def old_apps(transactional_db, old_database):
    """Yield the historical apps of an empty database with probes in `evaluation`; migrate forward afterwards."""
    old_database.enter()
    yield historical_apps()
    if connection.vendor != "sqlite":  # SQLite is restored after each test
        migrate_to_today()


def fill(apps) -> None:
    """Create rows in the four probe tables and in related tables; every probe column has a value."""
    user = apps.get_model("auth", "User").objects.create(username="ada")
    lm = apps.get_model("kgharvest", "LanguageModel").objects.create(name="bert", revision="abc")
    fill_related_tables(apps, user, lm)
    for number in range(2):
        probe = apps.get_model("evaluation", "Probe").objects.create(
            kind="probe",
            status="succeeded",
            payload={"seed": number, "iterations": 6, "epochs": 2, "with_control": True, "device": "cpu"},
            stage="soft, capital_of",
            done=4,
            total=4,
            attempts=1,
            error="none ☃",
            created_by=user,
            started_at=NOW,
            finished_at=NOW,
            language_model=lm,
            name=f"demo {number}",
            methods=["manual", "soft"],
            facts="world",
            revision="abc",
            code_version="0.1.0+abc",
            vocabulary="1,234 words",
            document={"summary": [{"method": "manual", "p1": 0.1 + 0.2}], "faults": {}},
        )
        for name, relation_type in {"capital_of": "1-1", "made_of": "N-M"}.items():
            fill_relation(apps, probe, name, relation_type)


def fill_related_tables(apps, user, lm) -> None:
    """Create a harvest, a score evaluation, and a round with a report."""
    relation_set = apps.get_model("kgharvest", "RelationSet").objects.create(name="demo")
    relation = apps.get_model("kgharvest", "Relation").objects.create(
        relation_set=relation_set,
        name="capital_of",
        arity=2,
        statement="<ENT0> of <ENT1>",
        initial_prompts=["a"],
        seed_tuples=[],
    )
    apps.get_model("kgharvest", "HarvestJob").objects.create(
        kind="harvest", relation=relation, language_model=lm, setting="multi"
    )
    apps.get_model("evaluation", "ScoreEvaluation").objects.create(
        kind="evaluate_scores", language_model=lm, document={"relations": []}
    )
    study = apps.get_model("annotation", "Study").objects.create(name="shared")
    a_round = apps.get_model("annotation", "Round").objects.create(study=study, name="pilot", status="closed")
    apps.get_model("evaluation", "Report").objects.create(
        round=a_round, document={"n_tasks": 3}, method="", code_version="0.1.0", created_by=user, created_at=NOW
    )


def fill_relation(apps, probe, name: str, relation_type: str) -> None:
    relation = apps.get_model("evaluation", "ProbedRelation").objects.create(
        probe=probe,
        name=name,
        type=relation_type,
        prompts=["<ENT0> of <ENT1> ."],
        facts={part: [[f"{part} a", "b"]] for part in ("train", "dev", "test")},
        fault="soft: no word.",
    )
    for method, is_control in [("manual", False), ("manual", True), ("soft", False)]:
        record = apps.get_model("evaluation", "ProbeRecord").objects.create(
            relation=relation,
            method=method,
            is_control=is_control,
            n_train=8,
            n_dev=4,
            n_test=10,
            left_out={"train": {}, "dev": {}, "test": {"object of several tokens": 1}},
            p1=0.1 + 0.2,
            p10=0.8,
            mrr=0.6,
            nll=1.0 / 3,
            dev_nll=1.1,
            n_prompts=1,
            effective_prompts=1.5,
            n_parameters=2**40,
            forwards=60,
            seconds=2.25,
            combine="mixture",
            temperature=0.7,
        )
        apps.get_model("evaluation", "LearnedPrompt").objects.create(
            record=record,
            text="<ENT0> ‹of› <ENT1>",
            rewritten_from="before",
            weight=0.9,
            segments=[[101], [-1], [102]],
            slots=[0, 1],
            vectors=bytes(range(256)),
            nearest=[[["of", 0.02], ["in", 0.7]]],
        )


def rows_by_table() -> dict[str, list[tuple]]:
    """Return the column names and rows of every table. The id column is first; the rest are sorted by name."""
    rows = {}
    with connection.cursor() as cursor:
        for table in sorted(set(connection.introspection.table_names(cursor)) - BOOKKEEPING):
            names = [column.name for column in connection.introspection.get_table_description(cursor, table)]
            names.sort(key=lambda name: (name != "id", name))
            columns = ", ".join(map(connection.ops.quote_name, names))
            cursor.execute(f"SELECT {columns} FROM {connection.ops.quote_name(table)} ORDER BY 1")
            rows[table] = [tuple(names), *cursor.fetchall()]
    return rows


def test_every_row_survives_the_move_and_its_reversal(old_apps):
    fill(old_apps)
    before = rows_by_table()

    migrate(MOVED)

    after = rows_by_table()
    assert [len(before[f"evaluation_{table}"]) - 1 for table in TABLES] == [2, 4, 12, 12]
    for table in TABLES:
        assert after.pop(f"probing_{table}") == before[f"evaluation_{table}"]
    assert after == {table: rows for table, rows in before.items() if table not in OLD_TABLES}

    migrate(OLD)

    assert rows_by_table() == before


def test_current_models_read_moved_rows_under_the_same_constraints(old_apps):
    fill(old_apps)

    migrate_to_today()

    check_moved_rows()
    check_constraints()
    check_adding_and_deleting_rows()


def check_moved_rows() -> None:
    probe = Probe.objects.select_related("language_model", "created_by").get(name="demo 1")

    assert (probe.language_model.name, probe.created_by.username, probe.finished_at) == ("bert", "ada", NOW)
    assert probe.payload["seed"] == 1
    assert probe.document["summary"][0]["p1"] == 0.1 + 0.2
    assert [row["method"] for row in document_of(probe)["summary"]] == ["manual", "soft"]
    prompt = LearnedPrompt.objects.filter(record__relation__probe=probe).first()
    assert bytes(prompt.vectors) == bytes(range(256))
    assert prompt.record.n_parameters == 2**40


def is_rejected(change) -> bool:
    """Return True if the database rejects `change`, immediately or on commit."""
    try:
        with transaction.atomic():
            change()
    except IntegrityError:
        return True
    return False


def check_constraints() -> None:
    relation, record = ProbedRelation.objects.first(), ProbeRecord.objects.first()

    assert is_rejected(lambda: ProbedRelation.objects.filter(pk=relation.pk + 1).update(name=relation.name))
    assert is_rejected(lambda: ProbeRecord.objects.filter(pk=record.pk + 1).update(is_control=record.is_control))
    assert is_rejected(lambda: ProbeRecord.objects.filter(pk=record.pk).update(n_train=-1))
    assert is_rejected(lambda: ProbeRecord.objects.filter(pk=record.pk).update(relation_id=999))
    assert is_rejected(lambda: LearnedPrompt.objects.update(record_id=999))
    with pytest.raises(ProtectedError):
        LanguageModel.objects.get(name="bert").delete()


def check_adding_and_deleting_rows() -> None:
    probe = Probe.objects.get(name="demo 0")

    new = ProbedRelation.objects.create(probe=probe, name="new", type="1-1", prompts=[], facts={})
    Probe.objects.get(name="demo 1").delete()

    assert new.pk > ProbedRelation.objects.exclude(pk=new.pk).latest("pk").pk
    assert {relation.probe_id for relation in ProbedRelation.objects.all()} == {probe.pk}
    assert (ProbeRecord.objects.count(), LearnedPrompt.objects.count()) == (6, 6)
    assert Job.objects.filter(kind="probe").count() == 1


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
