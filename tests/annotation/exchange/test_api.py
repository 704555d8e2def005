"""Judgments in the API: pagination, export, and import."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from annotation.exchange.judgment_export import judgment_table
from annotation.models import Judgment, Round
from kgharvest.models import Role
from kgharvest.tables.formats import csv_text
from tests import factories
from tests.api import client_of, error_of

pytestmark = pytest.mark.django_db

IMPORT = "/api/v1/rounds/import/"
HEAD = "relation,entities,annotator,label\n"


@pytest.fixture
def round(db) -> Round:
    round = factories.make_round(5, name="pilot", judgments_per_task=2)
    factories.judge_all(round, ["true"] * 5, ["false"] * 5)
    return round


def test_paginated_judgments_appear_once(round):
    factories.judge_all(factories.make_round(2), ["true"] * 2)
    api, address = client_of(), f"/api/v1/rounds/{round.pk}/judgments/"

    page = api.get(address, {"limit": 3}).json()
    rows = page["results"]
    while page["next"]:
        page = api.get(page["next"]).json()
        rows += page["results"]

    assert [row["id"] for row in rows] == [
        str(pk) for pk in Judgment.objects.filter(task__round=round).order_by("task", "pk").values_list("pk", flat=True)
    ]
    first = rows[0]
    assert (first["statement"], first["is_counted"], first["adjudication"]) == (
        round.tasks.first().statement,
        True,
        None,
    )


def test_judgments_can_be_filtered(round):
    api, address = client_of(), f"/api/v1/rounds/{round.pk}/judgments/"
    code, task = round.annotators.first().code, round.tasks.first().pk

    assert len(api.get(address, {"annotator": code}).json()["results"]) == 5
    assert {row["label"] for row in api.get(address, {"label": "false"}).json()["results"]} == {"false"}
    assert len(api.get(address, {"task": task}).json()["results"]) == 2
    for odd in ({"label": "maybe"}, {"task": "x"}, {"task": 10**30}, {"annotator": "a\x00"}, {"after": "a\x00b"}):
        assert api.get(address, odd).status_code == 400


def test_exported_files_equal_the_judgment_table(round):
    api, address = client_of(), f"/api/v1/rounds/{round.pk}/judgments"
    files = {name: b"".join(api.get(f"{address}.{name}").streaming_content) for name in ("csv", "jsonl", "parquet")}

    assert files["csv"] == csv_text(judgment_table(round)).encode()
    lines = [json.loads(line) for line in files["jsonl"].splitlines()]
    assert len(lines) == 10
    assert pyarrow.parquet.read_table(io.BytesIO(files["parquet"])).column("label").to_pylist() == [
        line["label"] for line in lines
    ]
    assert api.get(f"{address}.csv", headers={"accept": "text/csv"}).status_code == 200
    assert api.get(f"{address}.pdf").status_code == 404


def import_file(api, text: str, **fields):
    return api.post(IMPORT, {"file": SimpleUploadedFile("judged.csv", text.encode()), **fields})


def test_import_creates_a_closed_round(db):
    text = HEAD + 'likes,"[""ann"", ""tea""]",a,True\nlikes,"[""ann"", ""tea""]",b,True\n'
    api = client_of()

    created = import_file(api, text, round="old", create="true")

    assert (created.status_code, created.json()["n_judgments"]) == (201, 2)
    shown = api.get(created.headers["Location"]).json()
    assert (shown["name"], shown["source"], shown["status"]) == ("old", "imported", "closed")
    assert error_of(import_file(api, text, round="old"))["code"] == "ImportRefused"
    assert import_file(api, text, round="old", duplicates="last").json()["n_duplicates"] == 2
    rows = csv.DictReader(io.StringIO(b"".join(api.get(f"{created.headers['Location']}judgments.csv")).decode()))
    assert [row["label"] for row in rows] == ["True", "True"]


def test_file_with_invalid_line_stores_nothing(db):
    refused = import_file(client_of(), HEAD + 'likes,"[""ann""]",a,Perhaps\n', round="old", create="true")

    assert (refused.status_code, "judged.csv" in error_of(refused)["message"]) == (400, True)
    assert "line 2" in error_of(refused)["message"]
    assert not Round.objects.exists()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\x00b.csv", "", ".", "é" * 300, "a/b\\c:d*.csv"])
def test_unusual_file_names_are_handled(db, name):
    file = SimpleUploadedFile("x", (HEAD + 'likes,"[""ann"", ""tea""]",a,True\n').encode())
    file._name = name

    assert client_of().post(IMPORT, {"file": file, "round": "old", "create": "true"}).status_code in (201, 400)


def test_import_requires_edit_permission_in_the_project(db):
    text = HEAD + 'likes,"[""ann"", ""tea""]",a,True\n'
    import_file(client_of(), text, round="old", create="true")

    assert import_file(client_of(factories.make_member(Role.VIEWER)), text, round="old").status_code == 403
    stranger = client_of(factories.make_member(Role.OWNER, factories.make_project()))
    assert import_file(stranger, text, round="default/old").status_code == 409


def test_import_rejects_relations_of_other_projects(db):
    foreign = factories.make_relation(
        "likes", relation_set=factories.make_relation_set("foreign", project=factories.make_project())
    )
    api = client_of()
    rows = HEAD + 'foreign/likes,"[""ann"", ""tea""]",a,true\n'

    refused = api.post(
        IMPORT,
        {"file": SimpleUploadedFile("judged.csv", rows.encode()), "round": "old", "create": "true", "set": "foreign"},
    )

    assert refused.status_code == 400
    assert "There is no relation 'likes'" in error_of(refused)["message"]
    assert not foreign.knowledge_tuples.exists()
