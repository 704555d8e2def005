"""Copying all data from one database to another. After an error, nothing is copied."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from annotation.models import Judgment, Label
from evaluation.reports.services import create_report
from kgharvest.contrib.probing.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord
from kgharvest.models import KnowledgeTuple
from kgharvest.operations import database_transfer
from kgharvest.operations.database_transfer import copy_database
from tests.database_copies import put_back
from tests.every_model import make_row_of_every_model, models_in_order
from tests.factories import judge, judge_all, make_language_model, make_researcher, make_round
from tests.load.web_server import url_of
from tests.postgres import on_postgresql, run_on_postgresql
from tests.refusals import refused

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def destination(tmp_path, migrated_database) -> Path:
    """Migrated SQLite database without data."""
    path = tmp_path / "destination.sqlite3"
    shutil.copyfile(migrated_database, path)
    return path


@pytest.fixture
def study():
    """Judged round with a report, a superseded judgment, and a learned prompt with binary and float values."""
    round = make_round([("Zürich", "größer 😀"), ('say "hi"', "a\\b"), ("head", "tail")])
    annotators = judge_all(round, *[[Label.TRUE, Label.FALSE, Label.UNJUDGEABLE]] * 3)
    first = Judgment.objects.filter(annotator=annotators[0]).first()
    judge(annotators[0], first.task, first.label)
    Judgment.objects.filter(pk=first.pk).update(seconds=0.1 + 0.2)
    create_report(round, make_researcher())
    probe = Probe.objects.create(kind="probe", language_model=make_language_model(), name="a", methods=["soft"])
    relation = ProbedRelation.objects.create(probe=probe, name="r", type="1-1", prompts=["<ENT0> <ENT1>"], facts={})
    counts = dict.fromkeys(("n_train", "n_dev", "n_test", "n_prompts", "forwards"), 1) | {"n_parameters": 2**40}
    numbers = counts | dict.fromkeys(("p1", "p10", "mrr", "nll", "dev_nll", "seconds"), 1 / 3)
    numbers["left_out"] = {"b": 1e16, "a": [1.0, None, "é"]}
    record = ProbeRecord.objects.create(relation=relation, method="soft", is_control=False, **numbers)
    LearnedPrompt.objects.create(
        record=record, text="t", weight=5e-324, segments=[[1]], slots=[0], vectors=bytes(range(256)), nearest=[]
    )


def rows_of(path: Path, table: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute(f"SELECT * FROM {table}").fetchall(), key=repr)


def test_a_round_trip_preserves_all_rows(researcher, study, destination):
    url = url_of(connection)

    there = copy_database(url, f"sqlite:///{destination}")
    judgments, tuples = Judgment.objects.count(), list(KnowledgeTuple.objects.order_by("pk").values())
    call_command("flush", interactive=False, verbosity=0)
    back = copy_database(f"sqlite:///{destination}", url)

    assert back == there
    assert {table.name: table.n_rows for table in there}["annotation_judgment"] == judgments == 10
    assert list(KnowledgeTuple.objects.order_by("pk").values()) == tuples
    assert bytes(LearnedPrompt.objects.get().vectors) == bytes(range(256))
    assert ProbeRecord.objects.get().left_out == {"b": 1e16, "a": [1.0, None, "é"]}
    assert Judgment.objects.filter(seconds=0.1 + 0.2, superseded_by__isnull=False).count() == 1
    assert make_language_model().pk > max(table.n_rows for table in back if table.name == "kgharvest_languagemodel")
    call_command("audit", "verify")


@pytest.fixture(params=["no migrations", pytest.param("all migrations", marks=pytest.mark.exhaustive)])
def migrations(request, monkeypatch, migrated_database) -> None:
    """By default, the child process that migrates a new SQLite database finds all tables there."""

    def run(command: list[str], env: dict[str, str], **options):
        shutil.copyfile(migrated_database, env["DATABASE_URL"].removeprefix("sqlite:///"))
        return subprocess.run(command, env=env, **options)

    if request.param != "all migrations":
        monkeypatch.setattr(database_transfer, "subprocess", SimpleNamespace(run=run))


def test_round_trip_through_a_new_database_preserves_every_model(migrations, tmp_path, migrated_database):
    make_row_of_every_model()
    rows = {model: list(model._default_manager.order_by("pk").values()) for model in models_in_order()}
    url, new = url_of(connection), tmp_path / "new.sqlite3"

    there = copy_database(url, f"sqlite:///{new}")
    if connection.vendor == "sqlite":
        put_back(migrated_database)  # `flush` cannot delete rows of the pay ledger
    else:
        call_command("flush", interactive=False, verbosity=0)
    back = copy_database(f"sqlite:///{new}", url)

    assert [model._meta.label for model, values in rows.items() if not values] == []
    assert back == there
    assert {model: list(model._default_manager.order_by("pk").values()) for model in rows} == rows


def test_unmigrated_destination_with_tables_is_rejected(study, tmp_path):
    old = tmp_path / "old.sqlite3"
    spoil(old, "CREATE TABLE kgharvest_job (id integer)")

    with refused("TransferRefused", match="The destination is not migrated"):
        copy_database(url_of(connection), f"sqlite:///{old}")


def test_command_prints_rows_and_checksum_of_each_table(study, destination, capsys):
    call_command("copy_database", url_of(connection), f"sqlite:///{destination}")

    *tables, last, files_note = capsys.readouterr().out.splitlines()
    assert any(line.split()[1:] == ["10", "annotation_judgment"] for line in tables)
    assert last.endswith(f"rows of {len(tables)} tables; counts and checksums agree.")
    assert files_note.startswith("Files are not copied")


def test_a_destination_with_rows_is_unchanged(study, destination):
    copy_database(url_of(connection), f"sqlite:///{destination}")
    before = rows_of(destination, "annotation_judgment")

    with refused("TransferRefused", match=r"The destination is not empty: .* has rows"):
        copy_database(url_of(connection), f"sqlite:///{destination}")

    assert rows_of(destination, "annotation_judgment") == before


def test_an_invalid_source_row_prevents_the_copy(study, destination, tmp_path):
    broken = tmp_path / "broken.sqlite3"
    shutil.copyfile(destination, broken)
    copy_database(url_of(connection), f"sqlite:///{broken}")
    with closing(sqlite3.connect(broken, isolation_level=None)) as database:
        database.execute("DELETE FROM annotation_judgmenttask WHERE id = (SELECT min(id) FROM annotation_judgmenttask)")
    before = rows_of(destination, "kgharvest_sensitiveword")

    with refused("TransferRefused", match=r"Cannot copy a row .*Nothing was copied"):
        copy_database(f"sqlite:///{broken}", f"sqlite:///{destination}")

    assert rows_of(destination, "annotation_judgment") == rows_of(destination, "auth_user") == []
    assert rows_of(destination, "kgharvest_sensitiveword") == before


def test_a_differing_copy_is_rolled_back(study, destination):
    with closing(sqlite3.connect(destination, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER rounds AFTER INSERT ON annotation_judgment "
            "BEGIN UPDATE annotation_judgment SET seconds = round(seconds, 1); END"
        )

    with refused("TransferRefused", match="The copy of annotation_judgment differs"):
        copy_database(url_of(connection), f"sqlite:///{destination}")

    assert rows_of(destination, "annotation_judgment") == []


def spoil(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM django_migrations WHERE app = 'probing'", "The destination is not migrated"),
        (
            "INSERT INTO django_migrations (app, name, applied) VALUES ('kgharvest', '9999_future', '2030-01-01')",
            "has the migration kgharvest.9999_future of another kgharvest version",
        ),
        ("CREATE TABLE strange (a)", "has tables that do not belong to kgharvest: strange"),
        ("CREATE TABLE annotation_roundevent AS SELECT 1 AS id", "has 1 rows in annotation_roundevent"),
    ],
)
def test_a_destination_with_other_tables_is_rejected(destination, statement, message):
    spoil(destination, statement)

    with pytest.raises(CommandError, match=message):
        call_command("copy_database", url_of(connection), f"sqlite:///{destination}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mysql://a@b/c", "source starts with 'mysql'.*sqlite:///"),
        ("sqlite:////nowhere/at.all", "The source /nowhere/at.all does not exist"),
        ("postgres://nobody@127.0.0.1:1/none", "Cannot open the source .*Check its address"),
        ("sqlite:///{text}", "Cannot open the source .*file is not a database"),
        ("sqlite:///{destination}", "Source and destination are the same database"),
    ],
)
def test_invalid_source_addresses_are_rejected_with_a_message(destination, tmp_path, source, message):
    (tmp_path / "text").write_text("No database. " * 1000)
    url = source.format(text=tmp_path / "text", destination=destination)

    with pytest.raises(CommandError, match=message) as refusal:
        call_command("copy_database", url, f"sqlite:///{destination}")

    assert str(refusal.value).count("\n") == 0


@on_postgresql
def test_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
